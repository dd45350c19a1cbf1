//! One HTTP/2 connection, which carries as many requests at once as its receiver allows.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Ping, PingPong, Reason, RecvStream, SendStream};
use http::header::{CONTENT_LENGTH, HOST, HeaderValue};
use http::{Request, Response};
use http_body::{Body, Frame};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::connection::{Driver, Outgoing, bytes};
use super::deadline::Deadline;
use super::fault::NoAnswer;
use super::wire::{Meter, Stream, Wire};

/// The headers of an answer may be this long together, counted as they are after unpacking.
pub const HEAD_BYTES_MAX_HTTP2: u32 = 16 * 1_024;

/// For each request an HTTP/2 receiver may send this much in all, and this much to begin with: answers up to what is read
/// of them, interim answers, and what keeps the connection going.
pub const BYTES_PER_REQUEST_MAX_HTTP2: usize = 256 * 1_024;

/// How much an HTTP/2 receiver may send of one answer, and of all of a connection, before we have taken any of it.
const STREAM_WINDOW_BYTES: u32 = 64 * 1_024;
const CONNECTION_WINDOW_BYTES: u32 = 1_024 * 1_024;

/// A silent HTTP/2 connection with requests on it is asked this often whether it lives, and has so long to say so.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Stands for a stream limit that the receiver has not sent yet. It is no number that a receiver could send.
const NOT_YET_KNOWN: usize = usize::MAX - 1;

/// A connection that requests share.
#[derive(Debug)]
pub(super) struct Shared {
    sender: SendRequest<Bytes>,
    meter: Arc<Meter>,
    status: Arc<Status>,
    pub(super) opened_at: Instant,
    _driver: Driver,
}

/// What the task that drives the connection and the requests on it tell each other.
#[derive(Debug)]
struct Status {
    /// Requests at once that the receiver allows.
    streams_max: AtomicUsize,
    n_requests: AtomicUsize,
    /// No further request may start: the connection has ended, or the receiver has sent GOAWAY.
    closed: AtomicBool,
    /// The receiver did not answer a ping.
    silent: AtomicBool,
    /// Told whenever a request that waits for a connection should look again.
    changed: Arc<Notify>,
}

impl Shared {
    /// Starts HTTP/2 and takes the first place on the new connection.
    pub(super) async fn start(stream: Stream, changed: Arc<Notify>) -> Result<Lease, h2::Error> {
        let opened_at = Instant::now();
        let (wire, meter) = Wire::new(stream);
        meter.allow(bytes(BYTES_PER_REQUEST_MAX_HTTP2));
        let (sender, mut connection) = builder().handshake(wire).await?;
        let status = Arc::new(Status {
            streams_max: AtomicUsize::new(NOT_YET_KNOWN),
            n_requests: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            changed,
        });
        let pings = connection.ping_pong();
        let driver = Driver::spawn(drive(connection, sender.clone(), pings, Arc::clone(&meter), Arc::clone(&status)));
        Ok(Arc::new(Self { sender, meter, status, opened_at, _driver: driver }).lease())
    }

    /// Takes a place on the connection. The caller has seen that there is room.
    pub(super) fn lease(self: Arc<Self>) -> Lease {
        self.status.n_requests.fetch_add(1, Ordering::AcqRel);
        Lease(self)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.status.closed.load(Ordering::Acquire)
    }

    pub(super) fn n_requests(&self) -> usize {
        self.status.n_requests.load(Ordering::Acquire)
    }

    /// Whether it is still to be seen how many requests the receiver allows.
    pub(super) fn is_new(&self) -> bool {
        self.status.streams_max.load(Ordering::Acquire) == NOT_YET_KNOWN
    }

    /// Whether one more request may start now. Until the receiver has sent its stream limit, one at a time may.
    pub(super) fn has_room(&self, streams_max: usize) -> bool {
        let allowed = match self.status.streams_max.load(Ordering::Acquire) {
            NOT_YET_KNOWN => 1,
            allowed => allowed,
        };
        self.n_requests() < streams_max.min(allowed)
    }
}

/// One request's place on a connection, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Lease(pub(super) Arc<Shared>);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.status.n_requests.fetch_sub(1, Ordering::AcqRel);
        self.0.status.changed.notify_one();
    }
}

impl Lease {
    /// Sends a request. Requests of one connection get their stream IDs in the order of these calls.
    pub(super) fn submit(&self, outgoing: Outgoing, reused: bool) -> Result<Submitted<'_>, NoAnswer> {
        let shared = &*self.0;
        shared.meter.credit(bytes(BYTES_PER_REQUEST_MAX_HTTP2));
        let Outgoing { method, url, mut headers, body, .. } = outgoing;
        headers.remove(HOST);
        if !body.is_empty() {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = url;
        *request.headers_mut() = headers;
        let sent = shared.sender.clone().send_request(request, body.is_empty());
        let (answer, stream) = sent.map_err(NoAnswer::not_sent)?;
        Ok(Submitted { shared, answer, upload: Upload::start(stream, body), reused })
    }
}

