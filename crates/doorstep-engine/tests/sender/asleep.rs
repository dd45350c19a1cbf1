//! A process that was stopped, or whose machine was suspended, counts nothing of it against receivers (D6).

use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use doorstep_core::outcome::Fault;
use doorstep_core::time::Millis;
use doorstep_engine::sender::{Deadlines, SendFault, SenderSettings, Sent};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::frames::Frames;
use crate::secure::{self, BOTH};
use crate::support::{AUTHORITY, Bench, OK, Order, Peer, Receiver, SHORT, expect_fault, expect_status, settings};

/// So long the senders of these tests are stopped.
const STOPPED: Duration = Duration::from_millis(2_500);
/// Over for more than a second when they go on.
const TIMEOUT: Millis = Millis(1_000);
/// By then the sender is stopped, and will be for long.
const SOON: Duration = Duration::from_millis(300);

/// Where receivers run on while the test's own thread is stopped.
static ELSEWHERE: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());

/// `behave` is called with each connection, and what stops the sender.
async fn receiver<F>(behave: impl Fn(Peer, Stop) -> F + Send + 'static) -> (Receiver, Stopped)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (stop, stopped) = mpsc::unbounded_channel();
    let start = Receiver::start(move |peer, _| behave(peer, Stop(stop.clone())));
    (ELSEWHERE.spawn(start).await.unwrap(), stopped)
}

type Stopped = mpsc::UnboundedReceiver<()>;

#[derive(Clone)]
struct Stop(mpsc::UnboundedSender<()>);

impl Stop {
    /// Stops the sender, and returns when it is stopped.
    async fn now(&self) {
        let _ = self.0.send(());
        tokio::time::sleep(SOON).await;
    }
}

/// Sends, and stops the thread that all of the sender runs on when the receiver says so.
async fn send(bench: &Bench, order: &Order, mut stopped: Stopped) -> Result<Sent, SendFault> {
    let stop = tokio::spawn(async move {
        if stopped.recv().await.is_some() {
            std::thread::sleep(STOPPED);
        }
    });
    let sent = bench.try_send(order).await;
    assert!(stop.is_finished(), "the sender was not stopped");
    sent
}

#[tokio::test]
async fn an_answer_that_came_while_the_sender_was_stopped_is_an_answer() {
    let (receiver, stopped) = receiver(|mut peer, stop| async move {
        peer.read_request().await.unwrap();
        stop.now().await;
        peer.write(OK).await;
    })
    .await;
    let sent = send(&Bench::default(), &Order::to(receiver.url()).within(TIMEOUT), stopped).await.unwrap();
    expect_status(&sent, 200);
    assert_eq!(sent.attempt.response_body, "ok");
    assert!(!sent.attempt.response_headers.pairs().is_empty());
    assert!(sent.attempt.timings.first_byte.is_some());
}

#[tokio::test]
async fn a_body_that_came_while_the_sender_was_stopped_is_whole() {
    let (receiver, stopped) = receiver(|mut peer, stop| async move {
        peer.read_request().await.unwrap();
        peer.write("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nha").await;
        tokio::time::sleep(SOON).await;
        stop.now().await;
        peer.write("lf").await;
    })
    .await;
    let deadlines = Deadlines { body: Duration::from_secs(1), ..Deadlines::default() };
    let bench = Bench::new(SenderSettings { deadlines, ..settings() }, "127.0.0.0/8");
    let sent = send(&bench, &Order::to(receiver.url()), stopped).await.unwrap();
    expect_status(&sent, 200);
    assert_eq!((&sent.attempt.response_body[..], sent.attempt.response_truncated), (&b"half"[..], false));
}

