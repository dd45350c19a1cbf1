//! TLS and HTTP/2.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use doorstep_core::outcome::{Fault, Outcome};
use doorstep_core::signature::{TOLERANCE_DEFAULT, verify};
use doorstep_engine::sender::{BODY_BYTES_MAX, Deadlines, PoolLimits, ROOTS_BYTES_MAX, ROOTS_MAX, Roots, TlsVersion};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{Barrier, mpsc};
use tokio_rustls::TlsAcceptor;

use crate::support::{
    AUTHORITY, Authority, Bench, NOW, Order, Peer, Receiver, SECRET, expect_fault, expect_status, settings,
};

type Answer = http::Response<Full<Bytes>>;
type Got = http::Request<Bytes>;

/// A receiver behind TLS that speaks HTTP/2, and HTTP/1.1 if it has to.
pub(crate) async fn secure(
    config: Arc<rustls::ServerConfig>,
    answer: impl Fn(usize) -> Answer + Clone + Send + 'static,
) -> (Receiver, mpsc::UnboundedReceiver<Got>) {
    let (seen, requests) = mpsc::unbounded_channel();
    let receiver = Receiver::start(move |peer, nth| {
        let (seen, answer, acceptor) = (seen.clone(), answer.clone(), TlsAcceptor::from(Arc::clone(&config)));
        async move {
            let stream = match acceptor.accept(peer.0.into_inner()).into_fallible().await {
                Ok(stream) => stream,
                // Whoever is refused has the time to read why.
                Err((_, refused)) => return Peer(BufReader::new(refused)).closed().await,
            };
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let service = service_fn(move |request: http::Request<Incoming>| {
                let (seen, answer) = (seen.clone(), answer.clone());
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    let _ = seen.send(http::Request::from_parts(head, body));
                    Ok::<_, Infallible>(answer(nth))
                }
            });
            let stream = TokioIo::new(stream);
            let _ = if http2 {
                hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await
            } else {
                hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await
            };
        }
    })
    .await;
    (receiver, requests)
}

pub(crate) fn ok(_nth: usize) -> Answer {
    http::Response::new(Full::new(Bytes::from_static(b"ok")))
}

pub(crate) fn order(receiver: &Receiver) -> Order {
    Order::to(format!("https://localhost:{}/hook?a=b", receiver.address.port()))
}

pub(crate) const BOTH: &[&[u8]] = &[b"h2", b"http/1.1"];

#[tokio::test]
async fn http2_carries_the_same_request() {
    let (receiver, mut requests) = secure(AUTHORITY.server_config("localhost", false, BOTH), ok).await;
    let payload: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let sent = Bench::default().send(&order(&receiver).with_payload(payload.clone())).await;
    expect_status(&sent, 200);
    assert_eq!(&sent.attempt.response_body[..], b"ok");
    assert!(sent.attempt.timings.tls.is_some());

    let got = requests.recv().await.unwrap();
    assert_eq!(got.version(), http::Version::HTTP_2);
    assert_eq!(got.method(), http::Method::POST);
    assert_eq!(got.uri().to_string(), format!("https://localhost:{}/hook?a=b", receiver.address.port()));
    assert!(!got.headers().contains_key("host"));
    assert!(*got.body() == payload);
    let header = |name: &'static str| got.headers().get(name).map(http::HeaderValue::as_bytes);
    verify(header, got.body(), &[SECRET.parse().unwrap()], NOW, TOLERANCE_DEFAULT).unwrap();
}

#[tokio::test]
async fn many_requests_share_one_http2_connection() {
    let (receiver, mut requests) = secure(AUTHORITY.server_config("localhost", false, BOTH), ok).await;
    let bench = Arc::new(Bench::default());
    expect_status(&bench.send(&order(&receiver)).await, 200);
    let sends: Vec<_> = (0..50)
        .map(|_| {
            let (bench, order) = (Arc::clone(&bench), order(&receiver));
            tokio::spawn(async move { bench.send(&order).await })
        })
        .collect();
    for send in sends {
        expect_status(&send.await.unwrap(), 200);
    }
    for _ in 0..51 {
        requests.recv().await.unwrap();
    }
    assert_eq!(receiver.n_connections(), 1);
}

