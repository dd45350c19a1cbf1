//! HTTP/2 receivers that close their connections often: every event arrives at its first attempt, and the breaker stays closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use doorstep_core::attempt::Answer;
use doorstep_core::engine::News;
use doorstep_core::outcome::Class;
use doorstep_core::reach::Reach;
use doorstep_core::store::{DeliveryFilter, DeliveryStatus, Page};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast::error::TryRecvError;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::frames::Frames;
use crate::support::{Engine, destination, event};

/// A receiver that goes away after this many answers on each connection, and how many answers it gave.
struct Restless {
    url: String,
    certificate_pem: String,
    n_answered: Arc<AtomicUsize>,
}

impl Restless {
    async fn start(answers: usize, in_order: bool) -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config =
            config.unwrap().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let certificate_pem =
            format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(made.cert.der()));

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let (n_answered, acceptor) = (Arc::new(AtomicUsize::new(0)), TlsAcceptor::from(Arc::new(config)));
        let counted = Arc::clone(&n_answered);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, counted) = (acceptor.clone(), Arc::clone(&counted));
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, answers, in_order, &counted).await;
                    }
                });
            }
        });
        Self { url, certificate_pem, n_answered }
    }
}

/// Answers so many requests. Then it says goodbye in order, or resets the connection at the next request.
async fn serve(stream: TlsStream<TcpStream>, answers: usize, in_order: bool, n_answered: &AtomicUsize) {
    if !in_order {
        stream.get_ref().0.set_zero_linger().unwrap();
    }
    let Some(mut frames) = Frames::start(stream, None).await else { return };
    let mut last = 0;
    for _ in 0..answers {
        let Some(id) = frames.next_request().await else { return };
        n_answered.fetch_add(1, Ordering::SeqCst);
        frames.answer(id).await;
        last = last.max(id);
    }
    if in_order {
        frames.go_away(last, n_answered).await;
    } else if frames.all_read().await == Some(false) {
        frames.next_request().await;
    }
}

async fn all_arrive_at_once(receiver: &Restless, n_events: usize) {
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::start(directory.path()).await;
    let mut destination = destination(1, &receiver.url, &["*"]);
    destination.settings.tls.ca_pem = Some(receiver.certificate_pem.clone());
    engine.add(destination).await;
    let (store, mut news) = (Arc::clone(&engine.store), engine.news.subscribe());
    for n in 0..n_events {
        engine.accept(event(n, "a.b")).await.unwrap();
    }
    for _ in 0..n_events {
        // The first failure ends the test: its next attempt would come half a minute later.
        match news.recv().await.unwrap() {
            News::Attempted(attempted) => assert_eq!(attempted.outcome.class(), Class::Success, "{attempted:?}"),
            News::GateChanged { change, .. } => panic!("the gate changed: {change:?}"),
        }
    }
    engine.stop().await;
    assert_eq!(news.try_recv().map(|more| format!("{more:?}")), Err(TryRecvError::Closed), "that was all");

    let page = Page { before_seq: None, limit: 1_000 };
    let listed = store.deliveries(Reach::All, DeliveryFilter::default(), page).await.unwrap();
    assert_eq!(listed.len(), n_events);
    for one in listed {
        assert_eq!((one.status, one.delivery.requests), (DeliveryStatus::Delivered, 1));
        let history = store.delivery(Reach::All, one.delivery.id).await.unwrap().unwrap();
        let answers: Vec<Answer> = history.attempts.iter().map(|attempt| attempt.answer).collect();
        assert_eq!(answers, [Answer::Status(200)], "no failed attempt is on record");
    }
    let gate = store.destinations(None, 1).await.unwrap().remove(0).gate;
    assert!(!gate.breaker.is_tripped() && gate.breaker.trips() == 0, "{:?}", gate.breaker);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_goes_away_after_a_few_answers_gets_everything_at_the_first_attempt() {
    for answers in [3, 7] {
        let receiver = Restless::start(answers, true).await;
        all_arrive_at_once(&receiver, 300).await;
        assert_eq!(receiver.n_answered.load(Ordering::SeqCst), 300, "each once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_resets_connections_at_their_second_request_gets_everything_at_the_first_attempt() {
    all_arrive_at_once(&Restless::start(1, false).await, 60).await;
}
