//! What others say does not get into the log as a line of its own, and what is secret not at all (S6, M5).

use std::fs;
use std::io::Write as _;

use serde_json::{Value, json};

use crate::raw::{Raw, head};
use crate::support::{Answer, Client, Home, KEY, Receiver, Server, text};

/// A forged line, and what a terminal would obey.
const FORGED: &str =
    "x\n{\"level\":\"ERROR\",\"message\":\"forged\"}\r\n\u{1b}[2J\u{1b}]0;forged\u{7}\u{0}\u{9b}31m\u{2028}";
const PAYLOAD: &str = "a-payload-that-nobody-else-should-read";
const HEADER: &str = "a-header-value-that-is-a-secret";
const ANSWER: &str = "an-answer-that-is-between-the-two";
const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// Everything that a producer, a person, a client and a receiver can say, said badly. Returns what must not be in the log.
fn talk(server: &Server) -> Vec<String> {
    let receiver = Receiver::answering(|peer, request| {
        let answer = match &*request.path {
            "/good" => format!("HTTP/1.1 200 OK\r\nx-a: {ANSWER}\r\ncontent-length: {}\r\n\r\n{ANSWER}", ANSWER.len()),
            "/reason" => "HTTP/1.1 500 \u{1b}[2J{\"message\":\"forged\"}\r\ncontent-length: 0\r\n\r\n".to_owned(),
            "/header" => format!("HTTP/1.1 400 No\r\nx-a\u{1b}[2J: {FORGED}\r\ncontent-length: 0\r\n\r\n"),
            "/body" => format!("HTTP/1.1 400 No\r\ncontent-length: {}\r\n\r\n{FORGED}", FORGED.len()),
            _ => FORGED.to_owned() + "\r\n\r\n",
        };
        peer.write_all(answer.as_bytes())?;
        Err(std::io::ErrorKind::Other.into())
    });
    let mut client = server.client();
    let tenant = client.tenant();
    let mut hidden: Vec<_> = [KEY, PAYLOAD, HEADER, ANSWER, SECRET].iter().map(ToString::to_string).collect();
    let no_key = json!({"name": "a key", "scopes": ["ingest"], "tenant_id": tenant});
    hidden.push(text(&client.post("/v1/keys", no_key).expect(201), "key"));
    hidden.push(text(&client.post("/v1/portal-sessions", json!({"tenant_id": tenant})).expect(201), "code"));

    let once = json!({"strategy": "fixed", "base_ms": 10, "max_attempts": 1, "window_ms": 60_000});
    let mut destinations = Vec::new();
    for path in ["/good", "/reason", "/header", "/body", "/nonsense"] {
        let settings =
            json!({"secret": SECRET, "headers": {"authorization": HEADER}, "policy": once, "name": "\u{2028}\u{202e}"});
        destinations.push(text(&client.destination(&tenant, &receiver.url(path), settings), "id"));
    }
    // Nobody listens there.
    destinations.push(text(&client.destination(&tenant, "http://127.0.0.1:1/", json!({"policy": once})), "id"));
    // With its line breaks it would be refused (below): what is left of it is text like any other.
    let forged: String = FORGED.chars().filter(|c| !c.is_control()).take(40).collect();
    let event = client.event(
        &tenant,
        json!({"payload": {"a": PAYLOAD}, "ordering_key": forged, "schema_version": forged, "headers": {"x-token": HEADER}}),
    );
    for destination in &destinations {
        client.delivery_when(destination, &event, "over", |delivery| {
            ["delivered", "dead"].contains(&delivery["status"].as_str().unwrap())
        });
    }
    let dead = text(&client.delivery_of(&destinations[1], &event), "id");
    client.post(&format!("/v1/deliveries/{dead}/abandon"), json!({"note": FORGED}));
    client.post(&format!("/v1/destinations/{}/test", destinations[4]), "");
    bad_requests(&mut client, &tenant);
    bad_bytes(server);
    hidden
}