/// A request that has been sent, and waits for its answer.
pub(super) struct Submitted<'a> {
    shared: &'a Shared,
    answer: ResponseFuture,
    upload: Option<Upload>,
    reused: bool,
}

impl Submitted<'_> {
    pub(super) async fn answer(
        self,
        deadline: &mut Deadline,
        head_within: Option<Duration>,
    ) -> Result<Response<Arriving>, NoAnswer> {
        let Self { shared, answer, upload, reused } = self;
        match deadline.wait(head_within, answer).await {
            Some(Ok(response)) => Ok(response.map(|stream| Arriving { stream, _upload: upload })),
            Some(Err(error)) => {
                let silent = shared.status.silent.load(Ordering::Acquire);
                Err(NoAnswer::of_http2(&error, &shared.meter, reused, silent))
            }
            None => Err(NoAnswer::timed_out()),
        }
    }
}

/// The body of a request on its way. A receiver may answer before it has read all of it; what it has not read when nobody
/// waits for the answer any more is not sent.
#[derive(Debug)]
struct Upload {
    _task: Driver,
}

impl Upload {
    /// `None` if nothing is left to be sent.
    fn start(mut stream: SendStream<Bytes>, body: Bytes) -> Option<Self> {
        if body.is_empty() {
            return None;
        }
        stream.reserve_capacity(body.len());
        if stream.capacity() < body.len() {
            return Some(Self { _task: Driver::spawn(upload(stream, body)) });
        }
        // A connection that has just failed says so to whoever waits for the answer.
        let _ = stream.send_data(body, true);
        None
    }
}

/// Sends a body as fast as the receiver's flow control lets it.
async fn upload(mut stream: SendStream<Bytes>, mut body: Bytes) {
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        let Some(Ok(room)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else { return };
        let part = body.split_to(room.min(body.len()));
        if !part.is_empty() && stream.send_data(part, body.is_empty()).is_err() {
            return;
        }
    }
}

/// The body of an answer.
#[derive(Debug)]
pub(super) struct Arriving {
    stream: RecvStream,
    _upload: Option<Upload>,
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        Poll::Ready(match ready!(self.stream.poll_data(cx)) {
            Some(Ok(data)) => {
                // It fails only for more than has come.
                let _ = self.stream.flow_control().release_capacity(data.len());
                Some(Ok(Frame::data(data)))
            }
            // The receiver has answered and does not want the rest of the request (RFC 9113, 8.1).
            Some(Err(error)) if error.reason() == Some(Reason::NO_ERROR) => None,
            Some(Err(error)) => Some(Err(error)),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }
}

type Http2 = h2::client::Connection<Wire, Bytes>;

/// Reads and writes for the connection until it ends, and notices what it allows and whether it still lives.
async fn drive(
    mut connection: Http2,
    mut probe: SendRequest<Bytes>,
    mut pings: Option<PingPong>,
    meter: Arc<Meter>,
    status: Arc<Status>,
) {
    loop {
        let received = meter.received();
        tokio::select! {
            () = ended(&mut connection, &mut probe, &status) => break,
            () = sleep(PING_EVERY) => {}
        }
        let idle = status.n_requests.load(Ordering::Acquire) == 0;
        let Some(pings) = pings.as_mut().filter(|_| !idle && meter.received() == received) else { continue };
        let mut deadline = Deadline::new(Instant::now(), PING_TIMEOUT);
        tokio::select! {
            () = ended(&mut connection, &mut probe, &status) => break,
            pong = deadline.wait(None, pings.ping(Ping::opaque())) => if pong.is_none() {
                status.silent.store(true, Ordering::Release);
                break;
            }
        }
    }
    status.closed.store(true, Ordering::Release);
    status.changed.notify_waiters();
}

async fn ended(connection: &mut Http2, probe: &mut SendRequest<Bytes>, status: &Status) {
    std::future::poll_fn(|cx| {
        let ended = Pin::new(&mut *connection).poll(cx).map(drop);
        // Frames are read nowhere else, so this is where a new limit or a GOAWAY is seen first.
        let streams_max = connection.max_concurrent_send_streams();
        let closed = matches!(probe.poll_ready(cx), Poll::Ready(Err(_)));
        // Both, since they may change at once: a limit, and a GOAWAY right behind it.
        let new_limit = status.streams_max.swap(streams_max, Ordering::AcqRel) != streams_max;
        let newly_closed = status.closed.swap(closed, Ordering::AcqRel) != closed;
        if new_limit || newly_closed {
            status.changed.notify_waiters();
        }
        ended
    })
    .await;
}

fn builder() -> h2::client::Builder {
    let mut builder = h2::client::Builder::new();
    builder
        .enable_push(false)
        .initial_max_send_streams(NOT_YET_KNOWN)
        .max_header_list_size(HEAD_BYTES_MAX_HTTP2)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    builder
}
