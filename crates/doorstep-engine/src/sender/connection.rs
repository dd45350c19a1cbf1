//! One connection and the requests that go over it, one at a time (HTTP/1.1) or many at once (HTTP/2).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use doorstep_core::outcome::Fault;
use http::header::HOST;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::fault::NoAnswer;
use super::tls;
use super::wire::{Meter, Stream, Wire};

/// The status line and headers of an answer may be this long together. Their number is bounded too: see
/// [`HEADERS_MAX`](doorstep_core::hints::HEADERS_MAX).
pub const HEAD_BYTES_MAX: usize = 64 * 1_024;

/// The same for HTTP/2, where headers are counted as they are after unpacking.
pub const HEAD_BYTES_MAX_HTTP2: u32 = 16 * 1_024;

/// Before the answer may come interim ones (1xx), of this many bytes together.
pub const INTERIM_BYTES_MAX: usize = 64 * 1_024;

/// For each request an HTTP/2 receiver may send this much in all, and this much to begin with: answers up to what is read
/// of them, interim answers, and what keeps the connection going.
pub const BYTES_PER_REQUEST_MAX_HTTP2: usize = 256 * 1_024;

/// How much an HTTP/2 receiver may send of one answer, and of all of a connection, before we have taken any of it.
const STREAM_WINDOW_BYTES: u32 = 64 * 1_024;
const CONNECTION_WINDOW_BYTES: u32 = 1_024 * 1_024;

/// A silent HTTP/2 connection with requests on it is asked this often whether it lives, and has so long to say so.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// What is sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) method: Method,
    /// `/path?query`, for HTTP/1.1.
    pub(super) path: Uri,
    /// The whole URL, for HTTP/2.
    pub(super) url: Uri,
    /// With `host`, which HTTP/2 does not send.
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// A connection that a request can go over.
#[derive(Debug)]
pub(super) enum Connection {
    Single(Single),
    Shared(Arc<Shared>),
}

/// HTTP/1.1: whoever has it has it alone.
#[derive(Debug)]
pub(super) struct Single {
    sender: http1::SendRequest<Full<Bytes>>,
    meter: Arc<Meter>,
    pub(super) opened_at: Instant,
    _driver: Driver,
}

/// HTTP/2: used by many at once.
#[derive(Debug)]
pub(super) struct Shared {
    sender: http2::SendRequest<Full<Bytes>>,
    meter: Arc<Meter>,
    pub(super) opened_at: Instant,
    _driver: Driver,
}

impl Connection {
    /// Agrees on the protocol that TLS negotiated.
    pub(super) async fn start(stream: Stream) -> Result<Self, NoAnswer> {
        let opened_at = Instant::now();
        let lost = |error| NoAnswer::new(Fault::ConnectionLost, error);
        if speaks_http2(&stream) {
            let (wire, meter) = Wire::new(stream);
            meter.allow(bytes(BYTES_PER_REQUEST_MAX_HTTP2));
            let (sender, connection) = http2().handshake(TokioIo::new(wire)).await.map_err(lost)?;
            let driver = Driver::spawn(async move { drop(connection.await) });
            return Ok(Self::Shared(Arc::new(Shared { sender, meter, opened_at, _driver: driver })));
        }
        let (wire, meter) = Wire::new(stream);
        // More than 100 headers are refused by default; asking for that very number would cost an allocation each time.
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX);
        let (sender, connection) = builder.handshake(TokioIo::new(wire)).await.map_err(lost)?;
        let driver = Driver::spawn(async move { drop(connection.await) });
        Ok(Self::Single(Single { sender, meter, opened_at, _driver: driver }))
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn ask(
        &mut self,
        outgoing: Outgoing,
        reused: bool,
        deadline: Instant,
    ) -> Result<Response<Incoming>, NoAnswer> {
        match self {
            Self::Single(single) => single.ask(outgoing, reused, deadline).await,
            Self::Shared(shared) => shared.ask(outgoing, reused, deadline).await,
        }
    }
}

impl Single {
    async fn ask(
        &mut self,
        outgoing: Outgoing,
        reused: bool,
        deadline: Instant,
    ) -> Result<Response<Incoming>, NoAnswer> {
        let received_before = self.meter.received();
        self.meter.allow(bytes(HEAD_BYTES_MAX + INTERIM_BYTES_MAX));
        let request = request(outgoing.method, outgoing.path, outgoing.headers, outgoing.body);
        match timeout_at(deadline, self.sender.send_request(request)).await {
            Ok(Ok(response)) => {
                self.meter.allow(u64::MAX);
                Ok(response)
            }
            Ok(Err(error)) => Err(NoAnswer::of_http1(&error, &self.meter, received_before, reused)),
            Err(_) => Err(NoAnswer::timed_out()),
        }
    }

    /// Whether the next request can go over it right now.
    pub(super) fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Waits until the next request can go over it; `false` if none ever can.
    pub(super) async fn becomes_ready(&mut self, deadline: Instant) -> bool {
        matches!(timeout_at(deadline, self.sender.ready()).await, Ok(Ok(())))
    }
}

impl Shared {
    async fn ask(&self, outgoing: Outgoing, reused: bool, deadline: Instant) -> Result<Response<Incoming>, NoAnswer> {
        self.meter.credit(bytes(BYTES_PER_REQUEST_MAX_HTTP2));
        let mut headers = outgoing.headers;
        headers.remove(HOST);
        let request = request(outgoing.method, outgoing.url, headers, outgoing.body);
        match timeout_at(deadline, self.sender.clone().send_request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(NoAnswer::of_http2(&error, &self.meter, reused)),
            Err(_) => Err(NoAnswer::timed_out()),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// Reads and writes for a connection, in a task of its own; when nobody has the connection any more, it is cut.
#[derive(Debug)]
struct Driver(JoinHandle<()>);

impl Driver {
    fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn speaks_http2(stream: &Stream) -> bool {
    match stream {
        Stream::Plain(_) => false,
        Stream::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(tls::HTTP_2),
    }
}

fn http2() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(HEAD_BYTES_MAX_HTTP2)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

fn request(method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    request
}

fn bytes(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
