//! The operator's settings for connections to receivers: whom to trust, which name servers to ask, how long to wait, how much to keep.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use serde_json::{Value, json};

use crate::answers::every;
use crate::support::{Client, Home, NameServer, Receiver, Server, text};

const LOOPBACK: [&str; 2] = ["--allow-targets", "127.0.0.0/8"];

fn serve(home: &Home, options: &[&str]) -> Server {
    Server::start_with(home, &[&LOOPBACK, options].concat())
}

/// The first attempt of a new event to a new destination with these settings. What fails is not tried again while the test runs.
fn first_attempt(client: &mut Client, url: &str, settings: Value) -> Value {
    let tenant = client.tenant();
    let mut settings = settings;
    settings["policy"] = every(600_000, 3);
    let destination = text(&client.destination(&tenant, url, settings), "id");
    let event = client.event(&tenant, json!({}));
    let tried = client.delivery_when(&destination, &event, "tried", |delivery| delivery["attempts"][0].is_object());
    tried["attempts"][0].clone()
}

/// A certificate authority.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new([]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let root = STANDARD.encode(params.self_signed(&key).unwrap().der());
        let pem = format!("-----BEGIN CERTIFICATE-----\n{root}\n-----END CERTIFICATE-----\n");
        Self { issuer: rcgen::Issuer::new(params, key), pem }
    }

    /// A receiver with a certificate of this authority that speaks these versions.
    fn receiver(&self, versions: &[&'static SupportedProtocolVersion]) -> Receiver {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        Receiver::secure(Arc::new(config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap()))
    }

    /// Its certificate in a file.
    fn file(&self, home: &Home, name: &str) -> PathBuf {
        let path = home.path().join(name);
        std::fs::write(&path, &self.pem).unwrap();
        path
    }
}

#[test]
fn receivers_are_believed_by_the_authorities_that_the_operator_chose() {
    let (machines, operators) = (Authority::new(), Authority::new());
    let receivers = [machines.receiver(&[&TLS13]), operators.receiver(&[&TLS13])];
    let given = ["--tls-ca-file", "operators.pem"];
    let only = ["--tls-ca-file", "operators.pem", "--tls-system-roots", "false"];
    let (refused, answered) = (json!("tls_failed"), json!(200));
    for (options, expected) in
        [(&[][..], [&answered, &refused]), (&given, [&answered, &answered]), (&only, [&refused, &answered])]
    {
        let home = Home::new();
        operators.file(&home, "operators.pem");
        let mut command = Server::command(&home, &[&LOOPBACK, options].concat());
        // On Linux this is where the machine's authorities are looked for.
        command.env("SSL_CERT_FILE", machines.file(&home, "machines.pem"));
        let server = Server::spawn(command, &home);
        let before = receivers.each_ref().map(|receiver| receiver.requests.all().len());
        for ((receiver, expected), before) in receivers.iter().zip(expected).zip(before) {
            let attempt = first_attempt(&mut server.client(), &receiver.secure_url(), json!({}));
            let found = if attempt["error"].is_null() { &attempt["status_code"] } else { &attempt["error"] };
            assert_eq!(found, expected, "{options:?}: {attempt}");
            let n_got = receiver.requests.all().len() - before;
            assert_eq!(
                n_got,
                usize::from(*expected == answered),
                "{options:?}: nothing is sent to whom nobody believes"
            );
        }
    }
}

#[test]
fn receivers_speak_the_version_of_tls_that_the_operator_asks_for() {
    let authority = Authority::new();
    let home = Home::new();
    let file = authority.file(&home, "ca.pem");
    let (older, newer) = (authority.receiver(&[&TLS12]), authority.receiver(&[&TLS13]));
    for (least, of_older) in [("1.2", json!(null)), ("1.3", json!("tls_failed"))] {
        let server = serve(&home, &["--tls-ca-file", file.to_str().unwrap(), "--tls-min-version", least]);
        let mut client = server.client();
        assert_eq!(first_attempt(&mut client, &older.secure_url(), json!({}))["error"], of_older, "{least}");
        assert_eq!(first_attempt(&mut client, &newer.secure_url(), json!({}))["status_code"], 200, "{least}");
        server.kill();
    }
    assert_eq!((older.requests.all().len(), newer.requests.all().len()), (1, 2));
}

