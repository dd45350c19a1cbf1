//! `docs/reference/limits.md` says what the code does (S8).

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use doorstep_core::store::{ATTEMPTS_TOLD_MAX, CAPTURED_TOLD_MAX};
use doorstep_core::time::Millis;
use doorstep_core::{
    address, api_key, audit, clock, consent, custom_headers, defaults, delivery, event_type, filter, gate, hints, id,
    outcome, output, quota, retry, route, scheduler, search, signature,
};
use doorstep_engine::{
    compute_pool, consent as asking, desk, events, maintain, resolve, sender, timekeeper, trials, unreadable, writer,
};
use doorstep_server::Limits;
use doorstep_server::connections::{ConnectionLimits, PEERS_PART};
use doorstep_server::watchers;
use doorstep_store::sqlite::{LOGS_KEPT_MAX, NAMED_MAX, SqliteLimits};
use serde_json::Value;

use crate::support::in_repository;

const PAGE: &str = include_str!("../../../../docs/reference/limits.md");

/// The row about this, in the part of the page with this title.
#[track_caller]
fn row(part: &str, what: &str) -> &'static str {
    let (_, part) = PAGE.split_once(&format!("\n## {part}\n")).unwrap_or_else(|| panic!("there is no part {part}"));
    let part = part.split("\n## ").next().unwrap();
    let row = part.lines().find(|line| line.starts_with(&format!("| {what} |")));
    row.unwrap_or_else(|| panic!("there is no row {what}"))
}

/// Each of these stands in the row, and not as a part of something longer.
#[track_caller]
fn says(part: &str, what: &str, values: &[String]) {
    let row = row(part, what);
    let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || ",._".contains(c));
    for value in values {
        let stands = row.match_indices(value.as_str()).any(|(at, _)| {
            let (before, behind) = (&row[..at], &row[at + value.len()..]);
            // A comma ends a value, unless a digit follows it.
            let goes_on =
                behind.strip_prefix(',').map_or(joins(behind.chars().next()), |rest| joins(rest.chars().next()));
            !joins(before.chars().next_back()) && !goes_on
        });
        assert!(stands, "the page does not say {value}: {row}");
    }
}

/// With a comma after the thousands.
fn count(n: impl TryInto<u64>) -> String {
    let digits = n.try_into().ok().unwrap().to_string();
    let from_the_end = digits.bytes().rev().map(char::from).collect::<Vec<_>>();
    let groups: Vec<String> = from_the_end.chunks(3).map(|group| group.iter().collect()).collect();
    groups.join(",").chars().rev().collect()
}

fn kib(n: impl TryInto<u64>) -> String {
    let n = n.try_into().ok().unwrap();
    assert_eq!(n % 1_024, 0);
    format!("{} KiB", n / 1_024)
}

fn mib(n: usize) -> String {
    assert_eq!(n % (1 << 20), 0);
    format!("{} MiB", n >> 20)
}

/// In the largest unit that it is a whole number of.
fn time(ms: u128) -> String {
    let day = 86_400_000;
    match ms {
        _ if ms.is_multiple_of(day) && ms > day => format!("{} days", ms / day),
        _ if ms.is_multiple_of(3_600_000) => format!("{} h", ms / 3_600_000),
        60_000 => "1 minute".to_owned(),
        _ if ms.is_multiple_of(60_000) => format!("{} minutes", ms / 60_000),
        _ if ms.is_multiple_of(1_000) => format!("{} s", ms / 1_000),
        _ => format!("{ms} ms"),
    }
}

fn millis(span: Millis) -> String {
    time(span.0.into())
}

fn duration(span: Duration) -> String {
    time(span.as_millis())
}

