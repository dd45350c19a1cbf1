//! The operator's settings for connections to receivers: whom to trust, which name servers to ask, how long to wait, how much to keep.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
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
