//! Every setting, once. What a key is called in the file, in the environment and as a flag, its help, its line in the
//! example and its field in [`Config`] all follow from its line here.

use std::net::SocketAddr;
use std::path::PathBuf;

use doorstep_core::address::AddressRules;
use doorstep_core::retry::Presets;
use doorstep_core::time::Millis;
use doorstep_engine::sender::TlsVersion;
use doorstep_server::auth::Proxies;

use super::value::{self, LogFormat, Nat64Prefix, Secret};
use super::{ConfigFaults, Given, Givens};
use crate::master_key::KeyBytes;

#[derive(Debug)]
pub(crate) struct Key {
    /// As the file calls it.
    pub(crate) name: &'static str,
    /// As it would be written; empty if there is no value by default.
    pub(crate) default: &'static str,
    pub(crate) shape: Shape,
    about: &'static str,
}

/// What a value looks like in a file. A secret is text that is never shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Text,
    Number,
    /// `true` or `false`.
    Switch,
    /// Text too, where commas separate the items.
    List,
    Secret,
    /// A JSON object; a table in the file.
    Json,
}

impl Key {
    pub(crate) fn env(&self) -> String {
        format!("DOORSTEP_{}", self.name.to_uppercase())
    }

    /// The variable that names a file with the value.
    pub(crate) fn env_file(&self) -> String {
        format!("{}_FILE", self.env())
    }

    pub(crate) fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    pub(crate) fn about(&self) -> &'static str {
        self.about.trim_start()
    }
}

