//! Receivers on loopback that behave as told, and the senders that meet them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use doorstep_core::address::AddressRules;
use doorstep_core::attempt::Answer;
use doorstep_core::clock::Now;
use doorstep_core::consent::Verification;
use doorstep_core::delivery::{Delivery, Ordering as KeyOrdering};
use doorstep_core::destination::{Destination, DestinationSecrets, DestinationSettings, SigningSecret, TlsSettings};
use doorstep_core::event::Event;
use doorstep_core::gate::GateLimits;
use doorstep_core::id::{AttemptId, DeliveryId, DestinationId, EventId, TenantId};
use doorstep_core::outcome::{Fault, Outcome, StatusOverrides};
use doorstep_core::output::{Format, PayloadMode};
use doorstep_core::retry::{Progress, RetryPolicy};
use doorstep_core::route::Subscription;
use doorstep_core::time::{Millis, Timestamp};
use doorstep_engine::resolve::{DnsSettings, NameServers};
use doorstep_engine::sender::{
    Deadlines, PoolLimits, Request, Roots, SendFault, Sender, SenderSettings, Sent, TlsVersion,
};
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

pub(crate) const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
pub(crate) const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// A timeout that a test waits for.
pub(crate) const SHORT: Millis = Millis(300);
/// A timeout that no test should see the end of.
pub(crate) const LONG: Millis = Millis(20_000);

pub(crate) fn settings() -> SenderSettings {
    SenderSettings {
        deadlines: Deadlines::default(),
        pool: PoolLimits::default(),
        // Nobody listens there: a test that needs DNS brings its own server.
        dns: DnsSettings { servers: NameServers::These(vec!["127.0.0.1:1".parse().unwrap()]), ..Default::default() },
        roots: Roots::Only(vec![AUTHORITY.root.clone()]),
        tls_min: TlsVersion::default(),
        public_url: "https://hooks.example".to_owned(),
        body_bytes_max: None,
    }
}

/// A sender, and the clock that it reads.
pub(crate) struct Bench {
    pub(crate) sender: Arc<Sender>,
    pub(crate) clock: Arc<AtomicI64>,
}

impl Bench {
    pub(crate) fn new(settings: SenderSettings, allowed: &str) -> Self {
        let clock = Arc::new(AtomicI64::new(NOW.0));
        let reading = Arc::clone(&clock);
        let now = move || {
            let at = Timestamp(reading.load(Ordering::SeqCst));
            Now { at, wall: at }
        };
        let rules = AddressRules::default().allowing(allowed).unwrap();
        let ids = |at: Timestamp| AttemptId(u128::try_from(at.0).unwrap());
        Self { sender: Arc::new(Sender::new(settings, rules, now, ids).unwrap()), clock }
    }

    pub(crate) async fn send(&self, order: &Order) -> Sent {
        self.try_send(order).await.unwrap()
    }

    pub(crate) async fn try_send(&self, order: &Order) -> Result<Sent, SendFault> {
        let Order { destination, event, delivery, replay_id } = order;
        let replay_id = replay_id.as_deref();
        self.sender.send(Request { destination, event, delivery, replay_id }).await
    }
}

impl Default for Bench {
    fn default() -> Self {
        Self::new(settings(), "127.0.0.0/8")
    }
}

/// All that one request needs.
#[derive(Clone)]
pub(crate) struct Order {
    pub(crate) destination: Destination,
    pub(crate) event: Event,
    pub(crate) delivery: Delivery,
    pub(crate) replay_id: Option<String>,
}

impl Order {
    pub(crate) fn to(url: impl Into<String>) -> Self {
        let settings = DestinationSettings {
            name: None,
            url: url.into(),
            subscription: Subscription::default(),
            policy: RetryPolicy::standard(),
            status_overrides: StatusOverrides::default(),
            limits: GateLimits::default(),
            ordering: KeyOrdering::Unordered,
            timeout: LONG,
            extra_signatures: BTreeSet::new(),
            tls: TlsSettings::default(),
            payload_mode: PayloadMode::Full,
            format: Format::Plain,
            send_traceparent: true,
            verification: Verification::default(),
            chosen: None,
            preset: None,
        };
        let secrets = DestinationSecrets {
            signing: vec![SigningSecret { text: SECRET.to_owned().into(), retires_at: None }],
            ..DestinationSecrets::default()
        };
        let destination = Destination {
            id: DestinationId(1),
            tenant_id: TenantId(1),
            settings,
            secrets,
            created_at: NOW,
            updated_at: NOW,
            version: 1,
            consent: None,
        };
        let event = Event {
            id: EventId::new("evt-1").unwrap(),
            tenant_id: TenantId(1),
            event_type: "invoice.paid".parse().unwrap(),
            content_type: "application/json".into(),
            payload: Bytes::from_static(b"{\"n\": 1}"),
            ordering_key: None,
            produced_at: None,
            schema_version: None,
            headers: vec![],
            ttl: None,
            accepted_at: NOW,
            wall_offset_ms: 0,
            trace: None,
            cloud: None,
        };
        let progress = Progress { attempts: 0, ambiguous: 0, last_delay: Millis::ZERO, give_up_at: Timestamp::MAX };
        let delivery = Delivery {
            id: DeliveryId(7),
            event_seq: 1,
            destination_id: DestinationId(1),
            seq: 1,
            due_at: NOW,
            requests: 0,
            progress,
            ordering: None,
            unreadable: 0,
        };
        Self { destination, event, delivery, replay_id: None }
    }

