//! The real binary under a wall clock that jumps (D0): libfaketime stands between it and the machine's clock.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::support::{Client, Home, KEY, OK, Receiver, Request, Server, skipped, text, until};

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
/// What receivers usually allow between a signature's time and theirs.
const TOLERANCE: i64 = 300;

const LIBRARIES: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
];

/// A wall clock for one server, off from the true one by what its file says.
pub(crate) struct WallClock<'a> {
    home: &'a Home,
    library: &'static str,
    /// Whether the clock that counts from the machine's start is shifted along, as if the machine had been suspended or another one.
    with_uptime: bool,
}

impl<'a> WallClock<'a> {
    pub(crate) fn new(home: &'a Home, with_uptime: bool) -> Option<Self> {
        let library = LIBRARIES.into_iter().find(|path| Path::new(path).exists());
        if library.is_none() {
            skipped("libfaketime is not installed (Debian: faketime)");
        }
        let clock = Self { home, library: library?, with_uptime };
        clock.set(0);
        Some(clock)
    }

    /// In one step, as far as the server can see.
    pub(crate) fn set(&self, seconds: i64) {
        let (draft, file) = (self.home.path().join("wall-clock.draft"), self.file());
        fs::write(&draft, format!("{seconds:+}\n")).unwrap();
        fs::rename(draft, file).unwrap();
    }

    fn file(&self) -> std::path::PathBuf {
        self.home.path().join("wall-clock")
    }

    pub(crate) fn serve(&self, options: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_doorstep"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--allow-targets", "127.0.0.0/8", "--data-dir"]);
        command.arg(self.home.data()).args(options);
        command.env_clear().env("DOORSTEP_ADMIN_KEY", KEY).env("LD_PRELOAD", self.library);
        command.env("FAKETIME_TIMESTAMP_FILE", self.file()).env("FAKETIME_NO_CACHE", "1");
        if !self.with_uptime {
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        Server::spawn(command, self.home)
    }
}

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

/// Seconds between what the API shows and the server's own wall clock, which is off by `set`.
fn off_by(shown: &serde_json::Value, set: i64) -> i64 {
    let shown = OffsetDateTime::parse(shown.as_str().unwrap(), &Rfc3339).unwrap();
    shown.unix_timestamp() - (now() + set)
}

fn signed_at(request: &Request) -> i64 {
    request.header("webhook-timestamp").unwrap().parse().unwrap()
}

fn wait_for(receiver: &Receiver, event: &str) -> Request {
    receiver.requests.wait(&format!("a request with {event}"), |requests| {
        requests.iter().find(|request| request.header("webhook-id") == Some(event)).cloned()
    })
}

/// Nothing is dead, and nothing is gone.
fn all_there(client: &mut Client, events: &[String]) {
    for event in events {
        client.read(&format!("/v1/events/{event}"));
    }
    let dead = client.read("/v1/deliveries?status=dead");
    assert_eq!(dead["data"], json!([]));
}

#[test]
fn a_step_of_three_days_while_running_spoils_no_signature_and_no_schedule() {
    let home = Home::new();
    let Some(clock) = WallClock::new(&home, false) else { return };
    let receiver = Receiver::start();
    let busy = Receiver::answering(|peer, _| {
        std::io::Write::write_all(peer, b"HTTP/1.1 429 Busy\r\nretry-after: 3600\r\ncontent-length: 0\r\n\r\n")
    });
    let server = clock.serve(&[]);
    let mut client = server.client();
    let tenant = client.tenant();
    client.destination(&tenant, &receiver.url("/"), json!({"event_types": ["invoice.*"]}));
    let throttled = text(&client.destination(&tenant, &busy.url("/"), json!({"event_types": ["busy"]})), "id");
    let waiting = client.event(&tenant, json!({"type": "busy"}));
    client.destination_in(&throttled, "throttled");

    let mut events = vec![waiting];
    let mut created = None;
    for set in [3 * DAY, 0, -3 * DAY, -now(), 0] {
        clock.set(set);
        let event = client.event(&tenant, json!({}));
        let off = signed_at(&wait_for(&receiver, &event)) - (now() + set);
        assert!(off.abs() < TOLERANCE / 2, "set by {set}: the signature is {off} s off");
        let shown = client.read(&format!("/v1/events/{event}"));
        assert!(off_by(&shown["accepted_at"], set).abs() <= 2, "set by {set}: {shown}");
        // An hour to wait is an hour to wait, whatever the clock says when it began.
        let gate = client.read(&format!("/v1/destinations/{throttled}"));
        let left = off_by(&gate["throttled_until"], set);
        assert!((3_400..=3_700).contains(&left), "set by {set}: {left} s are left of an hour");
        assert_eq!(busy.requests.all().len(), 1, "set by {set}: it was asked again too soon");
        // What was found by its time is found by it again.
        let after = OffsetDateTime::from_unix_timestamp(now() + set - 120).unwrap().format(&Rfc3339).unwrap();
        let found = client.read(&format!("/v1/events?created_after={after}"));
        assert_eq!(found["data"].as_array().unwrap().len(), events.len() + 1, "set by {set}");
        events.push(event);
        if set == 0 {
            let first = client.read(&format!("/v1/events/{}", events[0]))["accepted_at"].clone();
            let before = created.get_or_insert_with(|| first.clone());
            let moved = off_by(&first, 0) - off_by(before, 0);
            assert!(moved.abs() <= 1, "a clock that was put right shows {first} where it showed {before}");
        }
    }
    until("warnings of both directions", || {
        let log = server.log();
        let told = |word: &str| log.lines().any(|line| line.contains("the wall clock was set") && line.contains(word));
        (told("forward") && told("back")).then_some(())
    });
    all_there(&mut client, &events);
}

