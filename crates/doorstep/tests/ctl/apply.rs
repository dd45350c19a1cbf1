//! `doorstep apply`: a file, and what there is.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::{Server, run};

const FILE: &str = r#"
tenants:
  - name: Acme
    weight: 2
destinations:
  - tenant: Acme
    name: billing
    url: http://127.0.0.1:9/billing
    event_types: [invoice.*, a.b]
    filter: {amount: {gt: 5}}
    policy: {strategy: fixed, base_ms: 5000}
    concurrency: 4
    rate_limit: {per_second: 4.1}
    signing: {also: [stripe, github]}
    ordering: by_key
    timeout_ms: 5000
    status_overrides: {404: transient}
    headers: {authorization: Bearer hush}
    payload_mode: full
  - tenant: Acme
    name: crm
    url: http://127.0.0.1:9
    policy: patient
"#;

#[test]
fn a_file_is_applied_once_and_then_there_is_nothing_to_do() {
    let server = Server::start();
    let file = server.directory.path().join("doorstep.yaml");
    fs::write(&file, FILE).unwrap();
    let apply = |more: &[&str]| server.run(&[&["apply", "-f", "doorstep.yaml"], more].concat());

    let plan = apply(&["--dry-run"]);
    assert!(plan.ok().starts_with("+ tenant Acme\n    weight: 2\n+ destination Acme/billing\n"), "{}", plan.ok());
    assert!(plan.told().contains("3 to do") && !plan.ok().contains("hush") && !plan.ok().contains("whsec_"));
    assert_eq!(server.run(&["tenants", "list", "-q"]).ok(), "", "a dry run does nothing");

    let first = apply(&[]);
    assert_eq!(first.ok().matches("signing secret, shown this once: whsec_").count(), 2, "{}", first.ok());
    let second = apply(&[]);
    assert_eq!(second.ok(), "= tenant Acme\n= destination Acme/billing\n= destination Acme/crm\n");
    assert!(second.told().contains("nothing to do"));
    assert_eq!(apply(&["-q"]).ok(), "");

    fs::write(&file, FILE.replace("concurrency: 4", "concurrency: 8").replace("policy: patient", "policy: brief"))
        .unwrap();
    let changes =
        "= tenant Acme\n~ destination Acme/billing\n    concurrency: 4 → 8\n~ destination Acme/crm\n    policy: ";
    assert!(apply(&["--dry-run"]).ok().starts_with(changes), "{}", apply(&["--dry-run"]).ok());
    let lines = apply(&["--json"]).lines();
    let actions: Vec<_> = lines.iter().map(|line| line["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["keep", "change", "change"]);
    assert_eq!(lines[1]["changes"]["concurrency"]["after"], 8);
    assert!(apply(&[]).told().contains("nothing to do"));
    let again = apply(&["--rewrite-secrets"]);
    assert!(again.ok().contains("headers: *** → ***"), "{}", again.ok());
}

#[test]
fn a_destination_moves_with_its_headers() {
    let server = Server::start();
    let file = server.directory.path().join("doorstep.yaml");
    let apply = || server.run(&["apply", "-f", "doorstep.yaml"]);
    fs::write(&file, FILE).unwrap();
    apply().ok();
    fs::write(&file, FILE.replace("127.0.0.1:9/billing", "127.0.0.2:9/billing")).unwrap();
    let moved = apply();
    assert!(moved.ok().contains("    headers: *** → ***\n    url: http://127.0.0.1:9/billing → "), "{}", moved.ok());
    assert!(apply().told().contains("nothing to do"));
}

/// A new certificate, which is also the only root.
fn with_tls() -> Value {
    let made = rcgen::generate_simple_self_signed(["doorstep".to_owned()]).unwrap();
    let pem =
        |label: &str, der: &[u8]| format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der));
    let certificate = pem("CERTIFICATE", made.cert.der());
    let key = pem("PRIVATE KEY", made.signing_key.serialized_der());
    json!({"client_certificate_pem": certificate, "client_key_pem": key, "ca_pem": certificate})
}