#[tokio::test]
async fn an_http2_connection_too_has_a_lifetime_and_a_number_of_requests() {
    for pool in [
        PoolLimits { lifetime: Duration::ZERO, ..PoolLimits::default() },
        PoolLimits { streams_max: 0, ..PoolLimits::default() },
    ] {
        let (receiver, _requests) = secure(AUTHORITY.server_config("localhost", false, BOTH), ok).await;
        let mut settings = settings();
        settings.pool = pool;
        let bench = Bench::new(settings, "127.0.0.0/8");
        for n in 1..=3 {
            expect_status(&bench.send(&order(&receiver)).await, 200);
            assert_eq!(receiver.n_connections(), n);
        }
    }
}

#[tokio::test]
async fn http2_answers_are_bounded_too() {
    let endless = |_| http::Response::new(Full::new(Bytes::from(vec![b'a'; 4 << 20])));
    let (receiver, _requests) = secure(AUTHORITY.server_config("localhost", false, BOTH), endless).await;
    let bench = Bench::default();
    for _ in 0..3 {
        let sent = bench.send(&order(&receiver)).await;
        expect_status(&sent, 200);
        assert!(sent.attempt.response_truncated);
        assert_eq!(sent.attempt.response_body.len(), BODY_BYTES_MAX);
    }
    assert_eq!(receiver.n_connections(), 1, "only the stream is given up");

    let with = |n: usize, length: usize| {
        move |_| {
            let mut answer = ok(0);
            for i in 0..n {
                let name = http::HeaderName::try_from(format!("x-{i}")).unwrap();
                answer.headers_mut().insert(name, "a".repeat(length).parse().unwrap());
            }
            answer
        }
    };
    for (n, length) in [(1, 20_000), (110, 1)] {
        let config = AUTHORITY.server_config("localhost", false, BOTH);
        let (receiver, _requests) = secure(config, with(n, length)).await;
        expect_fault(&Bench::default().send(&order(&receiver)).await, Fault::ProtocolViolated);
    }
}