#[test]
fn the_api_and_its_events_are_bounded_as_the_page_says() {
    let (api, events) = ("The API", "Events");
    let (limits, connections) = (Limits::default(), ConnectionLimits::default());
    says(api, "body of a batch", &[mib(limits.batch_bytes_max)]);
    says(api, "time for a body to arrive", &[duration(limits.body_within)]);
    says(api, "attempts that are shown of a delivery", &[count(ATTEMPTS_TOLD_MAX)]);
    says(api, "attempts whose headers and bodies are shown with a delivery", &[count(CAPTURED_TOLD_MAX)]);
    says(api, "watchers of `/v1/stream`", &[count(limits.watchers_max)]);
    let part = |of: usize| count(limits.watchers_max / of);
    let (of_one, of_bound) = (part(watchers::CREDENTIALS_PART), part(watchers::BOUND_CREDENTIALS_PART));
    says(api, "watchers with one credential", &[of_one, of_bound]);
    says(api, "watchers whose credentials are limited to one tenant", &[part(watchers::TENANTS_PART)]);
    let head = "time for a request's head to arrive, or the next one to begin";
    says(api, head, &[duration(connections.head_within)]);
    let read = [kib(connections.taken_per_second_min), duration(connections.taken_within)];
    says(api, "speed at which an answer is read", &read);
    says(api, "buffer of a connection", &[kib(connections.buffer_max)]);
    says(api, "headers of a request", &[count(connections.headers_max)]);
    says(api, "bytes of a head, about", &[kib(connections.buffer_max)]);
    says(api, "connections", &[count(connections.connections_max)]);
    let of_one = "connections of one address, or of one /64 network of IPv6";
    says(api, of_one, &["an eighth".to_owned(), count(connections.per_peer_max)]);
    assert_eq!(PEERS_PART, 8, "the page says an eighth");
    says(api, "a key that a client shows", &[count(api_key::KEY_BYTES_MAX)]);
    says(api, "ranges of `trusted_proxies`", &[count(address::ALLOWED_RANGES_MAX)]);
    says(api, "changes noted in one line of the audit log", &[kib(audit::CHANGES_BYTES_MAX)]);

    says(events, "payload", &[kib(limits.payload_max)]);
    says(events, "ID", &[count(id::EVENT_ID_MAX)]);
    says(events, "type", &[count(route::EVENT_TYPE_LEN_MAX), count(route::EVENT_TYPE_SEGMENTS_MAX)]);
    says(events, "ordering key", &[count(search::ORDERING_KEY_CHARS_MAX)]);
    says(api, "types in a list's `type`", &[count(route::PATTERNS_MAX)]);
    let headers = [
        count(custom_headers::HEADERS_MAX),
        count(custom_headers::NAME_BYTES_MAX),
        count(custom_headers::VALUE_BYTES_MAX),
        kib(custom_headers::TOTAL_BYTES_MAX),
    ];
    says(events, "headers", &headers);
    says("Destinations", "headers", &headers);
}

#[test]
fn event_types_are_bounded_as_the_page_says() {
    let part = "Event types";
    says(part, "event types that are registered", &[count(event_type::EVENT_TYPES_MAX)]);
    says(part, "versions of a type's schema", &[count(event_type::SCHEMAS_MAX)]);
    says(part, "bytes of a schema", &[kib(event_type::SCHEMA_BYTES_MAX)]);
    says(part, "bytes of all schemas", &[mib(event_type::SCHEMA_BYTES_IN_ALL_MAX)]);
}

