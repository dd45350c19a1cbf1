//! A receiver behind TLS that speaks HTTP/2: its client's library logs frames, and headers are in them.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A certificate for this machine, in PEM, and its key.
pub(crate) struct Identity {
    pub(crate) certificate_pem: String,
    pub(crate) key_der: Vec<u8>,
    made: rcgen::CertifiedKey<rcgen::KeyPair>,
}

impl Identity {
    pub(crate) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key_der = made.signing_key.serialize_der();
        Self { certificate_pem: pem("CERTIFICATE", made.cert.der()), key_der, made }
    }

    pub(crate) fn key_pem(&self) -> String {
        pem("PRIVATE KEY", &self.key_der)
    }

    fn server(&self) -> TlsAcceptor {
        let key = PrivateKeyDer::try_from(self.key_der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config =
            config.unwrap().with_no_client_auth().with_single_cert(vec![self.made.cert.der().clone()], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

/// Says 200 to everything, and remembers the headers that came.
pub(crate) struct Receiver {
    pub(crate) url: String,
    pub(crate) identity: Identity,
    pub(crate) seen: Arc<Mutex<Vec<String>>>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/http2", listener.local_addr().unwrap());
        let (identity, seen) = (Identity::new(), Arc::new(Mutex::new(Vec::new())));
        let (acceptor, heard) = (identity.server(), Arc::clone(&seen));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let stream = TokioIo::new(acceptor.accept(stream).await.unwrap());
                let heard = Arc::clone(&heard);
                let answer = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    let headers = request.headers().iter();
                    let headers = headers.map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()));
                    heard.lock().unwrap().push(format!("{:?}\n{}", request.version(), headers.collect::<String>()));
                    async { Ok::<_, Infallible>(http::Response::new(Empty::<Bytes>::new())) }
                });
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(connection.serve_connection(stream, answer));
            }
        });
        Self { url, identity, seen }
    }

    pub(crate) fn has_seen(&self, parts: &[&str]) -> bool {
        self.seen.lock().unwrap().iter().any(|request| parts.iter().all(|part| request.contains(part)))
    }
}