/// Shakes hands on HTTP/2 with each connection, and then does with its first request as told.
async fn by_hand<F>(behave: impl Fn(ByHand, h2::server::SendResponse<Bytes>) -> F + Clone + Send + 'static) -> Receiver
where
    F: Future<Output = ()> + Send + 'static,
{
    let config = AUTHORITY.server_config("localhost", false, BOTH);
    Receiver::start(move |peer, _| {
        let (behave, acceptor) = (behave.clone(), TlsAcceptor::from(Arc::clone(&config)));
        async move {
            let Ok(stream) = acceptor.accept(peer.0.into_inner()).await else { return };
            let mut connection = h2::server::handshake(stream).await.unwrap();
            if let Some(Ok((_request, respond))) = connection.accept().await {
                behave(connection, respond).await;
            }
        }
    })
    .await
}

type ByHand = h2::server::Connection<tokio_rustls::server::TlsStream<tokio::net::TcpStream>, Bytes>;

#[tokio::test]
async fn an_http2_flood_of_interim_answers_is_cut() {
    let receiver = by_hand(|mut connection, mut respond| async move {
        let hint = http::Response::builder().status(103).body(()).unwrap();
        for _ in 0..100_000 {
            respond.send_informational(hint.clone()).unwrap();
        }
        while connection.accept().await.is_some() {}
    })
    .await;
    expect_fault(&Bench::default().send(&order(&receiver)).await, Fault::ProtocolViolated);
}

#[tokio::test]
async fn an_http2_connection_that_went_away_is_replaced() {
    let receiver = by_hand(|mut connection, mut respond| async move {
        respond.send_response(http::Response::new(()), true).unwrap();
        connection.graceful_shutdown();
        while connection.accept().await.is_some() {}
    })
    .await;
    let bench = Bench::default();
    for n in 1..=5 {
        expect_status(&bench.send(&order(&receiver)).await, 200);
        assert_eq!(receiver.n_connections(), n);
    }
}

#[tokio::test]
async fn without_http2_the_connection_is_kept_alive_all_the_same() {
    let http1: &[&[u8]] = &[b"http/1.1"];
    for alpn in [http1, &[]] {
        let (receiver, mut requests) = secure(AUTHORITY.server_config("localhost", false, alpn), ok).await;
        let bench = Bench::default();
        for _ in 0..3 {
            expect_status(&bench.send(&order(&receiver)).await, 200);
            assert_eq!(requests.recv().await.unwrap().version(), http::Version::HTTP_11);
        }
        assert_eq!(receiver.n_connections(), 1);
    }
}

#[tokio::test]
async fn a_host_that_speaks_http2_no_longer_is_believed() {
    let (both, only): (&[&[u8]], &[&[u8]]) = (BOTH, &[b"http/1.1"]);
    let configs = [both, only].map(|alpn| AUTHORITY.server_config("localhost", false, alpn));
    // Speaks HTTP/2 once and then hangs up; from then on HTTP/1.1, and the last two connections only together.
    let together = Arc::new(Barrier::new(2));
    let receiver = Receiver::start(move |peer, nth| {
        let (acceptor, together) = (TlsAcceptor::from(Arc::clone(&configs[nth.min(1)])), Arc::clone(&together));
        async move {
            if nth > 1 {
                together.wait().await;
            }
            let Ok(mut stream) = acceptor.accept(peer.0.into_inner()).await else { return };
            if nth == 0 {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                let (_request, mut respond) = connection.accept().await.unwrap().unwrap();
                let _: h2::SendStream<Bytes> = respond.send_response(http::Response::new(()), true).unwrap();
                connection.graceful_shutdown();
                while connection.accept().await.is_some() {}
                return;
            }
            let mut request = vec![0; 4_096];
            while let Ok(1..) = stream.read(&mut request).await {
                stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await.unwrap();
            }
        }
    })
    .await;
    let bench = Bench::default();
    let order = order(&receiver);
    expect_status(&bench.send(&order).await, 200);
    expect_status(&bench.send(&order).await, 204);
    let (one, other) = tokio::join!(bench.send(&order), bench.send(&order));
    expect_status(&one, 204);
    expect_status(&other, 204);
}

#[tokio::test]
async fn who_cannot_prove_its_name_gets_nothing() {
    for (config, why) in [
        (AUTHORITY.server_config("other.example", false, BOTH), "not valid for name"),
        (AUTHORITY.server_config("localhost", true, BOTH), "expired"),
        (Authority::new("Theirs").server_config("localhost", false, BOTH), "UnknownIssuer"),
        (Authority::new("Ours").server_config("localhost", false, BOTH), "BadSignature"),
    ] {
        let (receiver, mut requests) = secure(config, ok).await;
        let sent = Bench::default().send(&order(&receiver)).await;
        expect_fault(&sent, Fault::TlsFailed);
        assert!(sent.detail.as_ref().unwrap().contains(why), "{:?}", sent.detail);
        assert_eq!(sent.outcome, Outcome::Unreachable);
        assert!(requests.try_recv().is_err());
    }
}

#[tokio::test]
async fn an_address_can_prove_itself_too() {
    let (receiver, _requests) = secure(AUTHORITY.server_config("127.0.0.1", false, BOTH), ok).await;
    let order = Order::to(format!("https://{}/", receiver.address));
    expect_status(&Bench::default().send(&order).await, 200);
}

#[tokio::test]
async fn tls_older_than_1_2_is_refused() {
    // A hello of TLS 1.1 that chooses the one cipher suite everybody had.
    let mut hello = vec![22, 3, 2, 0, 42, 2, 0, 0, 38, 3, 2];
    hello.extend([7; 32]);
    hello.extend([0, 0, 0x2f, 0]);
    let receiver = Receiver::start(move |mut peer, _| {
        let hello = hello.clone();
        async move {
            peer.write(hello).await;
            peer.closed().await;
        }
    })
    .await;
    expect_fault(&Bench::default().send(&order(&receiver)).await, Fault::TlsFailed);
}

#[tokio::test]
async fn where_tls_1_3_is_asked_for_1_2_is_refused() {
    for (version, accepted) in [(&rustls::version::TLS12, false), (&rustls::version::TLS13, true)] {
        let mut settings = settings();
        settings.tls_min = TlsVersion::V1_3;
        let (receiver, _requests) = secure(AUTHORITY.speaking(version), ok).await;
        let sent = Bench::new(settings, "127.0.0.0/8").send(&order(&receiver)).await;
        if accepted {
            expect_status(&sent, 200);
        } else {
            expect_fault(&sent, Fault::TlsFailed);
        }
        // Both are fine by default.
        expect_status(&Bench::default().send(&order(&receiver)).await, 200);
    }
}

#[test]
fn a_file_of_roots_is_read_or_refused_with_the_reason() {
    let (one, other) = (AUTHORITY.root_pem(), Authority::new("Theirs").root_pem());
    assert_eq!(Roots::read(format!("A comment\n{one}\n{other}").as_bytes()).unwrap().len(), 2);
    let (first, _) = one.split_at(one.len() / 2);
    let broken = one.replacen("MII", "AAA", 1);
    for (pem, word) in [
        ("", "no certificate"),
        ("not PEM at all", "no certificate"),
        (first, "cannot be read"),
        (&broken, "not a certificate"),
        (&one.repeat(ROOTS_MAX + 1), "more than 1000"),
        (&"x".repeat(ROOTS_BYTES_MAX + 1), "longer than"),
    ] {
        let fault = Roots::read(pem.as_bytes()).unwrap_err().to_string();
        assert!(fault.contains(word), "{fault}");
    }
}

#[tokio::test]
async fn a_handshake_that_goes_wrong_or_nowhere_ends() {
    let plain = Receiver::start(|mut peer, _| async move {
        peer.write("HTTP/1.1 400 This is not TLS\r\n\r\n").await;
        peer.closed().await;
    })
    .await;
    let closing = Receiver::start(|_peer, _| async {}).await;
    for receiver in [plain, closing] {
        expect_fault(&Bench::default().send(&order(&receiver)).await, Fault::TlsFailed);
    }
    let silent = Receiver::start(|mut peer, _| async move { peer.closed().await }).await;
    let mut settings = settings();
    settings.deadlines = Deadlines { tls: Duration::from_millis(200), ..Deadlines::default() };
    let sent = Bench::new(settings, "127.0.0.0/8").send(&order(&silent)).await;
    expect_fault(&sent, Fault::TlsTimedOut);
    assert!(sent.attempt.timings.tls.is_some());
}

#[tokio::test]
async fn a_hello_names_the_host_and_offers_both_protocols() {
    let (seen, mut hellos) = mpsc::unbounded_channel();
    let receiver = Receiver::start(move |mut peer, _| {
        let seen = seen.clone();
        async move {
            let mut hello = vec![0; 4_096];
            let len = peer.0.read(&mut hello).await.unwrap();
            hello.truncate(len);
            let _ = seen.send(hello);
            let _ = peer.0.shutdown().await;
        }
    })
    .await;
    expect_fault(&Bench::default().send(&order(&receiver)).await, Fault::TlsFailed);
    let hello = hellos.recv().await.unwrap();
    let contains = |part: &[u8]| hello.windows(part.len()).any(|window| window == part);
    assert!(contains(b"localhost") && contains(b"\x02h2\x08http/1.1"));
}