/// What is queued, delivered and waiting for its retry before a restart is all there after it.
fn restarts_at(with_uptime: bool, set: i64, warning: &str) {
    let home = Home::new();
    let Some(clock) = WallClock::new(&home, with_uptime) else { return };
    let receiver = Receiver::start();
    let failing = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let fails = std::sync::Arc::clone(&failing);
    let flaky = Receiver::answering(move |peer, _| match fails.load(std::sync::atomic::Ordering::SeqCst) {
        true => std::io::Write::write_all(peer, b"HTTP/1.1 503 Down\r\ncontent-length: 0\r\n\r\n"),
        false => std::io::Write::write_all(peer, OK),
    });
    let server = clock.serve(&[]);
    let mut client = server.client();
    let tenant = client.tenant();
    let policy = json!({"strategy": "fixed", "base_ms": 1_000, "jitter": "none", "window_ms": 259_200_000u64});
    let settings = json!({"event_types": ["flaky"], "policy": policy});
    client.destination(&tenant, &receiver.url("/"), json!({"event_types": ["invoice.*"]}));
    let flaky_id = text(&client.destination(&tenant, &flaky.url("/"), settings), "id");
    let held = text(&client.destination(&tenant, &receiver.url("/held"), json!({"event_types": ["held"]})), "id");
    client.tell(&held, "pause");
    let delivered = client.event(&tenant, json!({}));
    let (backlog, retried) =
        (client.event(&tenant, json!({"type": "held"})), client.event(&tenant, json!({"type": "flaky"})));
    wait_for(&receiver, &delivered);
    client.delivery_in(&flaky_id, &retried, "retry_scheduled");
    server.kill();

    clock.set(set);
    failing.store(false, std::sync::atomic::Ordering::SeqCst);
    let server = clock.serve(&["--retain-delivered-days", "1", "--retain-events-days", "1", "--retain-dead-days", "1"]);
    let mut client = server.client();
    // What was due is sent soon, and not after as long as the clock was set back.
    client.delivery_in(&flaky_id, &retried, "delivered");
    let again = flaky.requests.all().pop().unwrap();
    assert!((signed_at(&again) - now() - set).abs() < TOLERANCE / 2, "set by {set}");
    client.tell(&held, "resume");
    wait_for(&receiver, &backlog);
    let events = [delivered, backlog, retried];
    all_there(&mut client, &events);
    for event in &events {
        let lines = client.read(&format!("/v1/deliveries?event_id={event}"));
        assert_eq!(lines["data"].as_array().unwrap().len(), 1, "set by {set}: {lines}");
    }
    until("a warning", || server.log().contains(warning).then_some(()));
}

#[test]
fn a_restart_under_another_wall_clock_expires_purges_and_holds_nothing() {
    for set in [-HOUR, 73 * HOUR, 100 * DAY] {
        restarts_at(false, set, "the wall clock was set");
    }
}

#[test]
fn a_machine_that_says_it_was_off_for_long_expires_and_purges_nothing() {
    for set in [73 * HOUR, 100 * DAY] {
        restarts_at(true, set, "Doorstep did not run for a long time");
    }
    restarts_at(true, -HOUR, "an earlier time than when Doorstep last ran");
}

#[test]
fn a_machine_that_wakes_up_after_three_days_goes_on_where_it_was() {
    let home = Home::new();
    let Some(clock) = WallClock::new(&home, true) else { return };
    let (receiver, server) = (Receiver::start(), clock.serve(&[]));
    let mut client = server.client();
    let tenant = client.tenant();
    let held = text(&client.destination(&tenant, &receiver.url("/"), json!({})), "id");
    client.tell(&held, "pause");
    let before = client.event(&tenant, json!({"ttl_ms": 4 * HOUR * 1_000}));

    clock.set(3 * DAY);
    // Its connection was silent for days.
    let mut client = server.client();
    let after = client.event(&tenant, json!({}));
    client.tell(&held, "resume");
    for event in [&before, &after] {
        let off = signed_at(&wait_for(&receiver, event)) - (now() + 3 * DAY);
        assert!(off.abs() < TOLERANCE / 2, "the signature is {off} s off");
    }
    all_there(&mut client, &[before, after]);
    until("a warning", || server.log().contains("Doorstep did not run for a long time").then_some(()));
}