#[test]
fn destinations_are_bounded_as_the_page_says() {
    let part = "Destinations";
    let gate = gate::GateLimits::default();
    let (breaker, suspension) = (&gate.breaker, &gate.suspension);
    let standard = retry::RetryPolicy::standard();
    says(part, "destinations of a tenant", &[count(desk::DESTINATIONS_PER_TENANT_MAX)]);
    says(part, "URL", &[count(address::URL_BYTES_MAX)]);
    says(part, "patterns of event types", &[count(route::PATTERNS_MAX)]);
    says(part, "bytes of a filter", &[kib(filter::FILTER_BYTES_MAX)]);
    says(part, "tests in a filter", &[count(filter::FILTER_TESTS_MAX)]);
    says(part, "`all`, `any`, `not` within each other", &[count(filter::FILTER_NESTING_MAX)]);
    says(part, "values in a filter's list", &[count(filter::FILTER_LIST_MAX)]);
    says(part, "levels of a filter's path", &[count(filter::FILTER_PATH_MAX)]);
    let of_tenant = "work of one tenant's filters for one event, in bytes compared";
    says(part, of_tenant, &[mib(filter::work::FILTER_WORK_MAX as usize)]);
    assert_eq!(compute_pool::INLINE_UNITS_MAX, 256 * 1024, "the page says so");
    says(part, "work of filters that a thread of the server does at once", &["256 Ki".to_owned()]);
    says(part, "requests at once", &[count(gate.concurrency), count(defaults::CONCURRENCY_MAX)]);
    for row in ["rate", "burst"] {
        says(part, row, &[count(defaults::PER_SECOND_MAX)]);
    }
    let timeouts = [defaults::TIMEOUT_DEFAULT, defaults::TIMEOUT_MIN, defaults::TIMEOUT_MAX];
    says(part, "time for one request", &timeouts.map(millis));
    says(part, "status overrides", &[count(outcome::STATUS_OVERRIDES_MAX)]);
    says(part, "secrets that sign", &[count(signature::SECRETS_MAX)]);
    let pem = [count(sender::CERTIFICATES_MAX), kib(sender::PEM_BYTES_MAX)];
    says(part, "certificates, and bytes of PEM", &pem);
    says(part, "waits in a schedule", &[count(retry::DELAYS_MAX)]);
    says(part, "a wait between attempts", &[millis(retry::DELAY_MIN), millis(retry::DELAY_MAX)]);
    says(part, "attempts", &[count(standard.max_attempts()), count(retry::ATTEMPTS_MAX)]);
    says(part, "attempts with ambiguous answers", &[count(retry::AMBIGUOUS_MAX)]);
    says(part, "time for all attempts", &[millis(standard.window()), millis(retry::WINDOW_MAX)]);
    says(part, "a wait that a receiver asks for, with 429 or 503 for its whole destination", &[millis(gate.wait_max)]);
    let waits: Vec<String> = gate.throttle_waits.iter().map(|wait| millis(*wait)).collect();
    says(part, "waits after 429 that does not say for how long", &waits);
    let own = [count(retry::PRESETS_MAX), count(retry::PRESET_NAME_MAX)];
    says(part, "policies of the operator's own, and characters of a name", &own);
    let failures =
        [count(breaker.failures_in_row), format!("{} %", breaker.failure_percent), count(breaker.requests_min)];
    says(part, "failures that trip the breaker", &failures);
    says(part, "pause of a tripped breaker", &[millis(breaker.cool_down), millis(breaker.cool_down_max)]);
    says(part, "permanent answers in a row", &[count(suspension.permanent_in_row), count(suspension.gone_in_row)]);
    says(part, "life of a link to a payload", &[millis(output::link::FETCHABLE_FOR)]);
}