#[test]
fn names_are_looked_up_with_the_name_servers_that_the_operator_gave() {
    let (names, receiver, home) = (NameServer::start(), Receiver::start(), Home::new());
    names.say(&[Ipv4Addr::LOCALHOST.into()]);
    let server = serve(&home, &["--dns-servers", &names.address.to_string()]);
    let url = format!("http://hook.example:{}/named", receiver.address.port());
    let attempt = first_attempt(&mut server.client(), &url, json!({}));
    assert_eq!(attempt["status_code"], 200, "{attempt}");
    assert_eq!(receiver.requests.all()[0].header("host"), Some(&url[7..url.len() - 6]));
    assert!(names.n_questions() > 0);
    names.say(&[]);
    let attempt = first_attempt(&mut server.client(), "http://nowhere.example/", json!({}));
    assert_eq!(attempt["error"], "dns_failed", "{attempt}");
}

/// Documentation addresses lead nowhere, on any network: what is not blocked fails in another way.
#[test]
fn behind_nat64_an_address_is_judged_by_the_ipv4_address_inside_it() {
    const PREFIX: &str = "2001:db8:64::/96";
    let (inside_allowed, inside_forbidden) = ("2001:db8:64::c000:201", "2001:db8:64::a9fe:a9fe");
    let names = NameServer::start();
    let dns = names.address.to_string();
    for prefix in [None, Some(PREFIX)] {
        let home = Home::new();
        let mut options = vec!["--allow-targets", "192.0.2.0/24", "--dns-servers", &dns, "--connect-timeout-ms", "100"];
        options.extend(prefix.iter().flat_map(|prefix| ["--nat64-prefix", prefix]));
        let server = Server::start_with(&home, &options);
        let mut client = server.client();
        let tenant = client.tenant();
        for (address, is_allowed) in [(inside_allowed, prefix.is_some()), (inside_forbidden, false)] {
            let literal = json!({"tenant_id": tenant, "url": format!("https://[{address}]/")});
            let made = client.post("/v1/destinations", literal);
            assert_eq!(made.status, if is_allowed { 201 } else { 422 }, "{prefix:?} {address}: {}", made.text());
            names.say(&[address.parse::<IpAddr>().unwrap()]);
            let attempt = first_attempt(&mut client, "https://hook.example/", json!({}));
            let is_blocked = attempt["error"] == "address_blocked";
            assert_eq!(is_blocked, !is_allowed, "{prefix:?} {address}: {attempt}");
        }
    }
}

/// The destination's own timeout is longer than any test waits.
#[test]
fn a_receiver_that_never_answers_is_given_up_after_the_time_for_its_head() {
    let home = Home::new();
    let silent = Receiver::answering(|_, _| {
        loop {
            thread::park();
        }
    });
    let server = serve(&home, &["--response-header-timeout-ms", "100"]);
    let attempt = first_attempt(&mut server.client(), &silent.url("/"), json!({"timeout_ms": 300_000}));
    assert_eq!(attempt["error"], "answer_timed_out", "{attempt}");
}

/// Both waits are longer than the default, so that what is measured cannot be due to a slow machine.
#[test]
fn a_body_that_hangs_after_the_head_is_waited_for_as_long_as_configured() {
    const WAIT_MS: u64 = 5_500;
    let home = Home::new();
    let stuck = Receiver::answering(|peer, _| {
        peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n01234")?;
        loop {
            thread::park();
        }
    });
    let server = serve(&home, &["--response-body-timeout-ms", &WAIT_MS.to_string()]);
    let attempt = first_attempt(&mut server.client(), &stuck.url("/"), json!({"timeout_ms": 300_000}));
    assert_eq!((&attempt["status_code"], &attempt["response"]["truncated"]), (&json!(200), &json!(true)), "{attempt}");
    assert_eq!(attempt["response"]["body"], "01234");
    assert!(attempt["timings"]["total_ms"].as_u64().unwrap() >= WAIT_MS, "{attempt}");
}

