//! Receivers that are slow, broken or malicious.

use std::time::{Duration, Instant};

use doorstep_core::attempt::Answer;
use doorstep_core::outcome::{Fault, Outcome};
use doorstep_engine::sender::{BODY_BYTES_MAX, Deadlines};
use tokio::sync::mpsc;

use crate::support::{Bench, LONG, OK, Order, Receiver, SHORT, expect_fault, expect_status, settings};

const ACCEPTED: Outcome = Outcome::Accepted { quota: None };

/// Far less than [`LONG`], far more than an answer takes on a busy machine.
const SOON: Duration = Duration::from_secs(10);

/// Sends to a receiver that answers with these bytes and then waits for the connection to be closed.
async fn answered_with(bytes: impl AsRef<[u8]> + Clone + Send + Sync + 'static) -> doorstep_engine::sender::Sent {
    let receiver = Receiver::start(move |mut peer, _| {
        let bytes = bytes.clone();
        async move {
            peer.read_request().await;
            peer.write(bytes).await;
            peer.closed().await;
        }
    })
    .await;
    let started = Instant::now();
    let sent = Bench::default().send(&Order::to(receiver.url()).within(LONG)).await;
    assert!(started.elapsed() < SOON, "{sent:?}");
    assert_eq!(receiver.n_connections(), 1, "tried again on a new connection: {sent:?}");
    sent
}

#[tokio::test]
async fn headers_that_drip_are_cut() {
    let receiver = Receiver::start(|mut peer, _| async move {
        peer.read_request().await;
        peer.write("HTTP/1.1 200 OK\r\nx-drip: ").await;
        peer.drip("a").await;
    })
    .await;
    let sent = Bench::default().send(&Order::to(receiver.url()).within(SHORT)).await;
    expect_fault(&sent, Fault::AnswerTimedOut);
    assert!(sent.attempt.timings.total >= SHORT);
}

#[tokio::test]
async fn a_body_that_drips_is_cut_and_the_status_counts() {
    let deadlines = Deadlines { body: Duration::from_millis(100), ..Deadlines::default() };
    let mut settings = settings();
    settings.deadlines = deadlines;
    let bench = Bench::new(settings, "127.0.0.0/8");
    let (over, mut is_over) = mpsc::unbounded_channel();
    let receiver = Receiver::start(move |mut peer, _| {
        let over = over.clone();
        async move {
            peer.read_request().await;
            peer.write("HTTP/1.1 200 OK\r\ncontent-length: 10000\r\n\r\n").await;
            peer.drip("a").await;
            over.send(()).unwrap();
        }
    })
    .await;
    let sent = bench.send(&Order::to(receiver.url()).within(LONG)).await;
    expect_status(&sent, 200);
    assert_eq!(sent.outcome, ACCEPTED);
    assert!(sent.attempt.response_truncated);
    assert!(sent.attempt.timings.total < LONG);
    is_over.recv().await.unwrap();
}

