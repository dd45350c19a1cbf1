use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Parser;
use doorstep_core::address::AddressRules;
use doorstep_core::time::Millis;
use doorstep_engine::sender::TlsVersion;
use tempfile::TempDir;

use super::value::LogFormat;
use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    config: Args,
}

fn flags(words: &[&str]) -> Args {
    Line::parse_from(std::iter::once("doorstep").chain(words.iter().copied())).config
}

/// A directory with this `doorstep.toml`.
struct Desk {
    dir: TempDir,
    toml: PathBuf,
}

fn desk(toml: &str) -> Desk {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("doorstep.toml");
    fs::write(&path, toml).unwrap();
    Desk { dir, toml: path }
}

impl Desk {
    fn load(&self, words: &[&str], env: &[(&str, &str)]) -> Result<Loaded, ConfigFaults> {
        load(&flags(words), owned(env), &[&self.toml])
    }

    /// What the faults say, without the directory's name.
    fn faults(&self, words: &[&str], env: &[(&str, &str)]) -> String {
        let text = self.load(words, env).unwrap_err().to_string();
        text.replace(&format!("{}/", self.dir.path().display()), "")
    }
}

fn owned(env: &[(&str, &str)]) -> Vec<(String, String)> {
    env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn shown<'a>(loaded: &'a Loaded, key: &str) -> &'a Setting {
    loaded.settings.iter().find(|setting| setting.key.name == key).unwrap()
}

#[test]
fn without_anything_the_defaults_count() {
    let loaded = load(&Args::default(), [], &[Path::new("/nowhere/doorstep.toml")]).unwrap();
    let config = &loaded.config;
    assert_eq!(config.listen, "127.0.0.1:8080".parse::<SocketAddr>().unwrap());
    assert_eq!(config.data_dir, PathBuf::from("./doorstep-data"));
    assert_eq!((&config.database_url, &config.admin_key, &config.master_key), (&None, &None, &None));
    assert!(!config.allow_targets.makes_exceptions());
    assert_eq!((config.log_format, config.log_level.as_str()), (LogFormat::Auto, "info"));
    assert_eq!((config.in_flight_max, config.payload_max_bytes), (4_096, 262_144));
    assert_eq!(config.drain_timeout_ms, Millis::from_secs(30));
    assert_eq!(loaded.file, None);
    assert_eq!(loaded.settings.len(), KEYS.len());
    assert!(loaded.settings.iter().all(|setting| setting.origin == Origin::Default));
}

#[test]
fn a_flag_beats_the_environment_and_that_beats_the_file() {
    let desk = desk("\nlisten = '127.0.0.1:1'\nin_flight_max = 1_0\nlog_format = 'json'\n");
    let env = [("DOORSTEP_LISTEN", "127.0.0.1:2"), ("DOORSTEP_IN_FLIGHT_MAX", "20"), ("HOME", "/root")];
    let loaded = desk.load(&["--listen", "127.0.0.1:3"], &env).unwrap();
    assert_eq!(loaded.config.listen.port(), 3);
    assert_eq!(loaded.config.in_flight_max, 20);
    assert_eq!(loaded.config.log_format, LogFormat::Json);
    assert_eq!(shown(&loaded, "listen").origin, Origin::Flag { name: "--listen".to_owned() });
    assert_eq!(shown(&loaded, "in_flight_max").origin, Origin::Env { name: "DOORSTEP_IN_FLIGHT_MAX".to_owned() });
    assert_eq!(shown(&loaded, "log_format").origin, Origin::File { path: desk.toml.clone(), line: 4 });
    assert_eq!(loaded.file.as_ref(), Some(&desk.toml));
}

#[test]
fn the_file_is_the_named_one_or_the_first_that_is_there() {
    let (named, found) = (desk("in_flight_max = 7"), desk("in_flight_max = 8"));
    let name = named.toml.to_str().unwrap();
    let by = |words: &[&str], env: &[(&str, &str)]| found.load(words, env).unwrap().config.in_flight_max;
    assert_eq!(by(&[], &[]), 8);
    assert_eq!(by(&["--config", name], &[]), 7);
    assert_eq!(by(&[], &[("DOORSTEP_CONFIG", name)]), 7);
    assert_eq!(by(&["--config", name], &[("DOORSTEP_CONFIG", "/nowhere")]), 7);
    let missing = found.faults(&["--config", "/nowhere/at.toml"], &[]);
    assert!(missing.contains("the configuration file /nowhere/at.toml cannot be read"), "{missing}");
}