#[test]
fn of_a_response_body_as_much_is_kept_as_configured() {
    let receiver = Receiver::answering(|peer, request| {
        let body = request.path.trim_start_matches('/');
        write!(peer, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    });
    for (limit, cases) in [
        ("5", &[("1234", "1234", false), ("12345", "12345", false), ("123456", "12345", true)][..]),
        ("0", &[("", "", false), ("1", "", true)]),
    ] {
        let home = Home::new();
        let server = serve(&home, &["--response-body-max-bytes", limit]);
        for (sent, kept, is_cut) in cases {
            let attempt = first_attempt(&mut server.client(), &receiver.url(&format!("/{sent}")), json!({}));
            let response = &attempt["response"];
            let found = (response["body"].as_str().unwrap_or_default(), &response["truncated"]);
            assert_eq!(found, (*kept, &json!(is_cut)), "{limit}: {attempt}");
        }
    }
}

/// What `doorstep check` says of TLS and of name servers, and its exit code.
fn checked(home: &Home, options: &[&str], env: &[(&str, &Path)]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doorstep"));
    command.args(["check", "--listen", "127.0.0.1:0", "--data-dir"]).arg(home.data()).args(options);
    let output = command.current_dir(home.path()).env_clear().envs(env.iter().copied()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    let about = said
        .lines()
        .filter(|line| ["TLS", "name servers", "dns_servers", "tls_"].iter().any(|word| line.contains(word)));
    (output.status.code(), about.collect::<Vec<_>>().join("\n"))
}

#[test]
fn a_check_names_the_setting_and_the_file_that_connections_cannot_be_made_with() {
    let (home, authority, names) = (Home::new(), Authority::new(), NameServer::start());
    // The port of a name server that has gone.
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let machines = authority.file(&home, "machines.pem");
    authority.file(&home, "good.pem");
    std::fs::write(home.path().join("empty.pem"), "").unwrap();
    let mut broken = authority.pem.clone();
    broken.replace_range(40..60, &"A".repeat(20));
    std::fs::write(home.path().join("broken.pem"), broken).unwrap();
    let answering = names.address.to_string();
    let cases: &[(&[&str], i32, &str)] = &[
        (
            &[],
            0,
            "ok    TLS             TLS 1.2 or 1.3; trusts the machine's certificate authorities\nok    name servers    the machine's",
        ),
        (
            &["--tls-ca-file", "good.pem", "--tls-min-version", "1.3"],
            0,
            "TLS 1.3; trusts the machine's certificate authorities, and good.pem (certificates: 1)",
        ),
        (
            &["--tls-ca-file", "good.pem", "--tls-system-roots", "false"],
            0,
            "TLS 1.2 or 1.3; trusts good.pem alone (certificates: 1)",
        ),
        (
            &["--tls-ca-file", "missing.pem"],
            1,
            "FAIL  TLS             tls_ca_file missing.pem cannot be read: No such file or directory (os error 2); name a file that this user can read",
        ),
        (
            &["--tls-ca-file", "empty.pem"],
            1,
            "FAIL  TLS             tls_ca_file empty.pem cannot be used: the file holds no certificate: give PEM",
        ),
        (
            &["--tls-ca-file", "broken.pem"],
            1,
            "FAIL  TLS             tls_ca_file broken.pem cannot be used: the file holds what is not a certificate, which has to be taken out",
        ),
        (
            &["--tls-ca-file", "/dev/zero"],
            1,
            "FAIL  TLS             tls_ca_file /dev/zero cannot be used: the file is longer than 4194304 bytes; leave some certificates out",
        ),
        (
            &["--tls-system-roots", "false"],
            3,
            "tls_system_roots is `false`, so no receiver's certificate would be trusted: set tls_ca_file too",
        ),
        (&["--dns-servers", &answering], 0, "ok    name servers    all of dns_servers answer"),
        (&["--dns-servers", &closed], 0, "warn  name servers    of dns_servers, these do not answer: 127.0.0.1:"),
        (
            &["--dns-servers", "ns.example"],
            3,
            "dns_servers is `ns.example` (--dns-servers): `ns.example` is no name server; use 192.0.2.53",
        ),
        (
            &["--dns-servers", "192.0.2.53:0"],
            3,
            "dns_servers is `192.0.2.53:0` (--dns-servers): `192.0.2.53:0` is no name server",
        ),
    ];
    for (options, code, told) in cases {
        let (ended, said) = checked(&home, options, &[("SSL_CERT_FILE", &machines)]);
        assert_eq!(ended, Some(*code), "{options:?}: {said}");
        assert!(said.contains(told), "{options:?}: {said}");
    }
    let nothing = home.path().join("empty.pem");
    let (ended, said) = checked(&home, &[], &[("SSL_CERT_FILE", &nothing), ("SSL_CERT_DIR", &home.data())]);
    assert_eq!(ended, Some(1), "{said}");
    assert!(said.contains("FAIL  TLS             the machine has no certificate authorities to trust: install its CA certificates, or set tls_ca_file"), "{said}");
    assert!(!home.data().exists(), "a look makes nothing");

    let refused = Server::command(&home, &["--tls-ca-file", "missing.pem"]).current_dir(home.path()).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("tls_ca_file missing.pem cannot be read: No such file"), "{said}");
}
