//! The programs of `docs/guide/receiving.md` against requests that the binary really sends (P6).

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use doorstep_core::outcome::Class;
use doorstep_core::retry::RetryPolicy;
use serde_json::json;
use tempfile::TempDir;

use crate::receiver;
use crate::support::{Client, Home, Receiver, Request, Server, in_repository, skipped, text};

const PAGE: &str = include_str!("../../../../docs/guide/receiving.md");
const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const ANOTHER: &str = "whsec_HxwdHh8cHR4fHB0eHxwdHh8cHR4fHB0eHxwdHh8cHR4=";
/// What the programs answer.
const TAKEN: u16 = 202;
const REFUSED: u16 = 401;

/// The code that stands behind `<!-- run: name -->`.
fn snippet(name: &str) -> &'static str {
    let mark = format!("<!-- run: {name} -->\n```");
    let (_, rest) = PAGE.split_once(&mark).unwrap_or_else(|| panic!("the page has no {mark}"));
    let (_, code) = rest.split_once('\n').unwrap();
    code.split_once("\n```\n").unwrap().0
}

/// A program of the page, listening.
struct Program {
    process: Child,
    address: SocketAddr,
    _directory: TempDir,
}

impl Program {
    fn start(run: &mut Command, directory: TempDir) -> Self {
        run.current_dir(directory.path()).env("WEBHOOK_SECRET", SECRET).env("PORT", "0");
        run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let started = run.spawn();
        let mut process = started.unwrap_or_else(|fault| panic!("{run:?}: {fault}; `make prepare venv` installs it"));
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{run:?} said {line:?}"));
        let address = SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()));
        Self { process, address, _directory: directory }
    }

    fn judge(&self, request: &Request) -> u16 {
        let mut bytes = format!("POST {} HTTP/1.1\r\n", request.path).into_bytes();
        for (name, value) in &request.headers {
            bytes.extend(format!("{name}: {value}\r\n").bytes());
        }
        bytes.extend(b"\r\n");
        bytes.extend(&request.body);
        Client::new(self.address).exchange(&bytes).unwrap().status
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn with(request: &Request, name: &str, value: &str) -> Request {
    let mut changed = request.clone();
    changed.headers.iter_mut().filter(|(given, _)| given == name).for_each(|(_, old)| value.clone_into(old));
    changed
}

/// Signed as the sender would have, at another time.
fn signed_at(request: &Request, seconds: i64) -> Request {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let at = now.saturating_add_signed(seconds).to_string();
    let key = STANDARD.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap();
    let signed = [request.header("webhook-id").unwrap().as_bytes(), b".", at.as_bytes(), b".", &request.body].concat();
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), &signed);
    let signature = format!("v1,{}", STANDARD.encode(signature));
    with(&with(request, "webhook-timestamp", &at), "webhook-signature", &signature)
}

