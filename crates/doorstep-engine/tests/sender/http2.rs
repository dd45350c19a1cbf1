//! HTTP/2 receivers that close, refuse and limit: none of it costs a failed attempt.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use doorstep_core::outcome::{Fault, Outcome};
use doorstep_engine::sender::{NOT_PROCESSED_RESENDS_MAX, OPENINGS_PER_HOST_MAX};
use tokio::net::TcpStream;
use tokio::sync::{Barrier, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::frames::Frames;
use crate::secure::{BOTH, order};
use crate::support::{AUTHORITY, Bench, Order, Receiver, expect_fault, expect_status};

type Secure = TlsStream<TcpStream>;

/// A receiver that has agreed on HTTP/2 with each connection, and behaves as told from there.
async fn receiver<F>(behave: impl Fn(Secure, usize) -> F + Clone + Send + 'static) -> Receiver
where
    F: Future<Output = ()> + Send + 'static,
{
    let config = AUTHORITY.server_config("localhost", false, BOTH);
    Receiver::start(move |peer, nth| {
        let (behave, acceptor) = (behave.clone(), TlsAcceptor::from(Arc::clone(&config)));
        async move {
            if let Ok(stream) = acceptor.accept(peer.0.into_inner()).await {
                behave(stream, nth).await;
            }
        }
    })
    .await
}

/// Sends `n` requests, `at_once` of them at a time, and expects 200 from all.
async fn send_all(bench: &Arc<Bench>, order: &Order, n: usize, at_once: usize) {
    let workers: Vec<_> = (0..at_once)
        .map(|worker| {
            let (bench, order) = (Arc::clone(bench), order.clone());
            tokio::spawn(async move {
                for _ in (worker..n).step_by(at_once) {
                    expect_status(&bench.send(&order).await, 200);
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
}

#[tokio::test]
async fn streams_above_the_last_one_of_a_goaway_are_sent_again() {
    for answers in [1, 3, 7] {
        let n_answered = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&n_answered);
        let receiver = receiver(move |stream, _| {
            let n_answered = Arc::clone(&counted);
            async move {
                let Some(mut frames) = Frames::start(stream, None).await else { return };
                let mut last = 0;
                for _ in 0..answers {
                    let Some(id) = frames.next_request().await else { return };
                    n_answered.fetch_add(1, Ordering::SeqCst);
                    frames.answer(id).await;
                    last = last.max(id);
                }
                frames.go_away(last, &n_answered).await;
            }
        })
        .await;
        send_all(&Arc::new(Bench::default()), &order(&receiver), 300, 20).await;
        assert_eq!(n_answered.load(Ordering::SeqCst), 300, "each is processed once");
    }
}

#[tokio::test]
async fn a_refused_stream_is_sent_again_also_if_it_is_the_first_of_its_connection() {
    let receiver = receiver(|stream, nth| async move {
        let Some(mut frames) = Frames::start(stream, None).await else { return };
        let mut refusals = if nth == 0 { 2 } else { 0 };
        while let Some(id) = frames.next_request().await {
            if refusals > 0 {
                refusals -= 1;
                frames.refuse(id).await;
            } else {
                frames.answer(id).await;
            }
        }
    })
    .await;
    let bench = Bench::default();
    for _ in 0..3 {
        expect_status(&bench.send(&order(&receiver)).await, 200);
    }
    // The second refusal made it open a connection of its own.
    assert_eq!(receiver.n_connections(), 2);
}

#[tokio::test]
async fn a_receiver_that_refuses_for_ever_has_failed_after_a_few_tries() {
    for goes_away in [false, true] {
        let n_refused = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&n_refused);
        let receiver = receiver(move |stream, _| {
            let n_refused = Arc::clone(&counted);
            async move {
                let Some(mut frames) = Frames::start(stream, None).await else { return };
                while let Some(id) = frames.next_request().await {
                    n_refused.fetch_add(1, Ordering::SeqCst);
                    if goes_away {
                        frames.go_away(0, &AtomicUsize::new(0)).await;
                        return;
                    }
                    frames.refuse(id).await;
                }
            }
        })
        .await;
        let sent = Bench::default().send(&order(&receiver)).await;
        expect_fault(&sent, Fault::ConnectionLost);
        assert_eq!(sent.outcome, Outcome::Unreachable);
        let tries = usize::try_from(NOT_PROCESSED_RESENDS_MAX).unwrap() + 1;
        assert_eq!(n_refused.load(Ordering::SeqCst), tries);
        assert!(receiver.n_connections() <= tries);
    }
}

#[tokio::test]
async fn a_request_that_the_receiver_may_have_processed_is_not_sent_again() {
    let n_requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&n_requests);
    let receiver = receiver(move |stream, _| {
        let n_requests = Arc::clone(&counted);
        async move {
            let Some(mut frames) = Frames::start(stream, None).await else { return };
            let Some(id) = frames.next_request().await else { return };
            n_requests.fetch_add(1, Ordering::SeqCst);
            // It counts this stream among those that it processed, and closes without an answer.
            frames.abandon(id).await;
        }
    })
    .await;
    expect_fault(&Bench::default().send(&order(&receiver)).await, Fault::ConnectionLost);
    assert_eq!(n_requests.load(Ordering::SeqCst), 1);
}

/// Speaks HTTP/2, and cuts the connection as soon as it has read request number `nth`.
async fn cutting(stream: Secure, nth: usize, n_requests: &AtomicUsize) {
    let Some(mut frames) = Frames::start(Resetting(stream), None).await else { return };
    for _ in 1..nth {
        let Some(id) = frames.next_request().await else { return };
        n_requests.fetch_add(1, Ordering::SeqCst);
        frames.answer(id).await;
    }
    if frames.next_request().await.is_some() {
        n_requests.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_connection_that_is_reset_at_its_second_request_is_replaced() {
    let receiver = receiver(|stream, _| async move { cutting(stream, 2, &AtomicUsize::new(0)).await }).await;
    let bench = Arc::new(Bench::default());
    for at_once in [1, 10] {
        send_all(&bench, &order(&receiver), 60, at_once).await;
    }
}

#[tokio::test]
async fn a_request_goes_out_once_more_over_a_new_connection_and_that_is_all() {
    let n_requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&n_requests);
    let receiver = receiver(move |stream, nth| {
        let n_requests = Arc::clone(&counted);
        async move { cutting(stream, if nth == 0 { 2 } else { 1 }, &n_requests).await }
    })
    .await;
    let bench = Bench::default();
    expect_status(&bench.send(&order(&receiver)).await, 200);
    expect_fault(&bench.send(&order(&receiver)).await, Fault::ConnectionLost);
    assert_eq!((n_requests.load(Ordering::SeqCst), receiver.n_connections()), (3, 2));
}

#[tokio::test]
async fn a_receivers_limit_of_streams_is_respected() {
    const STREAMS_MAX: u8 = 3;
    const BURST: usize = 20;
    let most_open = Arc::new(AtomicUsize::new(0));
    let (seen, all_here) = (Arc::clone(&most_open), Arc::new(Barrier::new(BURST)));
    let receiver = receiver(move |stream, _| {
        let (most_open, all_here) = (Arc::clone(&seen), Arc::clone(&all_here));
        async move {
            let Some(mut frames) = Frames::start(stream, Some(STREAMS_MAX)).await else { return };
            let (answers, mut answered) = mpsc::unbounded_channel();
            loop {
                tokio::select! {
                    frame = frames.next_frame() => {
                        let Some(ended) = frame else { return };
                        most_open.fetch_max(frames.n_open, Ordering::SeqCst);
                        if let Some(id) = ended {
                            let (answers, all_here) = (answers.clone(), Arc::clone(&all_here));
                            tokio::spawn(async move {
                                all_here.wait().await;
                                let _ = answers.send(id);
                            });
                        }
                    }
                    Some(id) = answered.recv() => frames.answer(id).await,
                }
            }
        }
    })
    .await;
    let bench = Arc::new(Bench::default());
    for _ in 0..5 {
        // They are all under way at the same time, over as many connections as that takes.
        send_all(&bench, &order(&receiver), BURST, BURST).await;
    }
    assert_eq!(most_open.load(Ordering::SeqCst), usize::from(STREAMS_MAX));
    let needed = BURST.div_ceil(STREAMS_MAX.into());
    assert!(
        (needed..needed + OPENINGS_PER_HOST_MAX).contains(&receiver.n_connections()),
        "{}",
        receiver.n_connections()
    );
}

#[tokio::test]
async fn a_cold_burst_opens_a_few_connections_only() {
    const BURST: usize = 20;
    // Nobody is answered before all have come: they are under way at the same time.
    let all_here = Arc::new(Barrier::new(BURST));
    let receiver = receiver(move |stream, _| {
        let all_here = Arc::clone(&all_here);
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((_request, mut respond))) = connection.accept().await {
                let all_here = Arc::clone(&all_here);
                tokio::spawn(async move {
                    all_here.wait().await;
                    let _: Result<h2::SendStream<Bytes>, _> = respond.send_response(http::Response::new(()), true);
                });
            }
        }
    })
    .await;
    send_all(&Arc::new(Bench::default()), &order(&receiver), BURST, BURST).await;
    assert!(receiver.n_connections() <= OPENINGS_PER_HOST_MAX, "{}", receiver.n_connections());
}

/// Resets its connection when it is dropped, instead of closing it in order.
struct Resetting(Secure);

impl Drop for Resetting {
    fn drop(&mut self) {
        self.0.get_ref().0.set_zero_linger().unwrap();
    }
}

impl tokio::io::AsyncRead for Resetting {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl tokio::io::AsyncWrite for Resetting {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::pin::Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
