-- What each tenant takes of the store, counted as it changes: nothing ever counts the large tables.
create table tenant_usage (
    tenant_id    blob primary key,
    queued       integer not null,
    stored_bytes integer not null
) strict, without rowid;

-- What a row counts towards its tenant's quota. Null in rows that were there before: an event counts as its columns say, and an
-- attempt, which is kept for a few weeks only, counts nothing.
alter table events add column stored_bytes integer;
alter table attempts add column tenant_id blob;
alter table attempts add column stored_bytes integer;

insert into tenant_usage
    select tenant_id, sum(queued), sum(stored_bytes) from (
        select d.tenant_id, b.queued, 0 as stored_bytes from backlogs b join destinations d on d.id = b.destination_id
        union all
        select tenant_id, 0, 512 + 256 * n_kept + length(payload) + coalesce(length(headers), 0) from events)
    group by tenant_id;

-- The day on which a key was last used, so that those that are idle can be removed.
alter table ordering_keys add column used_day integer not null default 0;
update ordering_keys set used_day = unixepoch() / 86400;
create index ordering_keys_by_day on ordering_keys (used_day);

-- When it was removed: after a while nothing refers to it any more.
alter table removed_destinations add column removed_at integer not null default 0;
create index removed_by_time on removed_destinations (removed_at) where swept = 1;
