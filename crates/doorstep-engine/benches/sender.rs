//! What one request costs the sender's thread, beside the same over bare hyper: `cargo bench -p doorstep-engine`.
//!
//! Both go to a receiver on loopback that has a thread of its own, over connections that are kept. Compare the rows,
//! not the figures: they differ from machine to machine.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for people")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use doorstep_core::address::AddressRules;
use doorstep_core::attempt::Answer;
use doorstep_core::clock::Now;
use doorstep_core::consent::Verification;
use doorstep_core::delivery::{Delivery, Ordering};
use doorstep_core::destination::{Destination, DestinationSecrets, DestinationSettings, SigningSecret, TlsSettings};
use doorstep_core::event::Event;
use doorstep_core::gate::GateLimits;
use doorstep_core::id::{AttemptId, DeliveryId, DestinationId, EventId, TenantId};
use doorstep_core::outcome::StatusOverrides;
use doorstep_core::output::{Format, PayloadMode};
use doorstep_core::retry::{Progress, RetryPolicy};
use doorstep_core::route::Subscription;
use doorstep_core::time::{Millis, Timestamp};
use doorstep_engine::sender::{Request, Sender, SenderSettings};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

const REQUESTS: usize = 50_000;
const IN_FLIGHT: usize = 64;
const PAYLOAD_BYTES: usize = 1_024;

fn main() {
    let receiver = start_receiver();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for _ in 0..3 {
        LocalSet::new().block_on(&runtime, bare_hyper(receiver));
        LocalSet::new().block_on(&runtime, doorstep(receiver));
    }
}

async fn bare_hyper(receiver: SocketAddr) {
    let body = Bytes::from(vec![b'a'; PAYLOAD_BYTES]);
    let mut senders = Vec::new();
    for _ in 0..IN_FLIGHT {
        let stream = TokioIo::new(TcpStream::connect(receiver).await.unwrap());
        let (sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        tokio::task::spawn_local(connection);
        senders.push(Rc::new(RefCell::new(sender)));
    }
    measure("bare hyper", move |worker| {
        let (sender, body) = (Rc::clone(&senders[worker]), body.clone());
        async move {
            let request = http::Request::post("/hook").header("host", "localhost").body(Full::new(body)).unwrap();
            std::future::poll_fn(|cx| sender.borrow_mut().poll_ready(cx)).await.unwrap();
            let response = sender.borrow_mut().send_request(request);
            assert_eq!(response.await.unwrap().into_body().collect().await.unwrap().to_bytes().len(), 2);
        }
    })
    .await;
}

async fn doorstep(receiver: SocketAddr) {
    let at = Timestamp::from_secs(1_700_000_000);
    let now = move || Now { at, wall: at };
    let rules = AddressRules::default().allowing("127.0.0.0/8").unwrap();
    let sender = Sender::new(SenderSettings::default(), rules, now, |_| AttemptId(1)).unwrap();
    let all = Rc::new((sender, destination(format!("http://{receiver}/hook")), event(), delivery()));
    measure("doorstep", move |_| {
        let all = Rc::clone(&all);
        async move {
            let (sender, destination, event, delivery) = &*all;
            let sent = sender.send(Request { destination, event, delivery, replay_id: None }).await.unwrap();
            assert_eq!(sent.attempt.answer, Answer::Status(200));
        }
    })
    .await;
}

async fn measure<F: Future<Output = ()> + 'static>(name: &str, work: impl Fn(usize) -> F + Clone + 'static) {
    let (started, cpu_before) = (Instant::now(), cpu_nanos());
    let workers: Vec<_> = (0..IN_FLIGHT)
        .map(|worker| {
            let work = work.clone();
            tokio::task::spawn_local(async move {
                for _ in 0..REQUESTS / IN_FLIGHT {
                    work(worker).await;
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    let n = REQUESTS / IN_FLIGHT * IN_FLIGHT;
    let (cpu, elapsed) = ((cpu_nanos() - cpu_before) as f64, started.elapsed().as_secs_f64());
    println!("{name:12} {:6.1} µs of CPU per request, {:7.0} requests/s", cpu / 1e3 / n as f64, n as f64 / elapsed);
}

/// What this thread has used so far.
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Reads requests of a known body and answers each with the same bytes.
fn start_receiver() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(answer(stream));
            }
        });
    });
    address
}

async fn answer(mut stream: TcpStream) {
    let mut read = vec![0; 16_384];
    let mut len = 0;
    while let Ok(n @ 1..) = stream.read(&mut read[len..]).await {
        len += n;
        let head = read[..len].windows(4).position(|window| window == b"\r\n\r\n");
        if head.is_some_and(|head| len >= head + 4 + PAYLOAD_BYTES) {
            len = 0;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        }
    }
}

fn destination(url: String) -> Destination {
    let text = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".to_owned();
    Destination {
        id: DestinationId(1),
        tenant_id: TenantId(1),
        settings: DestinationSettings {
            name: None,
            url,
            subscription: Subscription::default(),
            policy: RetryPolicy::standard(),
            status_overrides: StatusOverrides::default(),
            limits: GateLimits::default(),
            ordering: Ordering::Unordered,
            timeout: Millis::from_secs(15),
            extra_signatures: BTreeSet::new(),
            tls: TlsSettings::default(),
            payload_mode: PayloadMode::Full,
            format: Format::Plain,
            send_traceparent: true,
            verification: Verification::default(),
            chosen: None,
            preset: None,
        },
        secrets: DestinationSecrets {
            signing: vec![SigningSecret { text: text.into(), retires_at: None }],
            ..DestinationSecrets::default()
        },
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
        version: 1,
        consent: None,
    }
}

fn event() -> Event {
    Event {
        id: EventId::generated(1),
        tenant_id: TenantId(1),
        event_type: "invoice.paid".parse().unwrap(),
        content_type: "application/json".into(),
        payload: Bytes::from(vec![b'a'; PAYLOAD_BYTES]),
        ordering_key: None,
        produced_at: None,
        schema_version: None,
        headers: vec![],
        ttl: None,
        accepted_at: Timestamp(0),
        wall_offset_ms: 0,
        trace: None,
        cloud: None,
    }
}

fn delivery() -> Delivery {
    let progress = Progress { attempts: 0, ambiguous: 0, last_delay: Millis::ZERO, give_up_at: Timestamp::MAX };
    Delivery {
        id: DeliveryId(1),
        event_seq: 1,
        destination_id: DestinationId(1),
        seq: 1,
        due_at: Timestamp(0),
        requests: 0,
        progress,
        ordering: None,
        unreadable: 0,
    }
}
