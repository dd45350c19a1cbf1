//! Where a request ends is never in doubt, and nothing about it is without bound (S8).

use crate::raw::{Raw, head, statuses};
use crate::support::{Home, Server};

const TENANT: &str = r#"{"name":"a"}"#;
/// Hidden behind another request; its answer would be a second one.
const HIDDEN: &str = "GET /healthz HTTP/1.1\r\nhost: hidden\r\n\r\n";
/// Nobody has to take that much, whatever they were promised.
const MUCH: usize = 64 << 20;

fn chunked(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

#[test]
fn requests_in_a_row_are_answered_in_a_row() {
    let home = Home::new();
    let server = Server::start(&home);
    let plain = format!("{}content-length: {}\r\n\r\n{TENANT}", head("POST /v1/tenants"), TENANT.len());
    let in_chunks = format!("{}transfer-encoding: chunked\r\n\r\n{}", head("POST /v1/tenants"), chunked(TENANT));
    let last = head("GET /v1/tenants") + "connection: close\r\n\r\n";
    let wrong = format!("{}content-length: 1\r\n\r\n{{", head("POST /v1/tenants"));
    let mut raw = Raw::saying(&server, [&*plain, &in_chunks, HIDDEN, &wrong, &plain, &last].concat());
    let all = raw.hear_all();
    assert_eq!(statuses(&all), [201, 201, 200, 400, 201, 200]);
    assert_eq!(all[5].body.matches("\"ten_").count(), 3, "{}", all[5].body);
}

#[test]
fn a_body_is_asked_for_only_if_it_is_wanted() {
    let home = Home::new();
    let server = Server::start(&home);
    let expecting = |length: usize| format!("content-length: {length}\r\nexpect: 100-continue\r\n\r\n");
    let mut wanted = Raw::saying(&server, head("POST /v1/tenants") + &expecting(TENANT.len()));
    assert_eq!(wanted.hear().unwrap().unwrap().status, 100);
    wanted.say(TENANT);
    assert_eq!(wanted.hear().unwrap().unwrap().status, 201);

    let stranger = "POST /v1/tenants HTTP/1.1\r\nhost: x\r\nauthorization: Bearer nobody\r\n";
    let cases = [
        (stranger.to_owned() + &expecting(12), 401),
        (head("POST /v1/tenants") + &expecting(1 << 30), 413),
        (head("POST /v1/events") + &expecting(1 << 30), 413),
        (head("POST /v1/events/batch") + &expecting(1 << 30), 413),
        (head("POST /v1/tenants") + "content-type: text/plain\r\n" + &expecting(12), 415),
    ];
    for (says, status) in cases {
        let says = if status == 415 { says.replacen("content-type: application/json\r\n", "", 1) } else { says };
        assert_eq!(statuses(&Raw::saying(&server, &says).hear_all()), [status], "{says}");
    }
}

#[test]
fn a_body_without_end_comes_to_one() {
    let home = Home::new();
    let server = Server::start(&home);
    let long = format!(
        "{}transfer-encoding: chunked\r\nconnection: close\r\n\r\n{}",
        head("POST /v1/tenants"),
        chunked(&" ".repeat(300_000))
    );
    let all = Raw::saying(&server, long).hear_all();
    assert_eq!(statuses(&all), [413]);
    assert!(all[0].body.contains("too_large"), "{}", all[0].body);

    let bytes = "x".repeat(0xffff);
    for path in ["/v1/tenants", "/v1/events", "/v1/events/batch", "/portal/session"] {
        let mut endless = Raw::saying(&server, head(&format!("POST {path}")) + "transfer-encoding: chunked\r\n\r\n");
        let chunk = format!("ffff\r\n{bytes}\r\n");
        let sent = (0..MUCH / chunk.len()).take_while(|_| endless.try_to_say(chunk.as_bytes()).is_ok()).count();
        assert!(sent < MUCH / chunk.len(), "{path} takes all that there is");
    }
    let mut client = server.client();
    assert_eq!(client.get("/healthz").status, 200);
    assert!(server.resident_kib() < 400 * 1024, "{} KiB are held", server.resident_kib());
}

#[test]
fn a_flood_of_headers_is_stemmed() {
    let home = Home::new();
    let server = Server::start(&home);
    let with = |headers: &str| format!("GET /healthz HTTP/1.1\r\nhost: x\r\n{headers}\r\n{HIDDEN}");
    for (what, says, status) in [
        ("too many", with(&"x-a: b\r\n".repeat(64)), 431),
        ("far too many", with(&"x-a: b\r\n".repeat(5_000)), 431),
        ("a long name", with(&format!("{}: b\r\n", "x".repeat(200_000))), 431),
        ("a long value", with(&format!("x-a: {}\r\n", "b".repeat(200_000))), 431),
        ("a long path", format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n{HIDDEN}", "a".repeat(200_000)), 414),
    ] {
        let mut raw = Raw::to(server.address);
        // It may answer and close before all of it was sent; then the answer may be lost as well.
        let _ = raw.try_to_say(says.as_bytes());
        if let Some(said) = raw.hear().unwrap() {
            assert!([431, status].contains(&said.status), "{what}: {said:?}");
        }
        assert!(!matches!(raw.hear(), Ok(Some(_))), "{what}: the connection goes on");
    }
    let mut endless = Raw::saying(&server, "GET /healthz HTTP/1.1\r\nhost: x\r\n");
    let line = format!("x-a: {}\r\n", "b".repeat(1_000));
    let sent = (0..MUCH / line.len()).take_while(|_| endless.try_to_say(line.as_bytes()).is_ok()).count();
    assert!(sent < MUCH / line.len(), "headers are taken without end");
    let trailers = head("POST /v1/tenants") + "transfer-encoding: chunked\r\n\r\n0\r\n" + &"x-a: b\r\n".repeat(5_000);
    let mut endless = Raw::to(server.address);
    let _ = endless.try_to_say(trailers.as_bytes());
    assert!(!matches!(endless.hear(), Ok(Some(said)) if said.status < 400), "trailers are taken without end");
    assert_eq!(server.client().get("/healthz").status, 200);
}

/// Of two that read a request differently, one can be made to see a request that the other does not.
#[test]
fn no_request_hides_in_another() {
    let home = Home::new();
    let server = Server::start(&home);
    let body = chunked(TENANT);
    for framing in [
        "content-length: 12\r\ncontent-length: 13\r\n",
        "content-length: 13\r\ncontent-length: 12\r\n",
        "content-length: 12, 12\r\n",
        "content-length: +12\r\n",
        "content-length: -1\r\n",
        "content-length: 0x0c\r\n",
        "content-length: 12 12\r\n",
        "content-length:\r\n",
        "content-length : 12\r\n",
        " content-length: 12\r\n",
        "content-length: 99999999999999999999\r\n",
        "transfer-encoding: identity\r\n",
        "transfer-encoding: xchunked\r\n",
        "transfer-encoding: chunked, identity\r\n",
        "transfer-encoding: identity, chunked\r\n",
        "transfer-encoding: chunked, chunked\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: \"chunked\"\r\n",
        "transfer-encoding: \x0bchunked\r\n",
        "transfer-encoding : chunked\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "content-length: 12\r\ntransfer-encoding: identity\r\n",
        "x-a: b\r\n folded: c\r\ncontent-length: 12\r\n",
        "x-a: b\rcontent-length: 12\r\n",
        "x-a: \0\r\ncontent-length: 12\r\n",
        "host: y\r\ncontent-length: 12\r\n",
    ] {
        let says = head("POST /v1/tenants") + framing + "\r\n" + &body + HIDDEN;
        assert_eq!(statuses(&Raw::saying(&server, says).hear_all()), [400], "{framing:?}");
    }
    for chunks in
        ["zz\r\n", "-c\r\n", "0xc\r\n", "ffffffffffffffff1\r\n", "c\r\n{\"name\":\"a\"}xx0\r\n\r\n", "c \x01\r\n"]
    {
        let says = head("POST /v1/tenants") + "transfer-encoding: chunked\r\n\r\n" + chunks + HIDDEN;
        assert_eq!(statuses(&Raw::saying(&server, says).hear_all()), [400], "{chunks:?}");
    }
    // RFC 9112, 6.1: the chunks count, and afterwards the connection is closed.
    for framing in
        ["content-length: 3\r\ntransfer-encoding: chunked\r\n", "transfer-encoding: chunked\r\ncontent-length: 3\r\n"]
    {
        let says = head("POST /v1/tenants") + framing + "\r\n" + &body + HIDDEN;
        assert_eq!(statuses(&Raw::saying(&server, says).hear_all()), [201], "{framing:?}");
    }
    for line in [
        "GET /healthz",
        "GET /healthz HTTP/3.0",
        "GET  /healthz HTTP/1.1",
        "GET /\x7f HTTP/1.1",
        "G\x1bT / HTTP/1.1",
        "\x16\x03\x01\x02",
    ] {
        let says = format!("{line}\r\nhost: x\r\n\r\n{HIDDEN}");
        assert_eq!(statuses(&Raw::saying(&server, says).hear_all()), [400], "{line:?}");
    }
    let mut client = server.client();
    assert_eq!(client.read("/v1/tenants")["data"].as_array().unwrap().len(), 2, "the two that were clear");
}
