//! What arrives is judged by libraries that do not know Doorstep (S1, S2).

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Map, Value, json};

use crate::support::{Home, Judge, Receiver, Request, Server, in_repository, text};

/// `e2e/verify.py`: all libraries that can judge this kind of secret.
pub(crate) struct Judges(Judge);

impl Judges {
    pub(crate) fn start() -> Self {
        Self(Judge::start("verify.py"))
    }

    /// What each of them says.
    fn judge(&mut self, request: &Request, secret: &str) -> Map<String, Value> {
        self.0.judge(request, json!({"secret": secret}))
    }

    #[track_caller]
    pub(crate) fn expect_accepted(&mut self, request: &Request, secret: &str) {
        let verdicts = self.judge(request, secret);
        assert!(!verdicts.is_empty() && verdicts.values().all(|verdict| verdict == "ok"), "{verdicts:?}: {request:?}");
    }

    /// All of them refuse, and their reasons hold this word.
    #[track_caller]
    fn expect_refused(&mut self, request: &Request, secret: &str, word: &str) {
        let verdicts = self.judge(request, secret);
        let refused = |verdict: &Value| verdict != "ok" && verdict.as_str().unwrap().to_lowercase().contains(word);
        assert!(!verdicts.is_empty() && verdicts.values().all(refused), "{verdicts:?}: {request:?}");
    }
}

fn with_header(request: &Request, name: &str, change: impl Fn(&str) -> String) -> Request {
    let mut changed = request.clone();
    for (given, value) in &mut changed.headers {
        if given == name {
            *value = change(value);
        }
    }
    changed
}

#[test]
fn public_libraries_verify_what_arrives_and_refuse_what_was_tampered_with() {
    let home = Home::new();
    let (server, receiver) = (Server::start(&home), Receiver::start());
    let mut client = server.client();
    let tenant = client.tenant();
    let destination = client.destination(&tenant, &receiver.url("/hook"), json!({"event_types": ["invoice.*"]}));
    let other = client.destination(&tenant, &receiver.url("/other"), json!({"event_types": ["other.*"]}));
    let (secret, another) = (destination["secret"].as_str().unwrap(), other["secret"].as_str().unwrap());
    assert!(secret.starts_with("whsec_") && secret != another);
    let id = client.event(&tenant, json!({"payload": {"text": "Grüße, 世界"}}));
    let request = receiver.requests.wait_for(1).swap_remove(0);
    assert_eq!(request.header("webhook-id"), Some(&*id));

    let mut judges = Judges::start();
    judges.expect_accepted(&request, secret);

    let mut flipped = request.clone();
    flipped.body[3] ^= 1;
    judges.expect_refused(&flipped, secret, "signature");
    judges.expect_refused(&with_header(&request, "webhook-id", |id| format!("{id}0")), secret, "signature");
    judges.expect_refused(&request, another, "signature");
    let by = |seconds: i64| {
        move |at: &str| {
            let at: i64 = at.parse().unwrap();
            (at + seconds).to_string()
        }
    };
    judges.expect_refused(&with_header(&request, "webhook-timestamp", by(1)), secret, "signature");
    judges.expect_refused(&with_header(&request, "webhook-timestamp", by(-400)), secret, "timestamp");
    judges.expect_refused(&with_header(&request, "webhook-timestamp", by(400)), secret, "timestamp");
}

#[test]
fn during_a_rotation_both_the_old_and_the_new_secret_verify() {
    let home = Home::new();
    let (server, receiver) = (Server::start(&home), Receiver::start());
    let mut client = server.client();
    let tenant = client.tenant();
    let given = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let destination = client.destination(&tenant, &receiver.url("/"), json!({"secret": given}));
    assert_eq!(destination["secret"], given, "the producer's own secret is taken");
    let path = format!("/v1/destinations/{}", destination["id"].as_str().unwrap());
    let mut judges = Judges::start();
    let mut next = 0;
    let mut delivered = |client: &mut crate::support::Client| {
        client.event(&tenant, json!({}));
        next += 1;
        receiver.requests.wait_for(next).swap_remove(next - 1)
    };

    let rotated = client.post(&format!("{path}/secrets/rotate"), "").expect(200);
    let new = rotated["secret"].as_str().unwrap();
    assert!(new.starts_with("whsec_") && new != given);
    let both = delivered(&mut client);
    judges.expect_accepted(&both, given);
    judges.expect_accepted(&both, new);

    let rotated = client.post(&format!("{path}/secrets/rotate"), json!({"overlap_ms": 0})).expect(200);
    let newest = rotated["secret"].as_str().unwrap();
    let alone = delivered(&mut client);
    judges.expect_accepted(&alone, newest);
    for old in [given, new] {
        judges.expect_refused(&alone, old, "signature");
    }
    let shown = client.get(&path).text();
    assert!(
        ![given, new, newest].iter().any(|secret| shown.contains(secret)),
        "secrets are never shown again: {shown}"
    );
}