#[test]
fn a_secret_may_come_from_a_file_and_is_never_shown() {
    let desk = desk("");
    let path = desk.dir.path().join("key");
    fs::write(&path, "a-key-of-the-administrator\n").unwrap();
    let path = path.to_str().unwrap();
    let loaded = desk.load(&[], &[("DOORSTEP_ADMIN_KEY_FILE", path)]).unwrap();
    assert_eq!(loaded.config.admin_key.as_ref().map(|key| key.0.as_str()), Some("a-key-of-the-administrator"));
    assert_eq!(shown(&loaded, "admin_key").shown.as_deref(), Some("********"));
    let name = "DOORSTEP_ADMIN_KEY_FILE".to_owned();
    assert_eq!(shown(&loaded, "admin_key").origin, Origin::EnvFile { name, path: path.into() });
    assert!(!format!("{loaded:?}").contains("a-key-of"));

    let both = desk.faults(&[], &[("DOORSTEP_ADMIN_KEY_FILE", path), ("DOORSTEP_ADMIN_KEY", "x")]);
    assert!(both.contains("both `DOORSTEP_ADMIN_KEY` and `DOORSTEP_ADMIN_KEY_FILE` are set"), "{both}");
    let lost = desk.faults(&[], &[("DOORSTEP_ADMIN_KEY_FILE", "/nowhere/key")]);
    assert!(lost.contains("`DOORSTEP_ADMIN_KEY_FILE` names /nowhere/key, which cannot be read"), "{lost}");
}

#[test]
fn a_secret_is_refused_as_a_flag_and_not_repeated() {
    for (flag, value, told) in [
        (
            "--admin-key",
            "hunter2-hunter2-hunter2-hunter2",
            "DOORSTEP_ADMIN_KEY, or name a file that holds it with DOORSTEP_ADMIN_KEY_FILE",
        ),
        ("--master-key", "hunter2", "set DOORSTEP_MASTER_KEY, or"),
        ("--database-url", "postgres://u:hunter2@db/x", "set DOORSTEP_DATABASE_URL, or"),
    ] {
        let faults = desk("").faults(&[flag, value], &[]);
        assert!(faults.contains(&format!("{flag} is not accepted")) && faults.contains(told), "{faults}");
        assert!(!faults.contains("hunter2"), "{faults}");
    }
}

#[test]
fn all_faults_are_told_together_with_place_and_remedy() {
    let desk = desk("payload_max_bytes = 5\n\nlissen = '127.0.0.1:1'\nlog_level = true\n");
    let env = [("DOORSTEP_LOG_FORMT", "json"), ("DOORSTEP_MASTER_KEY", "hunter2")];
    let faults = desk.faults(&["--listen", "8080"], &env);
    assert_eq!(
        faults,
        "the configuration is not valid\
         \n  - unknown variable `DOORSTEP_LOG_FORMT`: did you mean `DOORSTEP_LOG_FORMAT`?\
         \n  - unknown key `lissen` in doorstep.toml line 3: did you mean `listen`?\
         \n  - log_level in doorstep.toml line 4 cannot be of type boolean\
         \n  - listen is `8080` (--listen): give an IP address and a port, such as 127.0.0.1:8080 or [::]:8080\
         \n  - master_key (DOORSTEP_MASTER_KEY): give 32 bytes in base64, as `openssl rand -base64 32` prints them\
         \n  - payload_max_bytes is `5` (doorstep.toml line 1): give a whole number from 1024 to 16777216"
    );
}

#[test]
fn each_bad_value_is_answered_with_what_would_be_right() {
    let desk = desk("");
    for (name, value, told) in [
        ("DOORSTEP_LISTEN", "localhost:8080", "IP address and a port"),
        ("DOORSTEP_DATA_DIR", "", "path of a directory"),
        ("DOORSTEP_LOG_LEVEL", "inof", "`inof` is no level"),
        ("DOORSTEP_LOG_LEVEL", "warn,doorstep_engine", "`doorstep_engine` is no level"),
        ("DOORSTEP_LOG_LEVEL", "info,", "use error, warn, info, debug or trace"),
        ("DOORSTEP_THROTTLE_WAITS_MS", "", "give 1 to 16 waits"),
        ("DOORSTEP_THROTTLE_WAITS_MS", "60000,5", "give a whole number from 1000 to 2592000000, for each wait"),
        ("DOORSTEP_POLICIES", "{\"standard\": {\"strategy\": \"fixed\"}}", "\"standard\" comes with Doorstep"),
        ("DOORSTEP_DEFAULT_POLICY", "", "a policy's name, such as standard"),
        ("DOORSTEP_DATABASE_URL", "postgres://u:hunter2@db/x", "PostgreSQL comes in a later release"),
        ("DOORSTEP_DATABASE_URL", "mysql://u:hunter2@db/x", "must start with postgres://"),
        ("DOORSTEP_ADMIN_KEY", "hunter two and a few characters more", "printable ASCII characters without spaces"),
        ("DOORSTEP_ADMIN_KEY", "only-23-characters-long", "24 to 256 printable ASCII characters"),
        ("DOORSTEP_METRICS_LISTEN", "9090", "IP address and a port"),
        ("DOORSTEP_MASTER_KEY", "aHVudGVyMg==", "32 bytes in base64"),
        ("DOORSTEP_ALLOW_TARGETS", "10.0.0.0/8,db.internal", "`db.internal` is neither an address nor a CIDR"),
        ("DOORSTEP_LOG_FORMAT", "xml", "auto, pretty or json"),
        ("DOORSTEP_LOG_LEVEL", "=loud=", "error, warn, info"),
        ("DOORSTEP_IN_FLIGHT_MAX", "0", "from 1 to 65536"),
        ("DOORSTEP_IN_FLIGHT_MAX", "-1", "from 1 to 65536"),
        ("DOORSTEP_DRAIN_TIMEOUT_MS", "30s", "from 0 to 600000"),
        ("DOORSTEP_TRUSTED_PROXIES", "10.0.0.1, proxy.local", "`proxy.local` is neither an address nor a CIDR"),
        ("DOORSTEP_TRUSTED_PROXIES", "10.0.0.1/8", "bits set behind its prefix"),
        ("DOORSTEP_RETAIN_DEAD_DAYS", "3651", "from 1 to 3650"),
    ] {
        let faults = desk.faults(&[], &[(name, value)]);
        assert!(faults.contains(told) && faults.contains(name), "{name}={value}: {faults}");
        assert!(!faults.contains("hunter2"), "{faults}");
    }
}