#[tokio::test]
async fn a_tls_handshake_goes_on_where_it_was_when_the_sender_was_stopped() {
    let config = AUTHORITY.server_config("localhost", false, &[]);
    let (receiver, stopped) = receiver(move |peer, stop| {
        let acceptor = TlsAcceptor::from(Arc::clone(&config));
        async move {
            let mut hello = [0];
            peer.0.get_ref().peek(&mut hello).await.unwrap();
            stop.now().await;
            let mut stream = BufReader::new(acceptor.accept(peer.0.into_inner()).await.unwrap());
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                stream.read_line(&mut line).await.unwrap();
            }
            stream.write_all(OK.as_bytes()).await.unwrap();
        }
    })
    .await;
    let sent = send(&Bench::default(), &secure::order(&receiver).within(TIMEOUT), stopped).await.unwrap();
    expect_status(&sent, 200);
}

#[tokio::test]
async fn an_answer_over_http2_that_came_while_the_sender_was_stopped_is_an_answer() {
    let config = AUTHORITY.server_config("localhost", false, BOTH);
    let (receiver, stopped) = receiver(move |peer, stop| {
        let acceptor = TlsAcceptor::from(Arc::clone(&config));
        async move {
            let stream = acceptor.accept(peer.0.into_inner()).await.unwrap();
            let mut frames = Frames::start(stream, None).await.unwrap();
            let id = frames.next_request().await.unwrap();
            stop.now().await;
            frames.answer(id).await;
            frames.next_request().await;
        }
    })
    .await;
    let sent = send(&Bench::default(), &secure::order(&receiver).within(TIMEOUT), stopped).await.unwrap();
    expect_status(&sent, 200);
}

#[tokio::test]
async fn a_receiver_has_the_rest_of_its_time_after_the_sender_was_stopped() {
    let (receiver, stopped) = receiver(|mut peer, stop| async move {
        peer.read_request().await.unwrap();
        stop.now().await;
        tokio::time::sleep(STOPPED).await;
        peer.write(OK).await;
    })
    .await;
    let sent = send(&Bench::default(), &Order::to(receiver.url()).within(Millis(1_400)), stopped).await.unwrap();
    expect_status(&sent, 200);
    assert!(sent.attempt.timings.total.0 >= 2_500, "{:?}", sent.attempt.timings);
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_after_that_either_has_timed_out() {
    let (receiver, stopped) = receiver(|mut peer, stop| async move {
        peer.read_request().await.unwrap();
        stop.now().await;
        peer.closed().await;
    })
    .await;
    let started = Instant::now();
    let sent = send(&Bench::default(), &Order::to(receiver.url()).within(TIMEOUT), stopped).await.unwrap();
    expect_fault(&sent, Fault::AnswerTimedOut);
    assert!(started.elapsed() >= STOPPED + Duration::from_millis(TIMEOUT.0), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_connection_that_was_closed_while_the_sender_was_stopped_is_our_own_fault() {
    let (receiver, stopped) = receiver(|mut peer, stop| async move {
        peer.read_request().await.unwrap();
        stop.now().await;
    })
    .await;
    let sent = send(&Bench::default(), &Order::to(receiver.url()).within(TIMEOUT), stopped).await;
    assert_eq!(sent, Err(SendFault::Asleep));
}

/// Timers do not count the time that a machine is suspended; schedule time does.
#[tokio::test]
async fn a_request_without_an_answer_across_a_suspend_is_our_own_fault() {
    for closes in [true, false] {
        for suspended in [Millis::from_secs(30), Millis::ZERO] {
            let bench = Bench::default();
            let clock = Arc::clone(&bench.clock);
            let receiver = Receiver::start(move |mut peer, _| {
                let clock = Arc::clone(&clock);
                async move {
                    peer.read_request().await.unwrap();
                    clock.fetch_add(i64::try_from(suspended.0).unwrap(), Ordering::SeqCst);
                    if !closes {
                        peer.closed().await;
                    }
                }
            })
            .await;
            let sent = bench.try_send(&Order::to(receiver.url()).within(SHORT)).await;
            if suspended > Millis::ZERO {
                assert_eq!(sent, Err(SendFault::Asleep), "closes: {closes}");
            } else {
                let fault = if closes { Fault::ConnectionLost } else { Fault::AnswerTimedOut };
                expect_fault(&sent.unwrap(), fault);
            }
        }
    }
}