macro_rules! settings {
    ($( $(#[doc = $about:literal])+ $name:ident: $type:ty = $default:literal, $shape:ident, $read:expr; )+) => {
        /// The configuration in force.
        #[derive(Debug)]
        #[cfg_attr(not(test), expect(dead_code, reason = "PostgreSQL is still to come"))]
        pub(crate) struct Config {
            $( $(#[doc = $about])+ pub(crate) $name: $type, )+
        }

        pub(crate) const KEYS: &[Key] = &[
            $( Key { name: stringify!($name), default: $default, shape: Shape::$shape, about: concat!($($about),+) }, )+
        ];

        /// Reads every value, the good ones too when others are not: all faults are told together.
        pub(super) fn typed(given: &Givens, faults: &mut ConfigFaults) -> Option<Config> {
            $( let $name = read(stringify!($name), Shape::$shape, $read, given, faults); )+
            Some(Config { $( $name: $name?, )+ })
        }
    };
}

settings! {
    /// Address and port of the API and the web pages.
    listen: SocketAddr = "127.0.0.1:8080", Text, value::address;
    /// Address and port of a listener of its own for /metrics, /healthz and /readyz, without a key. None: /metrics is served with the API and needs a key with the scope read or admin.
    metrics_listen: Option<SocketAddr> = "", Text, value::optional_address;
    /// URL under which receivers and browsers reach this server, for links to payloads and to the portal. Without it the former have the address of the API (thin payloads are refused if that is every address), and the latter are paths.
    public_url: Option<String> = "", Text, value::public_url;
    /// Proxies before this server, by address or range, whose Forwarded or X-Forwarded-For headers say where a request comes from.
    trusted_proxies: Proxies = "", List, value::proxies;
    /// Connections of clients at once; further ones wait until one ends.
    connections_max: usize = "4096", Number, value::between(1, 65_536);
    /// Of them, those of one address, or of one /64 network of IPv6; further ones are closed at once. None: an eighth of them. Trusted proxies and this machine are not counted.
    connections_per_peer_max: Option<usize> = "", Number, value::optional(value::between(1, 65_536));
    /// Clients that watch the stream at once.
    watchers_max: usize = "256", Number, value::between(1, 65_536);
    /// Largest body of a batch of events, in bytes.
    batch_max_bytes: usize = "8388608", Number, value::between(1_024, 32 * 1_024 * 1_024);
    /// Directory of the embedded store and the keys that are made at the first start.
    data_dir: PathBuf = "./doorstep-data", Text, value::path;
    /// Database to use instead of SQLite in the data directory. PostgreSQL comes in a later release.
    database_url: Option<Secret<String>> = "", Secret, value::database_url;
    /// Key of the first administrator, 24 characters at least. Without it one is made at the first start and printed once.
    admin_key: Option<Secret<String>> = "", Secret, value::admin_key;
    /// Key that encrypts stored secrets: 32 bytes in base64. Without it one is made in the data directory.
    master_key: Option<Secret<KeyBytes>> = "", Secret, value::master_key;
    /// Whether payloads are encrypted too, each with a key of its tenant: true or false. Those that are there stay as they are.
    encrypt_payloads: bool = "false", Switch, value::switch;
    /// Ranges that may be delivered to although they are not public, also over http://, such as 127.0.0.0/8.
    allow_targets: AddressRules = "", List, value::address_rules;
    /// Prefix of the NAT64 that this server's network is behind, such as 64:ff9b::/96: addresses under it are judged by the IPv4 address inside them.
    nat64_prefix: Option<Nat64Prefix> = "", Text, value::nat64_prefix;
    /// Name servers to ask for the addresses of targets, as IP addresses with or without a port; none: those of the machine.
    dns_servers: Vec<SocketAddr> = "", List, value::dns_servers;
    /// Lowest version of TLS that receivers have to speak: 1.2 or 1.3.
    tls_min_version: TlsVersion = "1.2", Text, value::tls_version;
    /// PEM file with certificates of authorities that are trusted for every receiver, in addition to the machine's.
    tls_ca_file: Option<PathBuf> = "", Text, value::optional(value::file);
    /// Whether the machine's certificate authorities are trusted: true or false. Without them, tls_ca_file is needed.
    tls_system_roots: bool = "true", Switch, value::switch;
    /// How log lines look: pretty, json, or auto: pretty on a terminal.
    log_format: LogFormat = "auto", Text, value::log_format;
    /// What is logged: error, warn, info, debug or trace, also by part, such as info,doorstep_engine=debug.
    log_level: String = "info", Text, value::log_level;
    /// Requests at once, over all destinations. One tenant alone gets a little less than half of them.
    in_flight_max: usize = "4096", Number, value::between(1, 65_536);
    /// Requests at once to one receiving host and port, over all destinations there; 0 for no such limit.
    per_host_max: usize = "256", Number, value::between(0, 65_536);
    /// Share of in_flight_max, in per cent, that is reserved for first attempts, and as much for retries.
    reserved_percent: usize = "20", Number, value::between(0, 50);
    /// Retry policy of destinations without one: standard, patient, brief, or a name from policies.
    default_policy: String = "standard", Text, value::name;
    /// Retry policies by name, for use beside standard, patient and brief: a table [policies.NAME] in the file, a JSON object elsewhere.
    policies: Presets = "", Json, value::policies;
    /// Time for one request to a destination without a timeout, in milliseconds.
    default_timeout_ms: Millis = "15000", Number, value::millis(100, 300_000);
    /// Requests at once to a destination without a limit.
    default_concurrency: u32 = "10", Number, value::between(1, 1_000);
    /// Requests a second to a destination without a rate limit.
    default_rate_per_second: u32 = "1000", Number, value::between(1, 100_000);
    /// Longest timeout that a destination may have, in milliseconds. Longer ones given earlier are cut to it.
    timeout_max_ms: Millis = "300000", Number, value::millis(100, 300_000);
    /// Most requests at once that a destination may have. Higher limits given earlier are cut to it.
    concurrency_max: u32 = "1000", Number, value::between(1, 1_000);
    /// Highest rate limit that a destination may have, in requests a second, and its largest burst. Higher ones given earlier are cut to it.
    rate_per_second_max: u32 = "100000", Number, value::between(1, 100_000);
    /// Longest wait that a receiver may ask for, with Retry-After and the like, in milliseconds.
    retry_after_max_ms: Millis = "86400000", Number, value::millis(1_000, 30 * 86_400_000);
    /// Waits after 429 without Retry-After, in milliseconds: one for each 429 in a row, the last one repeats.
    throttle_waits_ms: Vec<Millis> = "60000,300000,900000,3600000,21600000", List, value::waits;
    /// Transient failures in a row that open a destination's circuit breaker.
    breaker_failures_in_row: u32 = "10", Number, value::between(1, 10_000);
    /// Share of transient failures within a minute, in per cent, that opens the breaker if there were breaker_requests_min requests.
    breaker_failure_percent: u32 = "50", Number, value::between(1, 100);
    /// Requests within a minute below which breaker_failure_percent does not count.
    breaker_requests_min: u32 = "10", Number, value::between(1, 1_000_000);
    /// First pause of an open breaker before a probe, in milliseconds. Each further pause is twice as long.
    breaker_cool_down_ms: Millis = "30000", Number, value::millis(1_000, 86_400_000);
    /// Longest pause of an open breaker before a probe, in milliseconds.
    breaker_cool_down_max_ms: Millis = "600000", Number, value::millis(1_000, 86_400_000);
    /// Permanent answers (most 4xx) in a row that suspend a destination.
    quarantine_permanent_in_row: u32 = "100", Number, value::between(1, 1_000_000);
    /// Answers of 410 in a row that suspend a destination.
    quarantine_gone_in_row: u32 = "3", Number, value::between(1, 1_000_000);
    /// Ambiguous answers (404, 3xx, a blocked address) after which a delivery is rejected.
    ambiguous_attempts_max: u32 = "5", Number, value::between(1, 1_000);
    /// Bytes of a receiver's response body that are kept with an attempt.
    response_body_max_bytes: usize = "16384", Number, value::between(0, 65_536);
    /// Time to look up a receiver's name, in milliseconds.
    dns_timeout_ms: Millis = "5000", Number, value::millis(100, 60_000);
    /// Time to connect to a receiver, in milliseconds.
    connect_timeout_ms: Millis = "5000", Number, value::millis(100, 60_000);
    /// Time for the TLS handshake with a receiver, in milliseconds.
    tls_timeout_ms: Millis = "5000", Number, value::millis(100, 60_000);
    /// Time from a request to the end of the response headers, in milliseconds; none: whatever the destination's timeout allows.
    response_header_timeout_ms: Option<Millis> = "", Number, value::optional(value::millis(100, 300_000));
    /// Time from the end of the response headers to the end of the body, in milliseconds.
    response_body_timeout_ms: Millis = "5000", Number, value::millis(100, 60_000);
    /// Largest payload of an event, in bytes.
    payload_max_bytes: usize = "262144", Number, value::between(1_024, 16 * 1_024 * 1_024);
    /// Destinations that one tenant may have. Those that are there stay.
    destinations_per_tenant_max: usize = "1000", Number, value::between(1, 1_000_000);
    /// Work that the filters of one tenant may take for one event, in bytes compared. A destination whose filter would exceed it is refused; those that are there stay.
    filter_work_max: u64 = "268435456", Number, value::between(1_048_576, 1 << 40);
    /// Queued deliveries that one tenant may have, unless it has a quota of its own; more are refused with 429. 0 for no limit.
    queued_per_tenant_max: u64 = "10000000", Number, value::between(0, (1 << 53) - 1);
    /// Bytes of events and attempts that are stored for one tenant, unless it has a quota of its own; more are refused with 429. 0 for no limit; none: half of what is free on the data directory's disk and taken by the data, at the start.
    stored_bytes_per_tenant_max: Option<u64> = "", Number, value::optional(value::between(0, (1 << 53) - 1));
    /// Whether receivers must consent before anything is sent to a new destination or a changed URL, whatever the tenant chose: true or false. Destinations that exist are left as they are.
    require_verification: bool = "false", Switch, value::switch;
    /// Whether events of types that nobody has registered are refused: true or false.
    strict_event_types: bool = "false", Switch, value::switch;
    /// Events a second that a tenant without a rate of its own may send; none: as many as it likes.
    ingest_per_second: Option<u32> = "", Number, value::optional(value::between(1, 1_000_000));
    /// How long requests in flight may take to end when the server is stopped, in milliseconds.
    drain_timeout_ms: Millis = "30000", Number, value::millis(0, 600_000);
    /// Days for which delivered deliveries are kept.
    retain_delivered_days: u32 = "30", Number, value::between(1, 3_650);
    /// Days for which dead letters are kept.
    retain_dead_days: u32 = "90", Number, value::between(1, 3_650);
    /// Days for which attempts are kept, with what was sent and what came back.
    retain_attempts_days: u32 = "30", Number, value::between(1, 3_650);
    /// Days for which events are kept, with their payloads; those of unfinished deliveries stay as long as these.
    retain_events_days: u32 = "30", Number, value::between(1, 3_650);
    /// Days for which activity by the minute is kept.
    retain_activity_days: u32 = "90", Number, value::between(1, 3_650);
    /// Days for which the audit log is kept, and keys that have ended.
    retain_audit_days: u32 = "365", Number, value::between(1, 3_650);
}

fn read<T>(
    name: &'static str,
    shape: Shape,
    read: impl Fn(&str) -> Result<T, String>,
    given: &Givens,
    faults: &mut ConfigFaults,
) -> Option<T> {
    let Given { text, origin } = given.get(name)?;
    match read(text) {
        Ok(value) => Some(value),
        Err(instead) => {
            let shown = if shape == Shape::Secret { None } else { Some(text.as_str()) };
            faults.bad_value(name, shown, origin, &instead);
            None
        }
    }
}