#[tokio::test]
async fn the_body_counts_towards_the_timeout() {
    let receiver = Receiver::start(|mut peer, _| async move {
        peer.read_request().await;
        peer.write("HTTP/1.1 503 No\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
        peer.closed().await;
    })
    .await;
    let sent = Bench::default().send(&Order::to(receiver.url()).within(SHORT)).await;
    expect_status(&sent, 503);
    assert!(sent.attempt.response_truncated);
    assert_eq!(&sent.attempt.response_body[..], b"hello");
}

#[tokio::test]
async fn of_an_endless_body_the_beginning_is_kept_and_the_connection_is_cut() {
    for head in ["", "content-length: 99999999\r\n", "transfer-encoding: chunked\r\n"] {
        let chunk = if head.starts_with('t') { "2000\r\n" } else { "" };
        let (over, mut is_over) = mpsc::unbounded_channel();
        let receiver = Receiver::start(move |mut peer, _| {
            let over = over.clone();
            async move {
                peer.read_request().await;
                peer.write(format!("HTTP/1.1 202 Accepted\r\n{head}\r\n")).await;
                while peer.write(format!("{chunk}{}{}", "a".repeat(0x2000), &"\r\n"[..chunk.len().min(2)])).await {}
                over.send(()).unwrap();
            }
        })
        .await;
        let sent = Bench::default().send(&Order::to(receiver.url())).await;
        expect_status(&sent, 202);
        assert_eq!(sent.outcome, ACCEPTED);
        assert!(sent.attempt.response_truncated);
        assert_eq!(sent.attempt.response_body.len(), BODY_BYTES_MAX);
        is_over.recv().await.unwrap();
    }
}

#[tokio::test]
async fn a_body_of_just_the_limit_is_whole() {
    for (length, truncated) in [(BODY_BYTES_MAX, false), (BODY_BYTES_MAX + 1, true)] {
        let body = "a".repeat(length);
        let sent = answered_with(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}")).await;
        assert_eq!(sent.attempt.response_body.len(), BODY_BYTES_MAX);
        assert_eq!(sent.attempt.response_truncated, truncated);
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_changes_nothing_but_its_own_length() {
    for body in ["content-length: 9\r\n\r\nab", "transfer-encoding: chunked\r\n\r\nzz\r\nab"] {
        let receiver = Receiver::start(move |mut peer, _| async move {
            peer.read_request().await;
            peer.write(format!("HTTP/1.1 200 OK\r\n{body}")).await;
        })
        .await;
        let sent = Bench::default().send(&Order::to(receiver.url())).await;
        expect_status(&sent, 200);
        assert_eq!(sent.outcome, ACCEPTED);
        assert!(sent.attempt.response_truncated);
    }
}

#[tokio::test]
async fn a_flood_of_interim_answers_is_cut_before_the_timeout() {
    let receiver = Receiver::start(|mut peer, _| async move {
        peer.read_request().await;
        while peer.write("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(100)).await {}
    })
    .await;
    let started = Instant::now();
    expect_fault(&Bench::default().send(&Order::to(receiver.url())).await, Fault::ProtocolViolated);
    assert!(started.elapsed() < SOON);
}

#[tokio::test]
async fn a_few_interim_answers_are_skipped() {
    let sent = answered_with(format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n{OK}")).await;
    expect_status(&sent, 200);
}

#[tokio::test]
async fn an_upgrade_that_nobody_asked_for_is_no_success() {
    let sent = answered_with("HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhello").await;
    expect_status(&sent, 101);
    assert_eq!(sent.outcome, Outcome::Ambiguous { status: 101, wait: None });
}

#[tokio::test]
async fn headers_that_are_too_long_or_too_many_are_refused() {
    let with = |headers: String| answered_with(format!("HTTP/1.1 200 OK\r\n{headers}content-length: 0\r\n\r\n"));
    let numbered = |n: usize| (0..n).map(|i| format!("x-{i}: a\r\n")).collect::<String>();
    expect_fault(&with(format!("x-long: {}\r\n", "a".repeat(200_000))).await, Fault::ProtocolViolated);
    expect_fault(&with(numbered(100)).await, Fault::ProtocolViolated);
    expect_status(&with(format!("x-long: {}\r\n", "a".repeat(60_000))).await, 200);
    let sent = with(numbered(99)).await;
    expect_status(&sent, 200);
    assert_eq!(sent.attempt.response_headers.pairs().len(), 100);
}

#[tokio::test]
async fn what_is_not_http_is_a_violation() {
    for nonsense in [
        "SSH-2.0-OpenSSH_9.6\r\n",
        "\0\0\0\u{1}garbage\r\n\r\n",
        "HTTP/9.9 200 OK\r\n\r\n",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
    ] {
        let sent = answered_with(nonsense).await;
        assert_eq!(sent.attempt.answer, Answer::Fault(Fault::ProtocolViolated), "{nonsense:?} {:?}", sent.detail);
    }
}

#[tokio::test]
async fn who_speaks_first_does_not_speak_http() {
    let receiver = Receiver::start(|mut peer, _| async move {
        peer.write("220 mail.example ESMTP\r\n").await;
        peer.closed().await;
    })
    .await;
    expect_fault(&Bench::default().send(&Order::to(receiver.url())).await, Fault::ProtocolViolated);
}

#[tokio::test]
async fn who_accepts_and_says_nothing_is_given_up() {
    let receiver = Receiver::start(|mut peer, _| async move { peer.closed().await }).await;
    expect_fault(&Bench::default().send(&Order::to(receiver.url()).within(SHORT)).await, Fault::AnswerTimedOut);
}

#[tokio::test]
async fn who_does_not_even_read_is_given_up() {
    let receiver = Receiver::start(|peer, _| async move {
        std::future::pending::<()>().await;
        drop(peer);
    })
    .await;
    let order = Order::to(receiver.url()).within(SHORT).with_payload(vec![0; 8 << 20]);
    expect_fault(&Bench::default().send(&order).await, Fault::AnswerTimedOut);
}

#[tokio::test]
async fn a_connection_closed_or_reset_before_the_status_line_is_lost() {
    let closing = Receiver::start(|mut peer, _| async move {
        peer.read_request().await;
    })
    .await;
    let resetting = Receiver::start(|peer, _| async move { peer.0.get_ref().set_zero_linger().unwrap() }).await;
    let half = Receiver::start(|mut peer, _| async move {
        peer.read_request().await;
        peer.write("HTTP/1.1 20").await;
    })
    .await;
    for receiver in [closing, resetting, half] {
        expect_fault(&Bench::default().send(&Order::to(receiver.url())).await, Fault::ConnectionLost);
        assert_eq!(receiver.n_connections(), 1, "a new connection that fails is not replaced");
    }
}

#[tokio::test]
async fn an_answer_before_the_request_was_read_counts() {
    let receiver = Receiver::start(|mut peer, _| async move {
        peer.read_head().await;
        peer.write("HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n").await;
        std::future::pending::<()>().await;
    })
    .await;
    let order = Order::to(receiver.url()).with_payload(vec![0; 8 << 20]);
    let sent = Bench::default().send(&order).await;
    expect_status(&sent, 413);
    assert_eq!(sent.outcome, Outcome::Rejected { status: 413 });
}