#[test]
fn ed25519_signatures_verify_with_the_public_key_that_was_shown() {
    let home = Home::new();
    let (server, receiver) = (Server::start(&home), Receiver::start());
    let mut client = server.client();
    let tenant = client.tenant();
    let settings = json!({"signing": {"algorithm": "ed25519"}});
    let destination = client.destination(&tenant, &receiver.url("/"), settings);
    let public = destination["secret"].as_str().unwrap();
    assert!(public.starts_with("whpk_"), "the private half stays with the sender: {public}");
    client.event(&tenant, json!({}));
    let request = receiver.requests.wait_for(1).swap_remove(0);

    let mut judges = Judges::start();
    judges.expect_accepted(&request, public);
    let mut flipped = request.clone();
    flipped.body[3] ^= 1;
    judges.expect_refused(&flipped, public, "invalidsignature");
}

#[test]
fn every_request_carries_the_promised_headers_and_each_attempt_is_signed_afresh() {
    let home = Home::new();
    let failed_once = std::sync::atomic::AtomicBool::new(false);
    let receiver = Receiver::answering(move |peer, _| {
        let first = !failed_once.swap(true, std::sync::atomic::Ordering::SeqCst);
        let status = if first { "503 Service Unavailable" } else { "200 OK" };
        peer.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes())
    });
    let server = Server::start(&home);
    let mut client = server.client();
    let tenant = client.tenant();
    // Long enough for the clock to show another second.
    let policy =
        json!({"strategy": "fixed", "base_ms": 1_100, "jitter": "none", "max_attempts": 3, "window_ms": 60_000});
    let settings =
        json!({"policy": policy, "headers": {"x-team": "billing"}, "signing": {"also": ["github", "stripe"]}});
    let destination = client.destination(&tenant, &receiver.url("/hook?a=b"), settings);
    let id = client.event(&tenant, json!({"headers": {"x-trace": "abc"}}));
    let requests = receiver.requests.wait_for(2);

    let mut judges = Judges::start();
    let agent = format!("Doorstep/{}", env!("CARGO_PKG_VERSION"));
    for (attempt, request) in ["1", "2"].iter().zip(&requests) {
        for (name, expected) in [
            ("webhook-id", &*id),
            ("x-event-id", &id),
            ("x-event-type", "invoice.paid"),
            ("x-delivery-attempt", attempt),
            ("user-agent", &agent),
            ("content-type", "application/json"),
            ("x-team", "billing"),
            ("x-trace", "abc"),
        ] {
            assert_eq!(request.header(name), Some(expected), "{name}");
        }
        assert!(request.header("x-delivery-id").unwrap().starts_with("dlv_"));
        assert!(request.header("x-hub-signature-256").unwrap().starts_with("sha256="));
        assert!(request.header("stripe-signature").unwrap().starts_with("t="));
        assert_eq!(request.path, "/hook?a=b");
        judges.expect_accepted(request, destination["secret"].as_str().unwrap());
    }
    let of = |name: &str| (requests[0].header(name).unwrap(), requests[1].header(name).unwrap());
    assert_eq!(of("x-delivery-id").0, of("x-delivery-id").1);
    assert_ne!(of("webhook-timestamp").0, of("webhook-timestamp").1);
    assert_ne!(of("webhook-signature").0, of("webhook-signature").1);
    assert_eq!(requests[0].body, requests[1].body);
}

/// `e2e/octokit.mjs`: a receiver behind the middleware of GitHub's own library.
struct Octokit {
    process: Child,
    told: BufReader<ChildStdout>,
    port: u64,
}

impl Octokit {
    fn start(secret: &str) -> Self {
        let script = in_repository("e2e/octokit.mjs");
        assert!(in_repository("e2e/node_modules/@octokit/webhooks").exists(), "`make examples` fetches it");
        let node =
            Command::new("node").arg(script).env("SECRET", secret).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = node.expect("node is there: npm needs it");
        let told = BufReader::new(process.stdout.take().unwrap());
        let mut octokit = Self { process, told, port: 0 };
        octokit.port = octokit.next()["port"].as_u64().unwrap();
        octokit
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.told.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Octokit {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn githubs_own_library_takes_what_is_signed_its_way() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let tenant = client.tenant();
    let (secret, another) =
        ("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "whsec_BAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
    let mut octokit = Octokit::start(secret);
    let settings =
        |secret: &str| json!({"secret": secret, "signing": {"also": ["github"]}, "event_types": ["issues.*"]});
    let destination = text(&client.destination(&tenant, &octokit.url(), settings(secret)), "id");
    let sent =
        client.event(&tenant, json!({"type": "issues.opened", "payload": {"action": "opened", "text": "Grüße"}}));
    let taken = octokit.next();
    assert_eq!(taken["name"], "issues.opened", "{taken}");
    assert_eq!(taken["payload"], json!({"action": "opened", "text": "Grüße"}));
    assert_eq!(taken["id"], client.delivery_of(&destination, &sent)["id"]);

    // Who names the event as GitHub would has its way.
    let named =
        json!({"type": "issues.closed", "headers": {"x-github-event": "issues"}, "payload": {"action": "closed"}});
    client.event(&tenant, named);
    assert_eq!(octokit.next()["name"], "issues");

    // The judge can say no.
    let wrong = text(&client.destination(&tenant, &octokit.url(), settings(another)), "id");
    let sent = client.event(&tenant, json!({"type": "issues.opened", "payload": {}}));
    assert_eq!(octokit.next()["payload"], json!({}));
    let refused = client.delivery_in(&wrong, &sent, "dead");
    assert_eq!(refused["last_status_code"], 400, "{refused}");
}
