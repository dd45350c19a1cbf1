-- Times are milliseconds since the epoch, IDs 16 bytes big-endian, lists and settings JSON.

create table counters (
    one             integer primary key check (one = 1),
    last_event_seq  integer not null,
    last_seq        integer not null,
    last_attempt    integer not null
) strict;
insert into counters values (1, 0, 0, 0);

-- The master keys that secrets are sealed with: one, or two while they are changed. `sealed` opens with the right one.
create table master_keys (
    id     blob primary key,
    sealed blob not null
) strict, without rowid;

create table tenants (
    id       blob primary key,
    settings blob not null
) strict, without rowid;

create table destinations (
    id         blob primary key,
    tenant_id  blob not null,
    version    integer not null,
    settings   blob not null,
    secrets    blob not null, -- sealed
    created_at integer not null,
    updated_at integer not null
) strict, without rowid;
create index destinations_by_tenant on destinations (tenant_id);

-- Those that were taken away. Their IDs are not used again. `swept`: nothing is left of what was queued for them.
create table removed_destinations (
    id    blob primary key,
    swept integer not null
) strict, without rowid;
create index removed_to_sweep on removed_destinations (id) where swept = 0;

-- Apart from the destinations, since it changes far more often.
create table gates (
    destination_id blob primary key,
    state          blob not null
) strict, without rowid;

-- What receivers have agreed to. Apart from the destinations too: changing the one leaves the other alone.
create table consents (
    destination_id blob primary key,
    consent        blob not null
) strict, without rowid;

-- What payloads are encrypted with, if they are. Without its row, whatever needs the key is gone for ever.
create table tenant_keys (
    tenant_id blob primary key,
    id        blob not null,
    sealed    blob not null
) strict, without rowid;

-- The payload comes last: whoever wants the rest does not read it. `payload_key` is the tenant's key that it needs, if any, and that
-- the headers need.
create table events (
    seq             integer primary key,
    tenant_id       blob not null,
    id              text not null,
    event_type      text not null,
    accepted_at     integer not null,
    n_deliveries    integer not null, -- made when it was accepted
    n_kept          integer not null, -- still in one of the three tables below
    first_seq       integer not null, -- of those deliveries: the others have the numbers behind it
    content_type    text not null,
    ordering_key    text,
    produced_at     integer,
    schema_version  text,
    headers         blob,
    ttl             integer,
    traceparent     text,
    idempotency_key blob, -- a digest of the producer's key, unless the ID is made of it
    payload_key     blob,
    payload         blob not null
) strict;
create unique index events_by_id on events (id, tenant_id);
create unique index events_by_key on events (tenant_id, idempotency_key) where idempotency_key is not null;
create index events_to_purge on events (accepted_at) where n_kept = 0;

-- Where a delivery is found by its name, in whichever table it is.
create table delivery_seqs (
    id  blob primary key,
    seq integer not null
) strict, without rowid;

-- The hot table: unfinished deliveries only. `track` is 0 for first attempts, 1 for retries. `behind`: others with the same ordering key
-- come first; `key_place` is the place in that queue.
create table deliveries (
    seq            integer primary key,
    id             blob not null,
    event_seq      integer not null,
    destination_id blob not null,
    track          integer not null,
    behind         integer not null,
    due_at         integer not null,
    requests       integer not null,
    attempts       integer not null,
    ambiguous      integer not null,
    last_delay     integer not null,
    give_up_at     integer not null,
    ordering_key   text,
    sequence       integer,
    key_place      integer,
    last_status    integer
) strict;
create index deliveries_due on deliveries (destination_id, track, due_at, seq) where behind = 0;
create index deliveries_by_give_up on deliveries (give_up_at);
create index deliveries_by_key on deliveries (destination_id, ordering_key, key_place) where ordering_key is not null;

create table delivered (
    seq            integer primary key,
    id             blob not null,
    event_seq      integer not null,
    destination_id blob not null,
    due_at         integer not null,
    requests       integer not null,
    attempts       integer not null,
    ambiguous      integer not null,
    last_delay     integer not null,
    give_up_at     integer not null,
    ordering_key   text,
    sequence       integer,
    last_status    integer,
    ended_at       integer not null
) strict;
create index delivered_by_end on delivered (ended_at);

