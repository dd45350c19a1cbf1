-- How far the clock had come: one row of JSON.
create table clock (
    one    integer primary key check (one = 1),
    record blob not null
) strict;

-- How far the wall clock was ahead of `accepted_at`, in milliseconds.
alter table events add column wall_offset integer not null default 0;