fn bad_requests(client: &mut Client, tenant: &str) {
    for field in ["id", "type", "ordering_key", "schema_version", "content_type", "produced_at", "tenant_id", FORGED] {
        let mut event = json!({"tenant_id": tenant, "type": "a", "payload": PAYLOAD});
        event[field] = FORGED.into();
        fine(&client.post("/v1/events", &event));
        fine(&client.post("/v1/events/batch", json!({"events": [event]})));
    }
    for (field, value) in [
        ("name", json!(FORGED)),
        ("url", json!(format!("http://127.0.0.1/{FORGED}"))),
        ("url", json!(format!("https://{FORGED}.example/"))),
        ("secret", json!(format!("{SECRET}{FORGED}"))),
        ("headers", json!({"x-a": FORGED})),
        ("headers", json!({FORGED: HEADER})),
        ("event_types", json!([FORGED])),
        ("filter", json!({FORGED: FORGED})),
        ("policy", json!(FORGED)),
    ] {
        let mut destination = json!({"tenant_id": tenant, "url": "http://127.0.0.1:1/"});
        destination[field] = value;
        fine(&client.post("/v1/destinations", destination));
    }
    let escaped: String = FORGED.bytes().map(|byte| format!("%{byte:02x}")).collect();
    for path in [
        format!("/v1/events/{escaped}"),
        format!("/v1/deliveries?type={escaped}&cursor={escaped}&{escaped}={escaped}"),
        format!("/{escaped}"),
        format!("/v1/audit?action={escaped}"),
    ] {
        fine(&client.get(&path));
    }
    for value in ["\u{9}\u{e9}\u{202e}", HEADER] {
        let headers = [("idempotency-key", value), ("traceparent", value), ("user-agent", value), ("if-match", value)];
        fine(&client.ask("POST", "/v1/events", &headers, b"{}").unwrap());
        fine(&client.ask("GET", "/v1/tenants", &[("authorization", &format!("Bearer {value}"))], b"").unwrap());
    }
}

#[track_caller]
fn fine(answer: &Answer) {
    assert!(answer.status < 500, "{} {}", answer.status, answer.text());
}

fn bad_bytes(server: &Server) {
    for says in [
        FORGED.to_owned() + "\r\n\r\n",
        format!("GET /{FORGED} HTTP/1.1\r\nhost: x\r\n\r\n"),
        format!("{}x-a: {FORGED}\r\n\r\n", head("GET /v1/tenants")),
        format!("{}x-\u{1b}[2J: a\r\n\r\n", head("GET /v1/tenants")),
        format!("{}transfer-encoding: {HEADER}\u{1b}\r\n\r\n", head("POST /v1/events")),
        format!("{}transfer-encoding: chunked\r\n\r\n{FORGED}\r\n{PAYLOAD}", head("POST /v1/events")),
        format!("{}content-length: 1000\r\n\r\n{PAYLOAD}", head("POST /v1/events")),
    ] {
        let mut raw = Raw::saying(server, &says);
        if !says.ends_with(PAYLOAD) {
            // It may have been reset.
            let _ = raw.hear();
        }
    }
}

/// The log of a server that was talked to, once it has ended.
fn log(format: &str) -> (String, Vec<String>) {
    let home = Home::new();
    let options = ["--allow-targets", "127.0.0.0/8", "--log-level", "trace", "--log-format", format];
    let server = Server::start_with(&home, &options);
    let hidden = talk(&server);
    server.terminate();
    assert!(server.ended().success());
    let log = fs::read(home.path().join("log")).unwrap();
    (String::from_utf8(log).expect("the log is not UTF-8"), hidden)
}

fn check(log: &str, hidden: &[String]) {
    let raw = log.chars().filter(|&c| c != '\n' && (c.is_control() || c == '\u{2028}' || c == '\u{202e}'));
    let raw: std::collections::BTreeSet<_> = raw.collect();
    assert!(raw.is_empty(), "control characters as they came: {raw:?}");
    for secret in hidden {
        let place = log.lines().find(|line| line.contains(secret.as_str()));
        assert!(place.is_none(), "{secret} is in the log: {}", place.unwrap_or_default());
    }
}

#[test]
fn each_line_is_an_object_of_ours_and_nothing_secret_is_in_it_even_at_trace() {
    let (log, hidden) = log("json");
    check(&log, &hidden);
    let mut seen = Vec::new();
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|fault| panic!("{fault}: {line}"));
        let message = line["message"].as_str().unwrap_or_default();
        assert!(line["level"].is_string() && line["timestamp"].is_string() && message != "forged", "{line}");
        seen.push(message.to_owned());
    }
    for expected in ["ready", "no answer", "ended; nothing is lost"] {
        assert!(seen.iter().any(|message| message == expected), "{expected} is missing: so the log was not looked at");
    }
}

#[test]
fn lines_for_people_begin_with_their_time_and_nothing_secret_is_in_them_either() {
    let (log, hidden) = log("pretty");
    check(&log, &hidden);
    for line in log.lines() {
        assert!(line.starts_with("20") && line.get(10..11) == Some("T"), "somebody else's line: {line}");
    }
    assert!(log.contains("no answer"), "{log}");
}