#[test]
fn the_engine_the_sender_and_the_store_are_bounded_as_the_page_says() {
    let (engine, sending, store) = ("The engine", "The sender", "The store");
    let scheduler = scheduler::SchedulerLimits::default();
    let writer = writer::WriterLimits::default();
    says(engine, "requests at once, over all destinations", &[count(scheduler.in_flight_max)]);
    says(engine, "deliveries of a destination in memory", &[count(scheduler.window_max)]);
    says(engine, "reads of the store for deliveries at once", &[count(scheduler.refills_max)]);
    let reserved = "share of the requests that is kept for first attempts, and for retries";
    says(engine, reserved, &[format!("{} %", scheduler.reserved_percent)]);
    says(engine, "writes that wait", &[count(writer.jobs_max)]);
    says(engine, "bytes of writes that wait", &[mib(writer.bytes_max)]);
    says(engine, "writes in one transaction", &[count(writer::BATCH_MAX)]);
    says(engine, "events and deliveries written in one transaction", &[count(writer::BATCH_ROWS_MAX)]);
    let waiting = "events and deliveries of one tenant that wait to be written, of requests with more than 16";
    says(engine, waiting, &[count(writer::UNCOUNTED_ROWS_MAX), count(writer::ROWS_PER_TENANT_MAX)]);
    says(engine, "payloads kept in memory for deliveries to come", &[mib(events::CACHED_BYTES_MAX)]);
    let at_once = [count(asking::ASKED_AT_ONCE_MAX), count(asking::ASKED_PER_TENANT_MAX)];
    says(engine, "receivers asked for consent at once", &at_once);
    says(engine, "time for a question", &[millis(sender::ASK_TIMEOUT_MAX)]);
    let asks = [count(consent::ASKS_MAX as usize), millis(consent::ASK_AGAIN_MIN), millis(consent::ASK_AGAIN_MAX)];
    says(engine, "questions for consent without one", &asks);
    says(engine, "time in which a question can be answered with its link", &[millis(consent::ANSWERABLE_FOR)]);
    let tests = [count(trials::TRIALS_MAX), count(trials::TRIALS_PER_TENANT_MAX)];
    says(engine, "tests of destinations, and questions that people want asked, at once", &tests);
    let rate = trials::TRIAL_RATE;
    let of_tenant = "tests of a tenant's destinations, and questions that people want asked";
    says(engine, of_tenant, &[format!("{} a second", rate.per_second), count(rate.burst)]);
    says(engine, "time for a test", &[millis(trials::TRIAL_TIMEOUT_MAX)]);
    let rests = [millis(delivery::UNREADABLE_REST), millis(delivery::UNREADABLE_REST_MAX)];
    says(engine, "rest of a delivery whose payload cannot be read", &rests);
    let named = format!("{} a minute", unreadable::NAMED_PER_MINUTE);
    says(engine, "payloads that cannot be read, named in the log", &[named]);

    let (deadlines, pool) = (sender::Deadlines::default(), sender::PoolLimits::default());
    assert!(deadlines.dns == deadlines.connect && deadlines.connect == deadlines.tls, "the page has one row for them");
    says(sending, "DNS, connecting, TLS handshake", &[duration(deadlines.dns)]);
    says(sending, "the answer's body, from the end of its headers", &[duration(deadlines.body)]);
    says(sending, "one request in all", &[millis(sender::TIMEOUT_MAX)]);
    says(sending, "body of an answer", &[kib(sender::BODY_BYTES_MAX)]);
    says(sending, "headers of an answer", &[count(hints::HEADERS_MAX)]);
    let heads = [kib(sender::HEAD_BYTES_MAX), kib(sender::HEAD_BYTES_MAX_HTTP2)];
    says(sending, "bytes of an answer's head", &heads);
    says(sending, "bytes of interim answers (1xx)", &[kib(sender::INTERIM_BYTES_MAX)]);
    let per_request = kib(sender::BYTES_PER_REQUEST_MAX_HTTP2);
    says(sending, "bytes that an HTTP/2 receiver sends per request", &[per_request]);
    says(sending, "value of a header that is read as a hint", &[count(hints::VALUE_BYTES_MAX)]);
    says(sending, "connections that wait, per host", &[count(pool.idle_per_host_max)]);
    says(sending, "connections that wait, in all", &[count(pool.idle_max)]);
    says(sending, "time for which a connection waits", &[duration(pool.idle_timeout)]);
    says(sending, "life of a connection", &[duration(pool.lifetime)]);
    says(sending, "requests on one HTTP/2 connection", &[count(pool.streams_max)]);
    let new = "new connections to one host at once, as long as it may speak HTTP/2";
    says(sending, new, &[count(sender::OPENINGS_PER_HOST_MAX)]);
    let again = "times that a request which the receiver did not process is sent again within its attempt";
    says(sending, again, &[count(sender::NOT_PROCESSED_RESENDS_MAX as usize)]);
    says(sending, "trusted certificates (`tls_ca_file`)", &[count(sender::ROOTS_MAX), mib(sender::ROOTS_BYTES_MAX)]);
    let dns = resolve::DnsSettings::default();
    let believed = [duration(dns.positive_ttl_max), duration(dns.negative_ttl_max)];
    says(sending, "time for which an address is believed", &believed);
    says(sending, "allowed ranges (`allow_targets`)", &[count(address::ALLOWED_RANGES_MAX)]);

    let limits = SqliteLimits::default();
    says(store, "check of a database that was not closed in good order", &[duration(limits.check_max)]);
    says(store, "copies of a write-ahead log from which something was missing", &[count(LOGS_KEPT_MAX)]);
    says(store, "faults of one kind that `doorstep check --deep` names", &[count(NAMED_MAX)]);
    says(store, "batches that wait to be written", &[count(limits.writes_queued_max)]);
    says(store, "reads that wait", &[count(limits.reads_queued_max)]);
    says(store, "threads that read for the engine, and for people", &[count(limits.readers)]);
    says(store, "a search by a person", &[duration(limits.search_max)]);
    says(store, "rows removed in one step of a purge, of each kind", &[count(maintain::STEP_MAX)]);
    let pages = [mib((limits.writer_cache_kib * 1_024) as usize), mib((limits.reader_cache_kib * 1_024) as usize)];
    says(store, "memory for pages", &pages);
    says("The API", "queued deliveries of a tenant", &[count(quota::QUEUED_DELIVERIES_MAX)]);
    says(sending, "headers kept of a request, and of its answer", &[kib(sender::HEADER_BYTES_KEPT)]);
    says("`doorstep listen`", "signatures in a header", &[count(signature::TOKENS_MAX)]);
    says("`doorstep listen`", "age of a signature", &[millis(signature::TOLERANCE_DEFAULT)]);
}