    pub(crate) fn within(mut self, timeout: Millis) -> Self {
        self.destination.settings.timeout = timeout;
        self
    }

    pub(crate) fn with_payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.event.payload = payload.into();
        self
    }
}

#[track_caller]
pub(crate) fn expect_fault(sent: &Sent, fault: Fault) {
    assert_eq!(sent.attempt.answer, Answer::Fault(fault), "{:?}", sent.detail);
    assert_eq!(sent.outcome, Outcome::from_fault(fault));
    assert!(sent.detail.is_some());
}

#[track_caller]
pub(crate) fn expect_status(sent: &Sent, status: u16) {
    assert_eq!(sent.attempt.answer, Answer::Status(status), "{:?}", sent.detail);
    assert_eq!(sent.detail, None);
}

/// Somebody who listens.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Receiver {
    /// `behave` is called with each connection and its number, from 0.
    pub(crate) async fn start<F>(behave: impl Fn(Peer, usize) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::start_at("127.0.0.1:0", behave).await
    }

    pub(crate) async fn start_at<F>(address: &str, behave: impl Fn(Peer, usize) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let nth = counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(behave(Peer(BufReader::new(stream)), nth));
            }
        });
        Self { address, connections }
    }

    /// Answers every request of every connection with these bytes, and reports the requests.
    pub(crate) async fn answering(answer: impl Into<String>) -> (Self, mpsc::UnboundedReceiver<Received>) {
        let (seen, requests) = mpsc::unbounded_channel();
        let answer: Arc<str> = answer.into().into();
        let receiver = Self::start(move |mut peer, _| {
            let (seen, answer) = (seen.clone(), Arc::clone(&answer));
            async move {
                while let Some(request) = peer.read_request().await {
                    let _ = seen.send(request);
                    peer.write(&*answer).await;
                }
            }
        })
        .await;
        (receiver, requests)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook?a=b", self.address)
    }

    pub(crate) fn n_connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// One connection as its receiver sees it.
pub(crate) struct Peer(pub(crate) BufReader<TcpStream>);

/// A request as it came over the wire.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) line: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.get(name).map(String::as_bytes)
    }
}

impl Peer {
    pub(crate) async fn read_head(&mut self) -> Option<Received> {
        let mut line = String::new();
        if self.0.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let mut headers = BTreeMap::new();
        loop {
            let mut header = String::new();
            self.0.read_line(&mut header).await.ok()?;
            let Some((name, value)) = header.trim_end().split_once(": ") else { break };
            let before = headers.insert(name.to_owned(), value.to_owned());
            assert_eq!(before, None, "`{name}` came twice");
        }
        Some(Received { line: line.trim_end().to_owned(), headers, body: vec![] })
    }

    pub(crate) async fn read_request(&mut self) -> Option<Received> {
        let mut request = self.read_head().await?;
        request.body = vec![0; request.headers.get("content-length")?.parse().unwrap()];
        self.0.read_exact(&mut request.body).await.ok()?;
        Some(request)
    }

    /// Whether it could be written.
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0.write_all(bytes.as_ref()).await.is_ok()
    }

    /// One byte after the other, until the other side has had enough.
    pub(crate) async fn drip(&mut self, bytes: &str) {
        for byte in bytes.bytes().cycle() {
            if !self.write([byte]).await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the other side closes.
    pub(crate) async fn closed(&mut self) {
        let mut rest = vec![0; 65_536];
        while let Ok(1..) = self.0.read(&mut rest).await {}
    }
}

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Who vouches for the receivers of these tests.
pub(crate) struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pub(crate) root: rustls::pki_types::CertificateDer<'static>,
}

pub(crate) static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("Ours"));

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new([]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap().der().clone();
        Self { issuer: rcgen::Issuer::new(params, key), root }
    }

    /// What a receiver needs to prove that it is `name`, or was.
    pub(crate) fn server_config(&self, name: &str, expired: bool, alpn: &[&[u8]]) -> Arc<rustls::ServerConfig> {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        if expired {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        }
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        Arc::new(server_config(WebPkiClientVerifier::no_client_auth(), certificate, &key, alpn))
    }

    /// The same of a receiver that speaks one version of TLS only.
    pub(crate) fn speaking(&self, version: &'static rustls::SupportedProtocolVersion) -> Arc<rustls::ServerConfig> {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let config =
            rustls::ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[version]).unwrap();
        Arc::new(config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap())
    }

    /// The same of a receiver that talks only to whom `clients` vouch for.
    pub(crate) fn strict_config(&self, clients: &Self, alpn: &[&[u8]]) -> Arc<rustls::ServerConfig> {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(clients.root.clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider()).build().unwrap();
        Arc::new(server_config(verifier, certificate, &key, alpn))
    }

    /// A certificate and its key, in PEM.
    pub(crate) fn client(&self, name: &str) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (pem("CERTIFICATE", certificate.der()), pem("PRIVATE KEY", &key.serialize_der()))
    }

    pub(crate) fn root_pem(&self) -> String {
        pem("CERTIFICATE", &self.root)
    }
}

fn server_config(
    clients: Arc<dyn rustls::server::danger::ClientCertVerifier>,
    certificate: rustls::pki_types::CertificateDer<'static>,
    key: &rcgen::KeyPair,
    alpn: &[&[u8]],
) -> rustls::ServerConfig {
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    config
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn pem(label: &str, der: &[u8]) -> String {
    let lines = STANDARD.encode(der);
    let lines = lines.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap());
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.collect::<Vec<_>>().join("\n"))
}
