//! Which connections are used again, and for how long.

use std::sync::Arc;
use std::time::Duration;

use doorstep_core::outcome::Fault;
use doorstep_engine::sender::{BODY_BYTES_MAX, Deadlines, PoolLimits};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Barrier, mpsc};

use crate::support::{Bench, OK, Order, Receiver, SHORT, expect_fault, expect_status, settings};

fn bench_with(pool: PoolLimits) -> Bench {
    let mut settings = settings();
    settings.pool = pool;
    Bench::new(settings, "127.0.0.0/8")
}

#[tokio::test]
async fn one_after_the_other_share_a_connection() {
    let bench = Bench::default();
    let empty = "HTTP/1.1 204 No Content\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    for answer in [OK, empty, chunked] {
        let (receiver, _requests) = Receiver::answering(answer).await;
        let mut order = Order::to(receiver.url());
        order.destination.id.0 = receiver.address.port().into();
        let first = bench.send(&order).await;
        assert!(first.attempt.timings.connect.is_some());
        for _ in 0..20 {
            let sent = bench.send(&order).await;
            assert_eq!(sent.attempt.timings.connect, None, "{answer:?}");
        }
        assert_eq!(receiver.n_connections(), 1, "{answer:?}");
    }
}

#[tokio::test]
async fn destinations_of_one_host_share_connections() {
    let bench = Bench::default();
    let (receiver, _requests) = Receiver::answering(OK).await;
    for id in 1..=3 {
        let mut order = Order::to(format!("{}&id={id}", receiver.url()));
        order.destination.id.0 = id;
        expect_status(&bench.send(&order).await, 200);
    }
    assert_eq!(receiver.n_connections(), 1);
}