/// What other crates cannot see is looked up in the source: whoever changes one of these lines finds the page by this.
#[test]
fn what_is_private_is_bounded_as_the_page_says() {
    let held =
        "bytes of all bodies that are held: those on their way in, and answers of more than 16 KiB until they are sent";
    let writing = "bytes of requests with events that wait to be written, of those with more than 16 KiB";
    let open = "body of a request without a credential (`POST /portal/session`)";
    let guesses = "refused credentials from one address, or from one /64 network of IPv6";
    let health = "how often the engine is asked for `/readyz` and `/metrics`";
    let server = [
        ("body.rs", "BODY_BYTES_MAX: usize = 256 * 1024;", "body of a request, other than events", "256 KiB"),
        ("body.rs", "DISCARDED_BYTES_MAX: usize = 16 * 1024 * 1024;", "body of a request, other than events", "16 MiB"),
        ("api/events.rs", "BATCH_MAX: usize = 1_000;", "events in a batch", "1,000"),
        ("ask.rs", "QUERY_BYTES_MAX: usize = 4_096;", "query string", "4,096"),
        ("page.rs", "CURSOR_BYTES_MAX: usize = 128;", "cursor", "128"),
        ("page.rs", "LIMIT_DEFAULT: usize = 50;", "lines of a page", "50"),
        ("page.rs", "LIMIT_MAX: usize = 200;", "lines of a page", "200"),
        ("page.rs", "PAGE_BYTES_MAX: usize = 1024 * 1024;", "bytes of a page", "1 MiB"),
        ("problem.rs", "ERRORS_MAX: usize = 20;", "faults told in one answer", "20"),
        ("api/events.rs", "BATCH_FAULTS_MAX: usize = 1_000;", "faults told in one answer", "1,000"),
        ("problem.rs", "POINTER_CHARS_MAX: usize = 300;", "place and text of a fault", "300"),
        ("problem.rs", "DETAIL_CHARS_MAX: usize = 1_000;", "place and text of a fault", "1,000"),
        ("api/tenants.rs", "NAME_CHARS_MAX: usize = 200;", "name of a tenant, destination or key", "200"),
        ("api/tenants.rs", "EMAIL_CHARS_MAX: usize = 254;", "contact address", "254"),
        ("api/tenants.rs", "WEIGHT_MAX: u32 = 1_000;", "weight of a tenant", "1,000"),
        ("api/tenants.rs", "RATE_MAX: u32 = 1_000_000;", "events a second of a tenant, and its burst", "1,000,000"),
        ("api/event_types.rs", "DESCRIPTION_CHARS_MAX: usize = 2_000;", "description", "2,000"),
        ("api/event_types.rs", "EXAMPLE_BYTES_MAX: usize = 64 * 1024;", "bytes of an example", "64 KiB"),
        ("api/deliveries.rs", "NOTE_CHARS_MAX: usize = 1_000;", "note of a decision", "1,000"),
        ("auth/ring.rs", "KEYS_MAX: usize = 10_000;", "API keys in use", "10,000"),
        ("auth/ring.rs", "TENANTS_PART: usize = 10;", "API keys in use", "a tenth"),
        ("auth/ring.rs", "TENANTS_PART: usize = 10;", "portal sessions", "a tenth"),
        ("bodies.rs", "HELD_BYTES_MAX: usize = 256 * 1024 * 1024;", held, "256 MiB"),
        ("bodies.rs", "HOLDERS_PART: usize = 4;", held, "a quarter"),
        ("bodies.rs", "WRITING_BYTES_MAX: usize = 64 * 1024 * 1024;", writing, "64 MiB"),
        ("bodies.rs", "WRITERS_PART: usize = 2;", writing, "half"),
        ("answers.rs", "UNCOUNTED_BYTES_MAX: usize = 16 * 1024;", writing, "16 KiB"),
        ("answers.rs", "UNCOUNTED_BYTES_MAX: usize = 16 * 1024;", held, "16 KiB"),
        ("body.rs", "OPEN_BODY_BYTES_MAX: usize = 4 * 1024;", open, "4 KiB"),
        ("body.rs", "OPEN_DISCARDED_BYTES_MAX: usize = 256 * 1024;", open, "256 KiB"),
        (
            "auth/guesses.rs",
            "REFUSED_PER_SOURCE: IngestRate = IngestRate { per_second: 1, burst: 100 };",
            guesses,
            "100",
        ),
        (
            "auth/guesses.rs",
            "SOURCES_MAX: usize = 10_000;",
            "addresses whose refused credentials are counted",
            "10,000",
        ),
        ("api/health.rs", "ASKED_EVERY: Duration = Duration::from_secs(1);", health, "once a second"),
        ("api/health.rs", "ANSWERED_WITHIN: Duration = Duration::from_secs(5);", health, "5 s"),
        ("auth/ring.rs", "SESSIONS_MAX: usize = 100_000;", "portal sessions", "100,000"),
        ("api/keys.rs", "CIDRS_MAX: usize = 50;", "ranges of a key (`source_cidrs`)", "50"),
        (
            "api/keys/change.rs",
            "OVERLAP_MAX: Millis = Millis::from_hours(24 * 7);",
            "overlap of a key's rotation",
            "7 days",
        ),
        ("api/portal_sessions.rs", "LASTS_MIN: Millis = Millis::from_mins(1);", "life of a portal session", "1 minute"),
        ("api/portal_sessions.rs", "LASTS_MAX: Millis = Millis::from_hours(1);", "life of a portal session", "1 hour"),
        (
            "api/portal_sessions.rs",
            "CODE_LASTS: Millis = Millis::from_mins(5);",
            "life of a session's code",
            "5 minutes",
        ),
        ("auth/notes.rs", "DENIALS_PER_ACTOR_MAX: usize = 20;", "refused requests noted in the audit log", "20"),
        ("auth/notes.rs", "DENIALS_MAX: usize = 1_000;", "refused requests noted in the audit log", "1,000"),
        ("auth/strangers.rs", "LOGGED_MAX: u64 = 20;", "refused credentials in the log", "20"),
        ("api/events/new.rs", "SCHEMA_VERSION_CHARS_MAX: usize = 64;", "schema version", "64"),
        ("api/events/new.rs", "CONTENT_TYPE_BYTES_MAX: usize = 256;", "content type", "256"),
        ("api/events/new.rs", "IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;", "`Idempotency-Key`", "255"),
        (
            "api/events/new.rs",
            "SUGGESTED_MAX: usize = 5;",
            "unregistered types of a batch that a registered one is suggested for",
            "5",
        ),
        (
            "api/events/new/cloud.rs",
            "ID_BYTES_MAX: usize = 256;",
            "ID of a CloudEvent; its source, its subject",
            "256 bytes",
        ),
        (
            "api/events/new/cloud.rs",
            "ATTRIBUTE_BYTES_MAX: usize = 1_024;",
            "ID of a CloudEvent; its source, its subject",
            "1,024",
        ),
        ("api/events/new.rs", "TTL_MIN: u64 = 1_000;", "time to live", "1 s"),
        ("api/events/new.rs", "TTL_MAX: u64 = 90 * 24 * 3_600_000;", "time to live", "90 days"),
        ("api/destinations/pace.rs", "PER_SECOND_MIN: f64 = 0.001;", "rate", "0.001"),
        ("api/destinations.rs", "OVERLAP_DEFAULT: Millis = Millis::from_hours(24);", "overlap of a rotation", "24 h"),
        ("api/destinations.rs", "OVERLAP_MAX: Millis = Millis::from_hours(24 * 7);", "overlap of a rotation", "7 days"),
        (
            "searches.rs",
            "REQUESTS_PER_TENANT_MAX: usize = 32;",
            "requests under way of people whose credentials are limited to one tenant",
            "32",
        ),
    ];
    let command = [
        ("serve.rs", "METRICS_CONNECTIONS_MAX: usize = 64;", "connections to `metrics_listen`", "64"),
        ("config/value.rs", "DNS_SERVERS_MAX: usize = 8;", "name servers (`dns_servers`)", "8"),
        ("wire.rs", "NEWS_KEPT: usize = 4_096;", "news kept for a slow watcher", "4,096"),
        ("listen/serve.rs", "CONNECTIONS_MAX: u32 = 1_024;", "connections", "1,024"),
        ("listen/serve.rs", "BODY_BYTES_MAX: usize = 1 << 20;", "body", "1 MiB"),
        ("listen/serve.rs", "HEADERS_MAX: usize = 128;", "headers", "128"),
        ("listen/serve.rs", "HEAD_BYTES_MAX: usize = 64 << 10;", "headers", "64 KiB"),
        ("listen/seen.rs", "REMEMBERED_MAX: usize = 1_000_000;", "event IDs for telling duplicates", "1,000,000"),
    ];
    let misfits = "faults told of a payload that does not fit, and length of each";
    let steps = "steps to compare a payload with its schema";
    let inline = "payload that a thread of the server compares with a schema itself";
    let pattern = "memory for a regular expression, and for its automaton";
    let other_family = "wait for the addresses of the other family (IPv4 or IPv6), once one is known";
    let engine = [
        ("resolve.rs", "RESOLUTION_DELAY: Duration = Duration::from_millis(50);", other_family, "50 ms"),
        ("types/schema.rs", "PATTERN_BYTES_MAX: usize = 256 * 1024;", pattern, "256 KiB"),
        ("types/schema.rs", "RULES_MAX: usize = 50_000;", "rules that may apply to a payload", "50,000"),
        ("types/schema.rs", "DEPTH_MAX: usize = 100;", "levels of rules within rules, or of references", "100"),
        ("types/schema.rs", "MISFITS_MAX: usize = 20;", misfits, "20"),
        ("types/schema.rs", "DETAIL_CHARS_MAX: usize = 300;", misfits, "300"),
        ("types/schema.rs", "STEPS_MAX: u64 = 1_000_000;", steps, "1,000,000"),
        ("types/schema.rs", "STEPS_PER_BYTE_MAX: u64 = 16;", steps, "16"),
        (
            "types/schema.rs",
            "STEPS_TO_LIST_MAX: u64 = 1_000_000;",
            "steps to list the faults of a payload",
            "1,000,000",
        ),
        ("types/schema.rs", "INLINE_BYTES_MAX: usize = 16 * 1024;", inline, "16 KiB"),
        ("types/schema.rs", "INLINE_STEPS_MAX: u64 = 20_000;", inline, "20,000"),
    ];
    let engine = engine.map(|row| ("doorstep-engine", row));
    let server = server.map(|row| ("doorstep-server", row));
    let command = command.map(|row| ("doorstep", row));
    for (name, (file, line, what, value)) in server.into_iter().chain(command).chain(engine) {
        let source = fs::read_to_string(in_repository(&format!("crates/{name}/src/{file}"))).unwrap();
        assert!(source.contains(&format!("const {line}")), "{file} has changed: {line} — change the row {what}, too");
        let part = match file {
            _ if file.starts_with("listen/") => "`doorstep listen`",
            "api/events/new.rs" | "api/events/new/cloud.rs" => "Events",
            "resolve.rs" | "config/value.rs" => "The sender",
            "api/event_types.rs" | "types/schema.rs" => "Event types",
            _ if file.starts_with("api/destinations") => "Destinations",
            _ => "The API",
        };
        says(part, what, &[value.to_owned()]);
    }
}