-- `holds_key`: it keeps its `key_place`, and those behind it wait.
create table dead (
    seq            integer primary key,
    id             blob not null,
    event_seq      integer not null,
    destination_id blob not null,
    due_at         integer not null,
    requests       integer not null,
    attempts       integer not null,
    ambiguous      integer not null,
    last_delay     integer not null,
    give_up_at     integer not null,
    ordering_key   text,
    sequence       integer,
    last_status    integer,
    ended_at       integer not null,
    reason         integer not null,
    note           text,
    holds_key      integer not null,
    key_place      integer
) strict;
create index dead_by_end on dead (ended_at);
create index dead_by_key on dead (destination_id, ordering_key, key_place) where holds_key = 1;

-- Where to look for a destination's or a tenant's deliveries: stretches of 1024 numbers in which it has, or had, some in one of the three
-- tables above. An index on each of them would dirty a page for almost every row.
create table stretches (
    owner   blob not null,
    stretch integer not null,
    primary key (owner, stretch)
) strict, without rowid;
create index stretches_by_age on stretches (stretch);

-- The same for a tenant's events.
create table event_stretches (
    owner   blob not null,
    stretch integer not null,
    primary key (owner, stretch)
) strict, without rowid;
create index event_stretches_by_age on event_stretches (stretch);

-- What an ordering key has given out so far: sequence numbers, and places in its queue.
create table ordering_keys (
    destination_id blob not null,
    ordering_key   text not null,
    last_sequence  integer not null,
    last_place     integer not null,
    primary key (destination_id, ordering_key)
) strict, without rowid;

-- Append-only, and taken away from the front.
create table attempts (
    n                  integer primary key,
    delivery_seq       integer not null,
    id                 blob not null,
    number             integer not null,
    started_at         integer not null,
    status             integer,
    fault              integer,
    took_dns           integer,
    took_connect       integer,
    took_tls           integer,
    took_first_byte    integer,
    took_total         integer not null,
    request_headers    blob,
    response_headers   blob,
    response_truncated integer not null,
    sealed_with        blob, -- the tenant's key that the body needs, if any: then both headers are in it
    response_body      blob not null
) strict;
create index attempts_by_delivery on attempts (delivery_seq);

-- Counted as they change: nothing ever counts the hot table.
create table backlogs (
    destination_id blob primary key,
    queued         integer not null
) strict, without rowid;

create table activity (
    minute         integer not null,
    destination_id blob not null,
    succeeded      integer not null,
    transient      integer not null,
    throttled      integer not null,
    ambiguous      integer not null,
    permanent      integer not null,
    first          integer not null,
    delivered      integer not null,
    dead           integer not null,
    took_sum       integer not null,
    took_max       integer not null,
    primary key (minute, destination_id)
) strict, without rowid;

-- `ended_at`: revoked or expired, whichever comes first; it may lie in the future.
create table api_keys (
    id        blob primary key,
    tenant_id blob,
    ended_at  integer,
    key       blob not null
) strict, without rowid;

create index api_keys_by_end on api_keys (ended_at) where ended_at is not null;

create table portal_sessions (
    id         blob primary key,
    tenant_id  blob not null,
    expires_at integer not null,
    session    blob not null
) strict, without rowid;

create index portal_sessions_by_end on portal_sessions (expires_at);
create index portal_sessions_by_tenant on portal_sessions (tenant_id);

-- Append-only, and taken away from the front. No number is given out twice.
create table audit (
    n         integer primary key autoincrement,
    at        integer not null,
    tenant_id blob,
    actor     text not null,
    action    text not null,
    resource  text not null,
    entry     blob not null
) strict;
create index audit_by_tenant on audit (tenant_id) where tenant_id is not null;

create table event_types (
    name     text primary key,
    version  integer not null,
    settings blob not null
) strict, without rowid;