#[test]
fn ranges_are_a_list_in_the_file_and_text_elsewhere() {
    for toml in ["allow_targets = ['10.0.0.0/8', '127.0.0.1']", "allow_targets = '10.0.0.0/8, 127.0.0.1'"] {
        let loaded = desk(toml).load(&[], &[]).unwrap();
        let expected = doorstep_core::address::AddressRules::default().allowing("10.0.0.0/8 127.0.0.1").unwrap();
        assert_eq!(loaded.config.allow_targets, expected, "{toml}");
    }
}

#[test]
fn a_broken_file_is_told_by_its_line_and_the_rest_is_still_checked() {
    let faults = desk("lissen = 1\nlog_format = \"json\nin_flight_max = 0\n").faults(&[], &[]);
    for told in ["unknown key `lissen` in doorstep.toml line 1", "doorstep.toml line 2: ", "in_flight_max is `0`"] {
        assert!(faults.contains(told), "{faults}");
    }
    let table = desk("[listen]\nport = 1\n").faults(&[], &[]);
    assert!(table.contains("listen in doorstep.toml line 1 cannot be of type table"), "{table}");
}

#[test]
fn variables_of_other_commands_and_of_kubernetes_are_left_alone() {
    let env = [
        ("DOORSTEP_URL", "http://x"),
        ("DOORSTEP_API_KEY", "k"),
        ("DOORSTEP_API_KEY_FILE", "key"),
        ("DOORSTEP_LISTEN_SECRET", "whsec_"),
        ("DOORSTEP_SIGNING_SECRET", "whsec_"),
        ("DOORSTEP_WEB_DIST", "dist"),
        ("DOORSTEP_SERVICE_HOST", "10.0.0.1"),
        ("DOORSTEP_SERVICE_PORT_HTTP", "8080"),
        ("DOORSTEP_PORT", "tcp://10.0.0.1:8080"),
        ("DOORSTEP_PORT_8080_TCP_ADDR", "10.0.0.1"),
    ];
    desk("").load(&[], &env).unwrap();
    assert!(desk("").faults(&[], &[("DOORSTEP_PORT", "9000")]).contains("unknown variable `DOORSTEP_PORT`"));
}

#[test]
fn the_example_holds_every_key_at_its_default() {
    let example = example::example();
    let set: String = example
        .lines()
        .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line))
        .map(|line| format!("{line}\n"))
        .collect();
    for toml in [&example, &set] {
        let loaded = desk(toml).load(&[], &[]).unwrap();
        let defaults = load(&Args::default(), [], &[]).unwrap();
        assert_eq!(format!("{:?}", loaded.config), format!("{:?}", defaults.config));
    }
    let loaded = desk(&set).load(&[], &[]).unwrap();
    let from_file = |setting: &&Setting| matches!(setting.origin, Origin::File { .. });
    assert_eq!(loaded.settings.iter().filter(from_file).count(), KEYS.len());
}

#[test]
fn the_page_lists_every_key_as_it_is() {
    let page = include_str!("../../../../docs/reference/configuration.md");
    for key in KEYS {
        let default = if key.default.is_empty() { "none".to_owned() } else { format!("`{}`", key.default) };
        let (name, env, flag, about) = (key.name, key.env(), key.flag(), key.about());
        let flag = if key.shape == Shape::Secret { "refused".to_owned() } else { format!("`--{flag}`") };
        let row = format!("| `{name}` | `{env}` | {flag} | {default} | {about} |");
        assert!(page.contains(&row), "missing on the page:\n{row}");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, KEYS.len(), "the page lists a key that is not there");
}

