//! Receivers that are slow, broken or malicious on purpose (S5): they cost little, and only themselves.

use std::io::{self, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::answers::every;
use crate::support::{Home, Listener, Receiver, Server, text};

const EVENTS: usize = 30;
/// What all of them together may add to the server's memory, in KiB. It has 30 requests with each of them.
const GROWTH_MAX_KIB: u64 = 64 * 1024;
/// What a healthy receiver may be kept waiting for an event meanwhile, on a busy machine and in debug mode.
const HEALTHY_WITHIN: Duration = Duration::from_secs(5);

/// Writes this again and again until the sender has had enough.
fn endlessly(peer: &mut TcpStream, bytes: &[u8], pause: Duration) -> io::Result<()> {
    loop {
        peer.write_all(bytes)?;
        thread::sleep(pause);
    }
}

/// What each of them does, what its deliveries become, and what their first attempts say.
fn hostile() -> Vec<(&'static str, Receiver, &'static str, Value)> {
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\n";
    let (at_once, slowly) = (Duration::ZERO, Duration::from_millis(50));
    let timed_out = json!({"error": "answer_timed_out"});
    let violated = json!({"error": "protocol_violated"});
    let cut = json!({"status_code": 200, "response": {"truncated": true}});
    let on_request = |write: fn(&mut TcpStream) -> io::Result<()>| Receiver::answering(move |peer, _| write(peer));
    vec![
        (
            "half-open",
            Receiver::raw(|_peer| {
                loop {
                    thread::park()
                }
            }),
            "retry_scheduled",
            timed_out.clone(),
        ),
        (
            "a head that drips",
            Receiver::answering(move |peer, _| {
                peer.write_all(b"HTTP/1.1 200 OK\r\nx-drip: ")?;
                endlessly(peer, b"a", slowly)
            }),
            "retry_scheduled",
            timed_out.clone(),
        ),
        (
            "a body that drips",
            Receiver::answering(move |peer, _| {
                peer.write_all(&[OK, b"content-length: 100000\r\n\r\n"].concat())?;
                endlessly(peer, b"a", slowly)
            }),
            "delivered",
            cut.clone(),
        ),
        (
            "a body without end",
            Receiver::answering(move |peer, _| {
                peer.write_all(&[OK, b"transfer-encoding: chunked\r\n\r\n"].concat())?;
                endlessly(peer, format!("10000\r\n{}\r\n", "a".repeat(0x10000)).as_bytes(), at_once)
            }),
            "delivered",
            cut.clone(),
        ),
        (
            "interim answers without end",
            Receiver::answering(move |peer, _| endlessly(peer, &b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100), at_once)),
            "retry_scheduled",
            violated.clone(),
        ),
        (
            "headers without end",
            Receiver::answering(move |peer, _| {
                peer.write_all(OK)?;
                endlessly(peer, format!("x-long: {}\r\n", "a".repeat(0x10000)).as_bytes(), at_once)
            }),
            "retry_scheduled",
            violated.clone(),
        ),
        (
            "a reset within the body",
            Receiver::raw(|mut peer| {
                // Closing with a request unread is a reset.
                let _ = peer.peek(&mut [0]);
                let _ = peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nhello");
            }),
            "either",
            Value::Null,
        ),
        (
            "a body that breaks off",
            on_request(|peer| {
                peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nhello")?;
                Err(io::ErrorKind::ConnectionAborted.into())
            }),
            "delivered",
            cut.clone(),
        ),
        (
            "something else than HTTP",
            on_request(|peer| {
                peer.write_all(b"SSH-2.0-OpenSSH_9.2\r\n")?;
                Err(io::ErrorKind::ConnectionAborted.into())
            }),
            "retry_scheduled",
            violated,
        ),
    ]
}

#[test]
fn hostile_receivers_cost_little_and_only_themselves() {
    let home = Home::new();
    let (server, healthy) = (Server::start(&home), Listener::start(&[]));
    let mut client = server.client();
    let tenant = client.tenant();
    client.destination(&tenant, &healthy.url("/"), json!({"event_types": ["fine", "warm"]}));
    for _ in 0..EVENTS {
        client.event(&tenant, json!({"type": "warm"}));
    }
    healthy.records.wait_for(EVENTS);
    let before = server.resident_kib();

    let receivers = hostile();
    let mut destinations = Vec::new();
    for (kind, receiver, _, _) in &receivers {
        // One request each for every event: what is tried again is not what is asked here.
        let settings = json!({"event_types": ["mean"], "timeout_ms": 1_000, "policy": every(60_000, 3), "name": kind});
        destinations.push(text(&client.destination(&tenant, &receiver.url("/"), settings), "id"));
    }
    let (mut slowest, mut most) = (Duration::ZERO, 0);
    let mut mean = Vec::new();
    for _ in 0..EVENTS {
        mean.push(client.event(&tenant, json!({"type": "mean"})));
        let started = Instant::now();
        let fine = client.event(&tenant, json!({"type": "fine"}));
        healthy.wait_for(&fine, 200);
        slowest = slowest.max(started.elapsed());
        most = most.max(server.resident_kib());
    }
    for ((kind, _, status, first), destination) in receivers.iter().zip(&destinations) {
        let tried = client.delivery_when(destination, &mean[0], &format!("tried ({kind})"), |delivery| {
            delivery["attempts"].as_array().is_some_and(|attempts| !attempts.is_empty())
        });
        if *status == "either" {
            // Whether the head is seen before the reset is the network's choice.
            assert!(["delivered", "retry_scheduled"].contains(&tried["status"].as_str().unwrap()), "{kind}: {tried}");
            continue;
        }
        assert_eq!(tried["status"], *status, "{kind}: {tried}");
        let attempt = &tried["attempts"][0];
        for (field, expected) in first.as_object().unwrap() {
            let found =
                if field == "response" { &json!({"truncated": attempt[field]["truncated"]}) } else { &attempt[field] };
            assert_eq!(found, expected, "{kind}: {attempt}");
        }
        let kept = attempt["response"]["body"].as_str().map_or(0, str::len);
        assert!(kept <= 16 * 1024, "{kind}: {kept} bytes of the body were kept");
    }
    most = most.max(server.resident_kib());
    println!("memory {before} KiB before, {most} KiB at most; the healthy receiver waited for {slowest:?} at most");
    assert!(slowest < HEALTHY_WITHIN, "a healthy receiver had to wait for {slowest:?}");
    assert!(most < before + GROWTH_MAX_KIB, "from {before} to {most} KiB");
}