#[test]
fn another_certificate_and_another_schema_are_differences() {
    let server = Server::start();
    let apply = |tls: &Value, schema: &Value| {
        let wanted = json!({
            "tenants": [{"name": "Acme"}],
            "event_types": [{"name": "a.b", "schemas": {"1": schema}}],
            "destinations": [{"tenant": "Acme", "name": "billing", "url": "http://127.0.0.1:9/", "tls": tls}],
        });
        fs::write(server.directory.path().join("doorstep.json"), wanted.to_string()).unwrap();
        server.run(&["apply", "-f", "doorstep.json"])
    };
    let (first, second, schema) = (with_tls(), with_tls(), json!({"type": "object", "required": ["a"]}));
    apply(&first, &schema).ok();
    assert!(apply(&first, &schema).told().contains("nothing to do"));

    let mut root = first.clone();
    root["ca_pem"] = second["ca_pem"].clone();
    for tls in [&root, &second] {
        let changed = apply(tls, &schema);
        assert!(changed.ok().ends_with("~ destination Acme/billing\n    tls: *** → ***\n"), "{}", changed.ok());
        assert!(apply(tls, &schema).told().contains("nothing to do"));
    }

    // A version stays what it is, and whoever thinks otherwise has to be told.
    let refused = apply(&second, &json!({"type": "object"}));
    assert!(
        refused.ended(1).starts_with("= tenant Acme\n") && refused.told().contains("version"),
        "{}",
        refused.told()
    );
}

#[test]
fn a_file_that_makes_no_sense_says_where() {
    let server = Server::start();
    let file = server.directory.path().join("doorstep.yaml");
    for (text, code, told) in [
        ("tenannts: []", 3, "tenannts"),
        ("destinations: [{tenant: Acme, name: a, url: 'http://127.0.0.1:9/'}]", 4, "there is no tenant Acme"),
        ("tenants: [{name: Acme, wait: 1}]", 1, "wait"),
    ] {
        fs::write(&file, text).unwrap();
        let ran = server.run(&["apply", "-f", "doorstep.yaml"]);
        assert_eq!(ran.ended(code), "", "{text}");
        assert!(ran.told().contains(told), "{text}: {}", ran.told());
    }
    server.run(&["tenants", "create", "Twin"]).ok();
    server.run(&["tenants", "create", "Twin"]).ok();
    fs::write(&file, "tenants: [{name: Twin}]").unwrap();
    server.run(&["apply", "-f", "doorstep.yaml"]).ended(6);
    server.run(&["apply", "-f", "missing.yaml"]).ended(1);
}

/// Answers as a server does whose only tenant was changed after it had been listed, and tells what it was asked.
fn with_a_changed_tenant() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let (asked, questions) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let head: Vec<String> = (&mut stream).lines().map_while(Result::ok).take_while(|l| !l.is_empty()).collect();
            let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            stream.read_exact(&mut vec![0; length.unwrap_or(0)]).unwrap();
            asked.send(head.join("\n")).unwrap();
            let (tag, body) = match head.first().map_or("", String::as_str) {
                line if line.starts_with("GET /v1/tenants?") => {
                    (1, r#"{"data":[{"id":"t","name":"Acme","weight":1}]}"#)
                }
                line if line.starts_with("GET") => (7, r#"{"id":"t","name":"Acme","weight":5}"#),
                _ => (8, r#"{"id":"t","name":"Acme","weight":2}"#),
            };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\netag: \"{tag}\"\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    });
    (base, questions)
}

#[test]
fn a_change_is_made_to_what_was_seen_last() {
    let (base, questions) = with_a_changed_tenant();
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("doorstep.yaml"), "tenants: [{name: Acme, weight: 2}]").unwrap();
    let env = [("DOORSTEP_URL", base.as_str()), ("DOORSTEP_API_KEY", "key")];
    let ran = run(&["apply", "-f", "doorstep.yaml"], &env, directory.path().to_str().unwrap());
    assert_eq!(ran.ok(), "~ tenant Acme\n    weight: 5 → 2\n");
    let asked: Vec<String> = questions.try_iter().collect();
    let change = asked.last().unwrap();
    assert!(change.starts_with("PATCH /v1/tenants/t ") && change.contains("if-match: \"7\""), "{asked:?}");
}
