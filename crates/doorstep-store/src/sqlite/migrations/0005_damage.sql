-- How often something was committed: compared at each start with what is counted outside of the database.
alter table counters add column commits integer not null default 0;

-- What shows whether an event that is not encrypted is still as it was accepted. Behind the payload: it is needed only with that.
alter table events add column digest blob;

-- What digests are made with.
create table digest_keys (
    id     blob primary key,
    sealed blob not null
) strict, without rowid;
