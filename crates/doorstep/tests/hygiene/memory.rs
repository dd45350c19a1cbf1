//! Memory is counted by what is really held: bodies that dribble in, and answers that nobody reads (S8).

use std::fs;
use std::net::SocketAddr;
use std::time::Instant;

use serde_json::json;

use crate::raw::{Raw, head};
use crate::support::{Home, PATIENCE, Server};

const CONNECTIONS: usize = 40;
/// Bytes that each of them sends, one at a time. If each held a buffer of 8 KiB, they would hold 190 MB in all.
const DRIBBLED: usize = 600;
const GROWTH_MAX_KIB: u64 = 20 * 1024;

/// Waits until the server has read all that was sent to it over IPv4: nothing waits in its sockets.
fn all_read(server: SocketAddr) {
    let local = format!(":{:04X}", server.port());
    let waits = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (own, _, state, queues) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let (_, received) = queues.split_once(':')?;
        Some(own.ends_with(&local) && state == "01" && received != "00000000")
    };
    let end = Instant::now() + PATIENCE;
    while fs::read_to_string("/proc/net/tcp").unwrap().lines().any(|line| waits(line).unwrap_or(false)) {
        assert!(Instant::now() < end, "the server does not read");
        std::thread::yield_now();
    }
}

/// How much more the server holds while these bodies dribble in. All are left unfinished.
fn growth(server: &Server, heads: &str, byte: impl Fn(usize) -> &'static [u8]) -> u64 {
    // What the server needs for so many connections at all is there before.
    let warm: Vec<Raw> = (0..CONNECTIONS).map(|_| Raw::saying(server, heads)).collect();
    all_read(server.address);
    drop(warm);
    let mut senders: Vec<Raw> = (0..CONNECTIONS).map(|_| Raw::saying(server, heads)).collect();
    all_read(server.address);
    let before = server.resident_kib();
    for nth in 0..DRIBBLED {
        senders.iter_mut().for_each(|sender| sender.say(byte(nth)));
        all_read(server.address);
    }
    let after = server.resident_kib();
    drop(senders);
    after.saturating_sub(before)
}

#[test]
fn bodies_that_come_byte_by_byte_take_no_more_than_their_bytes() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let tenant = client.tenant();
    let open = "POST /portal/session HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    let announced = format!("{open}content-length: 2000\r\n\r\n");
    let chunked = format!("{open}transfer-encoding: chunked\r\n\r\n");
    let event = head("POST /v1/events") + "content-length: 200000\r\n\r\n";
    let batch = head("POST /v1/events/batch") + "content-length: 8000000\r\n\r\n";
    let cloud_event = format!(
        "POST /v1/events?tenant_id={tenant} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\nce-specversion: 1.0\r\nce-id: x\r\n\
         ce-type: a.b\r\nce-source: /x\r\ncontent-type: text/plain\r\ncontent-length: 200000\r\n\r\n",
        crate::support::KEY
    );
    for (what, heads, byte) in [
        ("without a credential", &announced, &b" "[..]),
        ("without a credential, in chunks", &chunked, b"1\r\n \r\n"),
        ("an event", &event, b" "),
        ("a batch", &batch, b" "),
        ("a CloudEvent in binary mode", &cloud_event, b"x"),
    ] {
        let grown = growth(&server, heads, |_| byte);
        assert!(grown <= GROWTH_MAX_KIB, "{what}: {grown} KiB for {} bytes", CONNECTIONS * DRIBBLED);
    }
    assert_eq!(client.get("/healthz").status, 200);
}

/// What nobody has a credential for is short.
#[test]
fn a_body_without_a_credential_is_short() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let enter =
        |client: &mut crate::support::Client, n: usize| client.post("/portal/session", json!({"code": "x".repeat(n)}));
    enter(&mut client, 4_000).expect(401);
    enter(&mut client, 5_000).expect(413);
}

/// Small events, each of which came in the buffer of a connection: what is kept of them for their deliveries must not keep those buffers.
#[test]
fn events_that_are_kept_for_their_deliveries_keep_nothing_else() {
    const EVENTS: usize = 2_000;
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let tenant = client.tenant();
    // Nothing is delivered there, so every event waits.
    let made = client.destination(&tenant, "http://127.0.0.1:9/", json!({}));
    let paused = format!("/v1/destinations/{}/pause", crate::support::text(&made, "id"));
    client.post(&paused, json!({})).expect(200);
    let cloud_event = |nth: usize| {
        let padding = "p".repeat(30_000);
        format!(
            "POST /v1/events?tenant_id={tenant} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\nce-specversion: 1.0\r\nce-id: e{nth}\r\n\
             ce-type: a.b\r\nce-source: /x\r\nx-padding: {padding}\r\ncontent-type: text/plain\r\ncontent-length: 1\r\n\r\nx",
            crate::support::KEY
        )
    };
    let mut raw = Raw::to(server.address);
    let mut send = |n: std::ops::Range<usize>| {
        for nth in n {
            raw.say(cloud_event(nth));
            assert_eq!(raw.hear().unwrap().unwrap().status, 202);
        }
    };
    send(0..200);
    let before = server.resident_kib();
    send(200..200 + EVENTS);
    let grown = server.resident_kib().saturating_sub(before);
    // Each has a head of 30 kB: together they would keep 60 MB.
    assert!(grown <= GROWTH_MAX_KIB, "{grown} KiB for {EVENTS} events of one byte");
}