#[test]
fn settings_of_connections_to_receivers_are_read_or_refused_with_what_would_be_right() {
    let desk =
        desk("dns_servers = ['192.0.2.53', '[2001:db8::53]:5353']\ntls_min_version = '1.3'\ntls_ca_file = 'own.pem'\n");
    let config = desk.load(&["--nat64-prefix", "64:ff9b::/96"], &[]).unwrap().config;
    let servers: Vec<SocketAddr> = ["192.0.2.53:53", "[2001:db8::53]:5353"].map(|one| one.parse().unwrap()).into();
    assert_eq!(config.dns_servers, servers);
    assert_eq!((config.tls_min_version, config.tls_ca_file), (TlsVersion::V1_3, Some(PathBuf::from("own.pem"))));
    let rules = config.nat64_prefix.unwrap().applied_to(AddressRules::default()).unwrap();
    assert_eq!(rules, AddressRules::default().behind_nat64("64:ff9b::/96").unwrap());
    for (flag, value, word) in [
        ("--nat64-prefix", "64:ff9b::/95", "prefix"),
        ("--dns-servers", "ns.example", "ns.example"),
        ("--dns-servers", "1.1.1.1,1.1.1.2,1.1.1.3,1.1.1.4,1.1.1.5,1.1.1.6,1.1.1.7,1.1.1.8,1.1.1.9", "at most 8"),
        ("--tls-min-version", "1.1", "use 1.2 or 1.3"),
        ("--tls-system-roots", "maybe", "use true or false"),
    ] {
        let faults = desk.faults(&[flag, value], &[]);
        assert!(faults.contains(word), "{faults}");
    }
}

#[test]
fn what_destinations_get_by_default_is_what_core_says() {
    let loaded = load(&Args::default(), [], &[Path::new("/nowhere/doorstep.toml")]).unwrap();
    assert_eq!(loaded.config.defaults(), doorstep_core::defaults::Defaults::default());
    assert_eq!(loaded.config.deadlines(), doorstep_engine::sender::Deadlines::default());
    assert_eq!(loaded.config.response_body_max_bytes, doorstep_engine::sender::BODY_BYTES_MAX);
    let scheduler = doorstep_core::scheduler::SchedulerLimits::default();
    assert_eq!(loaded.config.reserved_percent, scheduler.reserved_percent);
}

#[test]
fn policies_are_a_table_in_the_file_and_an_object_elsewhere() {
    let desk = desk(
        "default_policy = 'weekend'\n[policies.weekend]\nstrategy = 'schedule'\ndelays_ms = [60_000, 0x1000]\njitter = 'none'\n",
    );
    let of_file = desk.load(&[], &[]).unwrap();
    let policy = of_file.config.policies.get("weekend").unwrap();
    assert_eq!(policy.delay(2, Millis::ZERO, doorstep_core::dice::Jitter::LOWEST), Millis(4_096));
    assert_eq!(shown(&of_file, "policies").origin, Origin::File { path: desk.toml.clone(), line: 2 });
    let object = r#"{"weekend": {"strategy": "fixed", "base_ms": 5000, "jitter": "none"}}"#;
    let of_env = desk.load(&[], &[("DOORSTEP_POLICIES", object)]).unwrap();
    let policy = of_env.config.policies.get("weekend").unwrap();
    assert_eq!(policy.delay(2, Millis::ZERO, doorstep_core::dice::Jitter::LOWEST), Millis(5_000));
}

#[test]
fn settings_that_contradict_each_other_are_refused_together() {
    let desk = desk("default_policy = 'weekend'\ndefault_concurrency = 20\nconcurrency_max = 10\n");
    let env = [("DOORSTEP_TIMEOUT_MAX_MS", "5000"), ("DOORSTEP_BREAKER_COOL_DOWN_MAX_MS", "1000")];
    let faults = desk.faults(&["--rate-per-second-max", "5"], &env);
    assert_eq!(
        faults,
        "the configuration is not valid\
         \n  - default_policy is `weekend`, and there is no such policy: use one of standard, patient, brief\
         \n  - default_timeout_ms is `15000`, which is more than timeout_max_ms, `5000`: lower it, or raise timeout_max_ms\
         \n  - default_concurrency is `20`, which is more than concurrency_max, `10`: lower it, or raise concurrency_max\
         \n  - default_rate_per_second is `1000`, which is more than rate_per_second_max, `5`: lower it, or raise rate_per_second_max\
         \n  - breaker_cool_down_ms is `30000`, which is more than breaker_cool_down_max_ms, `1000`: lower it, or raise breaker_cool_down_max_ms"
    );
}
