//! One connection and the requests that go over it: one at a time over HTTP/1.1, many at once over HTTP/2.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use doorstep_core::outcome::Fault;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::deadline::Deadline;
use super::fault::NoAnswer;
use super::http2::{Lease, Shared};
use super::tls;
use super::wire::{Meter, Stream, Wire};

/// The status line and headers of an answer may be this long together. Their number is bounded too: see
/// [`HEADERS_MAX`](doorstep_core::hints::HEADERS_MAX).
pub const HEAD_BYTES_MAX: usize = 64 * 1_024;

/// Before the answer may come interim ones (1xx), of this many bytes together.
pub const INTERIM_BYTES_MAX: usize = 64 * 1_024;

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
    Shared(Lease),
}

/// HTTP/1.1: whoever has it has it alone.
#[derive(Debug)]
pub(super) struct Single {
    sender: http1::SendRequest<Full<Bytes>>,
    meter: Arc<Meter>,
    pub(super) opened_at: Instant,
    _driver: Driver,
}

impl Connection {
    /// Agrees on the protocol that TLS negotiated. `changed` is told when a shared connection can take more requests.
    pub(super) async fn start(stream: Stream, changed: &Arc<Notify>) -> Result<Self, NoAnswer> {
        if speaks_http2(&stream) {
            let lost = |error| NoAnswer::new(Fault::ConnectionLost, error);
            return Shared::start(stream, Arc::clone(changed)).await.map(Self::Shared).map_err(lost);
        }
        let opened_at = Instant::now();
        let (wire, meter) = Wire::new(stream);
        // More than 100 headers are refused by default; asking for that very number would cost an allocation each time.
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX);
        let lost = |error| NoAnswer::new(Fault::ConnectionLost, error);
        let (sender, connection) = builder.handshake(TokioIo::new(wire)).await.map_err(lost)?;
        let driver = Driver::spawn(async move { drop(connection.await) });
        Ok(Self::Single(Single { sender, meter, opened_at, _driver: driver }))
    }
}

impl Single {
    /// Sends a request and waits for the head of its answer.
    pub(super) async fn ask(
        &mut self,
        outgoing: Outgoing,
        reused: bool,
        deadline: &mut Deadline,
        head_within: Option<Duration>,
    ) -> Result<Response<Incoming>, NoAnswer> {
        let received_before = self.meter.received();
        self.meter.allow(bytes(HEAD_BYTES_MAX + INTERIM_BYTES_MAX));
        let request = request(outgoing.method, outgoing.path, outgoing.headers, outgoing.body);
        match deadline.wait(head_within, self.sender.send_request(request)).await {
            Some(Ok(response)) => {
                self.meter.allow(u64::MAX);
                Ok(response)
            }
            Some(Err(error)) => Err(NoAnswer::of_http1(&error, &self.meter, received_before, reused)),
            None => Err(NoAnswer::timed_out()),
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

/// Reads and writes for a connection, in a task of its own; when nobody has the connection any more, it is cut.
#[derive(Debug)]
pub(super) struct Driver(JoinHandle<()>);

impl Driver {
    pub(super) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
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

fn request(method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    request
}

pub(super) fn bytes(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