#[test]
fn clocks_are_followed_as_the_page_says() {
    let engine = "The engine";
    let off = "time that passes in schedules while the server is off, or its machine suspended";
    says(engine, off, &[millis(clock::PAUSE_MAX)]);
    let shown = "difference between a time shown and the wall clock";
    says(engine, shown, &[millis(clock::TOLERANCE), millis(clock::STEP_MIN)]);
    assert_eq!(timekeeper::LOOKS_EVERY, doorstep_engine::clock::NAP_MAX);
    says(engine, "time between two looks at the clock", &[duration(timekeeper::LOOKS_EVERY)]);
    let kept = [millis(timekeeper::KEPT_EVERY), millis(timekeeper::KEPT_AT_LEAST_EVERY)];
    says(engine, "time for which the clock is not written down", &kept);
    says(engine, "stretches of time with a wall clock of their own", &[count(clock::OFFSETS_MAX)]);
}

#[test]
fn what_can_be_configured_has_the_default_that_the_page_says() {
    let shown = Command::new(env!("CARGO_BIN_EXE_doorstep"))
        .args(["config", "show", "--json"])
        .env_clear()
        .current_dir(tempfile::tempdir().unwrap().path())
        .output()
        .unwrap();
    let config: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let number = |key: &str| config[key].as_u64().unwrap_or_else(|| panic!("{key} in {config}"));
    says("Events", "payload", &[kib(number("payload_max_bytes"))]);
    says("The engine", "requests at once, over all destinations", &[count(number("in_flight_max"))]);
    says("Destinations", "destinations of a tenant", &[count(number("destinations_per_tenant_max"))]);
    assert_eq!(number("filter_work_max"), filter::work::FILTER_WORK_MAX);
    assert_eq!(number("queued_per_tenant_max"), quota::QUEUED_DELIVERIES_MAX);
    says("The engine", "requests at once to one host and port", &[count(number("per_host_max"))]);
    says("The engine", "time to end requests when stopped", &[time(number("drain_timeout_ms").into())]);
    let (limits, connections) = (Limits::default(), ConnectionLimits::default());
    for (key, default) in [
        ("payload_max_bytes", limits.payload_max),
        ("batch_max_bytes", limits.batch_bytes_max),
        ("watchers_max", limits.watchers_max),
        ("connections_max", connections.connections_max),
    ] {
        assert_eq!(number(key), default as u64, "{key}");
    }
}

/// Every Rust file below this directory, one after the other.
fn sources(directory: &Path, all: &mut String) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_shared_resource_has_its_tests() {
    let mut all = String::new();
    sources(&in_repository("crates"), &mut all);
    let (_, part) = PAGE.split_once("\n## Shared resources\n").unwrap();
    let rows = part.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| ")).skip(2);
    let mut n = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let tests: Vec<&str> = cells.last().unwrap().split('`').skip(1).step_by(2).collect();
        assert!(cells.len() == 4 && !tests.is_empty(), "a row has four cells, and its tests in the last: {row}");
        for test in tests {
            assert!(all.contains(&format!("fn {test}(")), "there is no test {test}: {row}");
            n += 1;
        }
    }
    assert!(n > 30, "only {n} tests were looked for");
}
