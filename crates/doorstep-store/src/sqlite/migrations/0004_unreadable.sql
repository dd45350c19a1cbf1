-- How often in a row a delivery's payload could not be read. Those that have ended have none: they are read with the same columns.
alter table deliveries add column unreadable integer not null default 0;
alter table delivered add column unreadable integer not null default 0;
alter table dead add column unreadable integer not null default 0;