/// What the binary sent, and everything that may have become of it on its way: what a receiver has to take, and what not.
struct Cases {
    taken: Vec<(&'static str, Request)>,
    refused: Vec<(&'static str, Request)>,
}

impl Cases {
    fn sent_by(server: &Server) -> Self {
        let receiver = Receiver::start();
        let mut client = server.client();
        let tenant = client.tenant();
        let payload = json!({"payload": {"text": "Grüße, 世界", "nothing": null}});
        let sent = |client: &mut Client, nth: usize| {
            client.event(&tenant, payload.clone());
            receiver.requests.wait_for(nth).swap_remove(nth - 1)
        };
        let path = client.destination(&tenant, &receiver.url("/hook?a=b"), json!({"secret": SECRET}));
        let path = format!("/v1/destinations/{}", text(&path, "id"));
        let genuine = sent(&mut client, 1);
        client.post(&format!("{path}/secrets/rotate"), "").expect(200);
        let rotated = sent(&mut client, 2);
        assert_eq!(rotated.header("webhook-signature").unwrap().split(' ').count(), 2, "one with each secret");
        client.post(&format!("{path}/secrets/rotate"), json!({"overlap_ms": 0})).expect(200);
        let another = sent(&mut client, 3);

        let mut flipped = genuine.clone();
        flipped.body[3] ^= 1;
        let mut shorter = genuine.clone();
        shorter.headers.retain(|(name, _)| !name.starts_with("webhook-"));
        let signature = genuine.header("webhook-signature").unwrap();
        let (v1a, cut) = (signature.replace("v1,", "v1a,"), &signature[..signature.len() - 8]);
        let taken = vec![
            ("a genuine request", genuine.clone()),
            ("the same once more", genuine.clone()),
            ("one signed with two secrets", rotated),
            ("one that was four minutes on its way", signed_at(&genuine, -240)),
            (
                "one beside signatures of other kinds",
                with(&genuine, "webhook-signature", &format!("v1a,x v2,y {signature}")),
            ),
        ];
        let refused = vec![
            ("a flipped bit", flipped),
            ("another secret", another),
            ("an old timestamp", signed_at(&genuine, -400)),
            ("a timestamp ahead", signed_at(&genuine, 400)),
            ("a changed timestamp", with(&genuine, "webhook-timestamp", &(text_to_number(&genuine) + 1).to_string())),
            ("a timestamp that is none", with(&genuine, "webhook-timestamp", "now")),
            ("another ID", with(&genuine, "webhook-id", "evt_other")),
            ("an empty signature", with(&genuine, "webhook-signature", "v1,")),
            ("a cut signature", with(&genuine, "webhook-signature", cut)),
            ("a signature of another kind", with(&genuine, "webhook-signature", &v1a)),
            ("no signature", shorter),
        ];
        Self { taken, refused }
    }

    #[track_caller]
    fn judged_by(&self, name: &str, judge: impl Fn(&Request) -> bool) {
        for (what, request) in &self.taken {
            assert!(judge(request), "{name} refuses {what}: {request:?}");
        }
        for (what, request) in &self.refused {
            assert!(!judge(request), "{name} takes {what}: {request:?}");
        }
    }
}

fn text_to_number(request: &Request) -> u64 {
    request.header("webhook-timestamp").unwrap().parse().unwrap()
}

/// The program takes what is genuine, refuses what is not, and the binary's own deliveries to it arrive.
fn try_out(name: &str, run: &mut Command, directory: TempDir) {
    let home = Home::new();
    let server = Server::start(&home);
    let program = Program::start(run, directory);
    let mut client = server.client();
    let tenant = client.tenant();
    let settings = |secret: &str| json!({"secret": secret, "name": "the program"});
    let url = format!("http://{}/webhooks", program.address);
    let trusted = text(&client.destination(&tenant, &url, settings(SECRET)), "id");
    let stranger = text(&client.destination(&tenant, &url, settings(ANOTHER)), "id");
    let event = client.event(&tenant, json!({}));
    let delivered = client.delivery_in(&trusted, &event, "delivered");
    assert_eq!(delivered["attempts"][0]["status_code"], TAKEN, "{delivered}");
    let dead = client.delivery_in(&stranger, &event, "dead");
    assert_eq!(dead["reason"], "rejected", "{dead}");

    Cases::sent_by(&server).judged_by(name, |request| match program.judge(request) {
        TAKEN => true,
        REFUSED => false,
        status => panic!("{name} answers {status}"),
    });
}

/// A directory with this file in it.
fn written(file: &str, code: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join(file), code).unwrap();
    directory
}

#[test]
fn the_python_program_takes_what_is_genuine_and_nothing_else() {
    let directory = written("receiver.py", snippet("python"));
    try_out("python", Command::new("python3").arg("receiver.py"), directory);
}

#[test]
fn so_does_the_python_program_with_the_library() {
    let main = "\nif __name__ == ";
    let (before, after) = snippet("python").split_once(main).unwrap();
    let directory = written("receiver.py", &format!("{before}\n{}\n{main}{after}", snippet("python-library")));
    let python = in_repository(".venv/bin/python");
    assert!(python.exists(), "there is no .venv: `make venv` makes it");
    try_out("python-library", Command::new(python).arg("receiver.py"), directory);
}

#[test]
fn so_does_the_node_program() {
    let directory = written("receiver.mjs", snippet("node"));
    try_out("node", Command::new("node").arg("receiver.mjs"), directory);
}

#[test]
fn so_does_the_go_program() {
    let directory = written("receiver.go", snippet("go"));
    let mut build = Command::new("go");
    build.args(["build", "-o", "receiver", "receiver.go"]).current_dir(directory.path());
    match build.output() {
        Err(fault) if fault.kind() == ErrorKind::NotFound => {
            skipped("the Go program of the receiver guide: Go is not installed");
        }
        built => {
            let built = built.unwrap();
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            try_out("go", &mut Command::new(directory.path().join("receiver")), directory);
        }
    }
}

#[test]
fn so_does_the_rust_function() {
    let code = include_str!("receiver.rs");
    assert_eq!(snippet("rust"), code.trim_end(), "the page has another text than tests/guide/receiver.rs");
    let home = Home::new();
    let server = Server::start(&home);
    let cases = Cases::sent_by(&server);
    let judge =
        |request: &Request| receiver::verify(|name| request.header(name), &request.body, SECRET, SystemTime::now());
    cases.judged_by("rust", |request| judge(request).is_ok());
    let genuine = &cases.taken[0].1;
    let later = SystemTime::now() + Duration::from_secs(301);
    let judged = receiver::verify(|name| genuine.header(name), &genuine.body, SECRET, later);
    assert_eq!(judged, Err("the timestamp is too old or too new"));
}

#[test]
fn what_each_status_does_is_what_the_code_does() {
    let (_, part) = PAGE.split_once("\n## What each status does\n").unwrap();
    let rows: Vec<&str> = part.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| ")).collect();
    let class_on_page = |status: &str| {
        let row =
            rows.iter().find(|row| row.split('|').nth(1).unwrap().split([',', ';']).any(|cell| cell.trim() == status));
        row.map(|row| row.split('|').nth(2).unwrap().trim())
    };
    for status in 200..=599_u16 {
        let others = match status {
            200..=299 => "any 2xx",
            300..=399 => "any 3xx",
            400..=499 => "any other 4xx",
            _ => "any 5xx but 501",
        };
        let said = class_on_page(&status.to_string()).or_else(|| class_on_page(others));
        let class = serde_json::to_value(Class::of_status(status)).unwrap();
        assert_eq!(said, class.as_str(), "{status}");
    }
}

#[test]
fn the_schedule_is_that_of_the_policy() {
    let (_, part) = PAGE.split_once("\n## Retries\n").unwrap();
    let rows: Vec<&str> = part.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| ")).collect();
    let shown = Command::new(env!("CARGO_BIN_EXE_doorstep")).args(["policy", "show", "standard"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    for attempt in 2..=9 {
        let line = shown.lines().find(|line| line.trim_start().starts_with(&format!("{attempt} "))).unwrap();
        let waits = line.split_whitespace().nth(1).unwrap();
        let waits = waits.replace("..", " to ").replace('s', " s").replace('m', " min").replace('h', " h");
        let row = rows.iter().find(|row| row.starts_with(&format!("| {attempt} "))).unwrap();
        assert_eq!(row.split('|').nth(2).unwrap().trim(), waits, "attempt {attempt}");
    }
    let standard = RetryPolicy::standard();
    let days = standard.window().0 / 86_400_000;
    let ends = format!("It ends after {days} days or {} attempts", standard.max_attempts());
    assert!(part.contains(&ends), "{ends}");
}
