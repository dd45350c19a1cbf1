//! The receiver that misbehaves, as a process of its own, over real sockets. Nothing sleeps: every test waits for a line
//! or for bytes.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test: whatever is missing fails it")]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

use doorstep_core::signature::{Message, Secret, Signer};
use doorstep_core::time::Timestamp;
use serde_json::Value;

const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// No test waits longer than this for what should have come.
const PATIENCE: Duration = Duration::from_secs(20);

struct Listener {
    process: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    address: String,
}

impl Listener {
    fn start(options: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_doorstep"))
            .args(["listen", "--port", "0"])
            .args(options)
            .env_remove("DOORSTEP_LISTEN_SECRET")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        let stderr = BufReader::new(process.stderr.take().unwrap());
        let mut listener = Self { process, stdout, stderr, address: String::new() };
        let ready = if options.contains(&"--json") { listener.message() } else { listener.line() };
        listener.address = ready.strip_prefix("listening on http://").expect(&ready).to_owned();
        listener
    }

    fn line(&mut self) -> String {
        line(&mut self.stdout)
    }

    fn message(&mut self) -> String {
        line(&mut self.stderr)
    }

    fn record(&mut self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends one request over a connection of its own.
    fn post(&self, headers: &str, body: &str) -> Response {
        let mut stream = self.connect();
        write_request(&mut stream, headers, body);
        read_response(&mut BufReader::new(stream)).unwrap()
    }

    fn terminate(mut self) -> (String, ExitStatus) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (rest, self.process.wait().unwrap())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn write_request(stream: &mut TcpStream, headers: &str, body: &str) {
    let length = body.len();
    // In one write: piece by piece, each request would wait for an acknowledgement.
    let request = format!("POST /hook HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n{headers}\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
}

struct Response {
    status: u16,
    head: String,
    body: String,
}

impl Response {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

fn read_head(stream: &mut impl BufRead) -> std::io::Result<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

fn read_response(stream: &mut impl BufRead) -> std::io::Result<Response> {
    let head = read_head(stream)?;
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut response = Response { status, head, body: String::new() };
    let length: u64 = response.header("content-length").map_or(0, |length| length.parse().unwrap());
    stream.take(length).read_to_string(&mut response.body)?;
    Ok(response)
}

/// The headers of a request that is signed now, as the engine signs.
fn signed(secret: &str, id: &str, body: &str) -> String {
    let signer = Signer::new(vec![secret.parse::<Secret>().unwrap()], [].into()).unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let at = Timestamp(now.as_millis().try_into().unwrap());
    let headers = signer.sign(&Message { id, at, body: body.as_bytes() }).unwrap();
    headers.iter().map(|header| format!("{}: {}\r\n", header.name, header.value)).collect()
}

#[test]
fn a_request_is_answered_and_printed_for_people() {
    let mut listener = Listener::start(&[]);
    let headers = "webhook-id: evt_1\r\nx-event-type: invoice.paid\r\nx-delivery-attempt: 3\r\n";
    assert_eq!(listener.post(headers, "{}").status, 200);
    let line = listener.line();
    assert!(line.ends_with(" POST /hook  invoice.paid  evt_1  attempt 3  2 B  signature unchecked  → 200"), "{line}");
}

#[test]
fn it_agrees_to_be_sent_to_if_it_is_told_to() {
    let asked = |listener: &Listener, headers: &str| {
        let mut stream = listener.connect();
        stream.write_all(format!("OPTIONS /hook HTTP/1.1\r\nhost: x\r\n{headers}\r\n").as_bytes()).unwrap();
        read_response(&mut BufReader::new(stream)).unwrap()
    };
    let question = "webhook-request-origin: hooks.example\r\n";
    let mut agrees = Listener::start(&["--consent", "120", "--secret", SECRET]);
    let answer = asked(&agrees, question);
    assert_eq!((answer.status, answer.header("webhook-allowed-origin")), (200, Some("hooks.example")));
    assert_eq!((answer.header("webhook-allowed-rate"), answer.header("allow")), (Some("120"), Some("POST")));
    assert!(agrees.line().contains(" OPTIONS /hook "));
    assert_eq!(asked(&agrees, "").status, 401, "that was no question");

    let answer = asked(&Listener::start(&[]), question);
    assert_eq!((answer.status, answer.header("webhook-allowed-origin")), (200, None));
}

#[test]
fn with_json_every_line_of_output_is_an_object() {
    let mut listener = Listener::start(&["--json", "--bodies"]);
    let headers = "webhook-id: evt_1\r\nx-event-type: a.b\r\nx-delivery-id: dlv_1\r\nx-delivery-attempt: 1\r\n\
                   x-sequence: 7\r\nx-replay-id: rpl_1\r\n";
    listener.post(headers, "{}");
    listener.post(headers, "{}");
    let first = listener.record();
    for (name, expected) in [
        ("method", "POST"),
        ("path", "/hook"),
        ("event_id", "evt_1"),
        ("event_type", "a.b"),
        ("delivery_id", "dlv_1"),
        ("replay_id", "rpl_1"),
        ("body_sha256", "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"),
        ("body_base64", "e30="),
        ("signature", "unchecked"),
    ] {
        assert_eq!(first[name], expected, "{name}");
    }
    for (name, expected) in [("attempt", 1), ("sequence", 7), ("bytes", 2), ("answered", 200)] {
        assert_eq!(first[name], expected, "{name}");
    }
    assert_eq!(first["duplicate"], false);
    assert_eq!(listener.record()["duplicate"], true);
}

#[test]
fn a_delivery_that_was_not_accepted_is_no_duplicate_when_it_comes_again() {
    let mut listener = Listener::start(&["--json", "--status", "503"]);
    for _ in 0..2 {
        assert_eq!(listener.post("webhook-id: evt_1\r\n", "{}").status, 503);
        assert_eq!(listener.record()["duplicate"], false);
    }
}

#[test]
fn signatures_are_verified_with_any_of_the_secrets() {
    let other = "whsec_BBECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let mut listener = Listener::start(&["--json", "--secret", other, "--secret", SECRET]);
    assert_eq!(listener.post(&signed(SECRET, "evt_1", "{}"), "{}").status, 200);
    assert_eq!(listener.record()["signature"], "ok");

    let changed = listener.post(&signed(SECRET, "evt_2", "{}"), "{ }");
    assert_eq!(changed.status, 401);
    assert!(changed.body.contains("does not match any of 2 secrets"), "{}", changed.body);
    let told = listener.record();
    assert!(told["signature"].as_str().unwrap().starts_with("bad: the signature does not match"), "{told}");
    assert_eq!(told["answered"], 401);

    let unsigned = listener.post("", "{}");
    assert_eq!(unsigned.status, 401);
    assert!(unsigned.body.contains("`webhook-id` is missing"), "{}", unsigned.body);
}

#[test]
fn a_secret_comes_from_a_file_and_one_in_an_argument_is_warned_of() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let other = "whsec_BBECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    std::fs::write(file.path(), format!("{other}\n{SECRET}\n")).unwrap();
    let public = "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";
    let path = file.path().to_str().unwrap();
    for (options, is_warned) in
        [(["--secret-file", path], false), (["--secret", public], false), (["--secret", SECRET], true)]
    {
        let mut listener = Listener::start(&[&["--json"], &options[..]].concat());
        if options[1] != public {
            assert_eq!(listener.post(&signed(SECRET, "evt_1", "{}"), "{}").status, 200);
            assert_eq!(listener.post(&signed(SECRET, "evt_1", "{}"), "{ }").status, 401);
        }
        let id = listener.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let mut rest = String::new();
        listener.stderr.read_to_string(&mut rest).unwrap();
        let warning =
            "warning: other users of this machine can read --secret: set DOORSTEP_LISTEN_SECRET, or name a file";
        assert_eq!(rest.contains(warning), is_warned, "{options:?}: {rest}");
        assert!(!rest.contains(SECRET), "{rest}");
    }
}

#[test]
fn a_wrong_secret_is_refused_without_repeating_it() {
    let run = Command::new(env!("CARGO_BIN_EXE_doorstep")).args(["listen", "--secret", "hunter2"]).output().unwrap();
    assert_eq!(run.status.code(), Some(2));
    let told = String::from_utf8(run.stderr).unwrap();
    assert!(told.starts_with("error: --secret: the key does not start with `whsec_`"), "{told}");
    assert!(!told.contains("hunter2"), "{told}");
}

#[test]
fn a_status_is_answered_to_all_or_to_a_share() {
    let listener = Listener::start(&["--status", "204", "--quiet"]);
    assert_eq!(listener.post("", "{}").status, 204);

    let statuses = |seed| {
        let listener = Listener::start(&["--fail", "30%", "--quiet", "--seed", seed]);
        let mut stream = BufReader::new(listener.connect());
        let mut ask = |_| {
            write_request(stream.get_mut(), "", "{}");
            read_response(&mut stream).unwrap().status
        };
        (0..300).map(&mut ask).collect::<Vec<u16>>()
    };
    let first = statuses("5");
    let failed = first.iter().filter(|status| **status == 503).count();
    assert!((60..=120).contains(&failed), "{failed} of 300");
    assert_eq!(failed + first.iter().filter(|status| **status == 200).count(), 300);
    assert_eq!(first, statuses("5"), "the same seed makes the same choices");
    assert_ne!(first, statuses("6"));
}

#[test]
fn over_its_limit_it_answers_429_with_retry_after() {
    let listener = Listener::start(&["--rate-limit", "2/1h", "--quiet"]);
    assert_eq!([(); 2].map(|()| listener.post("", "{}").status), [200, 200]);
    let refused = listener.post("", "{}");
    assert_eq!(refused.status, 429);
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((3_580..=3_600).contains(&wait), "{wait}");
}

#[test]
fn a_delay_comes_before_the_answer() {
    let listener = Listener::start(&["--delay", "150ms..200ms", "--quiet"]);
    let asked = Instant::now();
    assert_eq!(listener.post("", "{}").status, 200);
    assert!(asked.elapsed() >= Duration::from_millis(150), "{:?}", asked.elapsed());
}

#[test]
fn a_hanging_request_is_taken_and_never_answered() {
    let mut listener = Listener::start(&["--hang", "--json"]);
    let mut stream = listener.connect();
    write_request(&mut stream, "", "{}");
    assert_eq!(listener.record()["answered"], "hang");
    stream.set_nonblocking(true).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_reset_leaves_the_sender_with_an_error() {
    let mut listener = Listener::start(&["--reset", "--json"]);
    let mut stream = listener.connect();
    write_request(&mut stream, "", "{}");
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(listener.record()["answered"], "reset");
}

#[test]
fn a_dripping_answer_has_a_head_and_no_end() {
    let mut listener = Listener::start(&["--drip", "--json"]);
    let mut stream = BufReader::new(listener.connect());
    write_request(stream.get_mut(), "", "{}");
    assert!(read_head(&mut stream).unwrap().starts_with("HTTP/1.1 200 OK"));
    let mut drops = [0; 12];
    stream.read_exact(&mut drops).unwrap();
    assert_eq!(&drops, b"1\r\n.\r\n1\r\n.\r\n", "one byte at a time");
    assert_eq!(listener.record()["answered"], "drip");
}

#[test]
fn a_body_that_is_too_long_is_refused() {
    let listener = Listener::start(&["--quiet"]);
    let mut stream = listener.connect();
    write!(stream, "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1048577\r\n\r\n").unwrap();
    let refused = read_response(&mut BufReader::new(stream)).unwrap();
    assert_eq!((refused.status, refused.header("connection")), (413, Some("close")));

    let mut stream = listener.connect();
    let head = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1048576\r\n\r\n";
    stream.write_all(&[head.as_bytes(), &vec![b'x'; 1 << 20]].concat()).unwrap();
    assert_eq!(read_response(&mut BufReader::new(stream)).unwrap().status, 200, "a mebibyte is still taken");
}

#[test]
fn it_ends_after_so_many_requests_with_the_last_one_answered() {
    let mut listener = Listener::start(&["--count", "2", "--quiet", "--threads", "2"]);
    let mut stream = BufReader::new(listener.connect());
    for _ in 0..2 {
        write_request(stream.get_mut(), "", "{}");
        assert_eq!(read_response(&mut stream).unwrap().status, 200);
    }
    assert_eq!(listener.line(), "2 requests: 2 × 200; 0 bad signatures, 0 duplicates");
    assert!(listener.process.wait().unwrap().success());
}

#[test]
fn sigterm_ends_it_with_a_summary() {
    let listener = Listener::start(&["--quiet", "--secret", SECRET]);
    let headers = signed(SECRET, "evt_1", "{}");
    let statuses = [&headers[..], &headers[..], ""].map(|headers| listener.post(headers, "{}").status);
    assert_eq!(statuses, [200, 200, 401]);
    let (summary, status) = listener.terminate();
    assert_eq!(summary, "3 requests: 2 × 200, 1 × 401; 1 bad signature, 1 duplicate\n");
    assert!(status.success());
}

#[test]
fn a_port_that_is_taken_is_told() {
    let listener = Listener::start(&["--quiet"]);
    let port = listener.address.rsplit(':').next().unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_doorstep")).args(["listen", "--port", port]).output().unwrap();
    assert_eq!(run.status.code(), Some(1));
    let told = String::from_utf8(run.stderr).unwrap();
    assert!(told.starts_with("error: cannot listen on 127.0.0.1:"), "{told}");
    assert!(told.contains("choose another --port") && told.contains("\n  because: Address already in use"), "{told}");
}