/// Whoever can write to a connection what they like could answer the next request on it before its receiver does.
#[tokio::test]
async fn tenants_do_not_share_connections_on_which_answers_go_by_their_order() {
    let receiver = Receiver::start(|mut peer, _| async move {
        let mut taken_over = false;
        while let Some(request) = peer.read_request().await {
            taken_over |= request.line.contains("hostile");
            let status = if taken_over { "200 OK" } else { "503 Service Unavailable" };
            peer.write(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n")).await;
        }
    })
    .await;
    let bench = Bench::default();
    let order = |path: &str, tenant: u128| {
        let mut order = Order::to(format!("{}&{path}", receiver.url()));
        (order.destination.id.0, order.destination.tenant_id.0) = (tenant, tenant);
        order
    };
    let (hostile, sound) = (order("hostile", 1), order("sound", 2));
    for _ in 0..3 {
        expect_status(&bench.send(&hostile).await, 200);
        expect_status(&bench.send(&sound).await, 503);
    }
    assert_eq!(receiver.n_connections(), 2, "each has its own, and uses it again");
}

#[tokio::test]
async fn a_connection_whose_answer_was_not_read_to_its_end_is_not_used_again() {
    let length = BODY_BYTES_MAX + 1;
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{}", "a".repeat(length));
    let (receiver, _requests) = Receiver::answering(answer).await;
    let bench = Bench::default();
    for n in 1..=3 {
        expect_status(&bench.send(&Order::to(receiver.url())).await, 200);
        assert_eq!(receiver.n_connections(), n);
    }
}

#[tokio::test]
async fn a_receiver_that_closes_after_each_answer_gets_every_request() {
    let bench = Bench::default();
    for head in ["", "connection: close\r\n"] {
        let receiver = Receiver::start(move |mut peer, _| async move {
            peer.read_request().await;
            peer.write(format!("HTTP/1.1 200 OK\r\n{head}content-length: 0\r\n\r\n")).await;
        })
        .await;
        let mut order = Order::to(receiver.url());
        order.destination.id.0 = receiver.address.port().into();
        for n in 1..=10 {
            expect_status(&bench.send(&order).await, 200);
            assert_eq!(receiver.n_connections(), n);
        }
    }
}

#[tokio::test]
async fn a_pooled_connection_closed_under_a_request_is_replaced_once() {
    // The first connection answers once and then hangs up on the next request, after reading it.
    let receiver = Receiver::start(|mut peer, nth| async move {
        let n_answered = if nth == 0 { 1 } else { usize::MAX };
        for _ in 0..n_answered {
            if peer.read_request().await.is_none() {
                return;
            }
            peer.write(OK).await;
        }
        peer.read_request().await;
    })
    .await;
    let bench = Bench::default();
    let order = Order::to(receiver.url());
    for n_connections in [1, 2, 2] {
        expect_status(&bench.send(&order).await, 200);
        assert_eq!(receiver.n_connections(), n_connections);
    }
}

#[tokio::test]
async fn a_request_of_which_something_came_back_is_not_repeated() {
    let receiver = Receiver::start(|mut peer, _| async move {
        peer.read_request().await;
        peer.write(OK).await;
        peer.read_request().await;
        peer.write("HTTP/1.1 2").await;
    })
    .await;
    let bench = Bench::default();
    let order = Order::to(receiver.url());
    expect_status(&bench.send(&order).await, 200);
    expect_fault(&bench.send(&order).await, Fault::ConnectionLost);
    assert_eq!(receiver.n_connections(), 1);
}

#[tokio::test]
async fn a_request_that_timed_out_is_not_repeated() {
    let receiver = Receiver::start(|mut peer, _| async move {
        peer.read_request().await;
        peer.write(OK).await;
        peer.closed().await;
    })
    .await;
    let bench = Bench::default();
    expect_status(&bench.send(&Order::to(receiver.url())).await, 200);
    expect_fault(&bench.send(&Order::to(receiver.url()).within(SHORT)).await, Fault::AnswerTimedOut);
    assert_eq!(receiver.n_connections(), 1);
}

#[tokio::test]
async fn a_replacement_that_fails_too_is_the_end() {
    let receiver = Receiver::start(|mut peer, nth| async move {
        peer.read_request().await;
        if nth == 0 {
            peer.write(OK).await;
            peer.read_request().await;
        }
    })
    .await;
    let bench = Bench::default();
    let order = Order::to(receiver.url());
    expect_status(&bench.send(&order).await, 200);
    expect_fault(&bench.send(&order).await, Fault::ConnectionLost);
    assert_eq!(receiver.n_connections(), 2);
}

const GOODBYE: &str = "HTTP/1.1 408 Request Timeout\r\nconnection: Close\r\ncontent-length: 0\r\n\r\n";

#[tokio::test]
async fn an_idle_connection_that_ends_with_408_is_replaced() {
    // As an answer to the second request, and before anybody asked.
    for spoken_to in [true, false] {
        let receiver = Receiver::start(move |mut peer, _| async move {
            peer.read_request().await;
            peer.write(OK).await;
            if spoken_to {
                peer.read_request().await;
            }
            peer.write(GOODBYE).await;
            peer.closed().await;
        })
        .await;
        let bench = Bench::default();
        for _ in 0..10 {
            expect_status(&bench.send(&Order::to(receiver.url())).await, 200);
        }
        assert_eq!(receiver.n_connections(), 10);
    }
}

#[tokio::test]
async fn any_other_408_is_an_answer() {
    // On a new connection, and on an idle one that goes on.
    for (before, answer) in [("", GOODBYE), (OK, "HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")] {
        let receiver = Receiver::start(move |mut peer, _| async move {
            for part in [before, answer] {
                if !part.is_empty() {
                    peer.read_request().await;
                    peer.write(part).await;
                }
            }
            peer.closed().await;
        })
        .await;
        let bench = Bench::default();
        if !before.is_empty() {
            expect_status(&bench.send(&Order::to(receiver.url())).await, 200);
        }
        expect_status(&bench.send(&Order::to(receiver.url())).await, 408);
        assert_eq!(receiver.n_connections(), 1);
    }
}

#[tokio::test]
async fn a_connection_is_not_used_beyond_its_lifetime() {
    let bench = bench_with(PoolLimits { lifetime: Duration::ZERO, ..PoolLimits::default() });
    let (receiver, _requests) = Receiver::answering(OK).await;
    for n in 1..=3 {
        expect_status(&bench.send(&Order::to(receiver.url())).await, 200);
        assert_eq!(receiver.n_connections(), n);
    }
}

#[tokio::test]
async fn a_connection_that_has_waited_long_enough_is_closed() {
    let bench = bench_with(PoolLimits { idle_timeout: Duration::from_millis(50), ..PoolLimits::default() });
    let (closed, mut is_closed) = mpsc::unbounded_channel();
    let receiver = Receiver::start(move |mut peer, _| {
        let closed = closed.clone();
        async move {
            peer.read_request().await;
            peer.write(OK).await;
            peer.closed().await;
            closed.send(()).unwrap();
        }
    })
    .await;
    expect_status(&bench.send(&Order::to(receiver.url())).await, 200);
    is_closed.recv().await.unwrap();
}

/// Sends three requests at once, each over its own connection, and counts how many connections are closed after that.
async fn closed_of_three(pool: PoolLimits) -> usize {
    let bench = Arc::new(bench_with(pool));
    let all_here = Arc::new(Barrier::new(3));
    let (closed, mut is_closed) = mpsc::unbounded_channel();
    let receiver = Receiver::start(move |mut peer, _| {
        let (closed, all_here) = (closed.clone(), Arc::clone(&all_here));
        async move {
            peer.read_request().await;
            all_here.wait().await;
            peer.write(OK).await;
            while let Some(_request) = peer.read_request().await {
                peer.write(OK).await;
            }
            closed.send(()).unwrap();
        }
    })
    .await;
    let sends: Vec<_> = (0..3)
        .map(|_| {
            let (bench, order) = (Arc::clone(&bench), Order::to(receiver.url()));
            tokio::spawn(async move { bench.send(&order).await })
        })
        .collect();
    for send in sends {
        expect_status(&send.await.unwrap(), 200);
    }
    assert_eq!(receiver.n_connections(), 3);
    let mut n_closed = 0;
    let expected = 3 - pool.idle_max.min(pool.idle_per_host_max);
    while n_closed < expected {
        is_closed.recv().await.unwrap();
        n_closed += 1;
    }
    // Those that were kept still serve.
    expect_status(&bench.send(&Order::to(receiver.url())).await, 200);
    assert_eq!(receiver.n_connections(), 3);
    n_closed
}

#[tokio::test]
async fn only_so_many_connections_wait_per_host_and_in_all() {
    assert_eq!(closed_of_three(PoolLimits { idle_per_host_max: 1, ..PoolLimits::default() }).await, 2);
    assert_eq!(closed_of_three(PoolLimits { idle_max: 2, ..PoolLimits::default() }).await, 1);
}

#[tokio::test]
async fn when_too_many_wait_the_one_that_waited_longest_goes() {
    let bench = bench_with(PoolLimits { idle_max: 2, ..PoolLimits::default() });
    let mut receivers = Vec::new();
    for _ in 0..3 {
        receivers.push(Receiver::answering(OK).await.0);
    }
    let orders: Vec<_> = (1u128..)
        .zip(&receivers)
        .map(|(id, receiver)| {
            let mut order = Order::to(receiver.url());
            order.destination.id.0 = id;
            order
        })
        .collect();
    // The third takes the place of the first; asking the first again takes that of the second.
    for nth in [0, 1, 2, 2, 0, 1] {
        expect_status(&bench.send(&orders[nth]).await, 200);
    }
    let n_connections: Vec<_> = receivers.iter().map(Receiver::n_connections).collect();
    assert_eq!(n_connections, [2, 2, 1]);
}

#[tokio::test]
async fn nobody_listening_is_refused() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let sent = Bench::default().send(&Order::to(format!("http://{address}/"))).await;
    expect_fault(&sent, Fault::ConnectRefused);
    assert!(sent.attempt.timings.connect.is_some() && sent.attempt.timings.first_byte.is_none());
}

#[tokio::test]
async fn a_receiver_that_does_not_accept_is_given_up() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    // Its queue is full when a connection no longer comes about.
    let mut waiting = Vec::new();
    while let Ok(stream) = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
        waiting.push(stream);
    }
    let mut settings = settings();
    settings.deadlines = Deadlines { connect: Duration::from_millis(100), ..Deadlines::default() };
    let sent = Bench::new(settings, "127.0.0.0/8").send(&Order::to(format!("http://{address}/"))).await;
    expect_fault(&sent, Fault::ConnectTimedOut);
}
