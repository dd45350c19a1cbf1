//! Connections and requests: whatever touches a socket. What to answer is decided in `manners`.

use std::convert::Infallible;
use std::future::pending;
use std::io::{self, Write};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use doorstep_core::consent;
use doorstep_core::signature::VerifyingKey;
use doorstep_core::time::{Millis, Timestamp};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use time::OffsetDateTime;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};

use super::drip::AnswerBody;
use super::manners::{Answer, Manners, Misdeed};
use super::record::{Answered, Record, Style};
use super::seen::{REMEMBERED_MAX, Seen};
use super::signature::Signature;
use super::tally::Tally;
use crate::failure::Failure;
use crate::output;

/// So many connections are open at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: u32 = 1_024;
/// A longer body is answered with 413.
const BODY_BYTES_MAX: usize = 1 << 20;
/// More headers than that, or longer ones, are answered with 431.
const HEADERS_MAX: usize = 128;
const HEAD_BYTES_MAX: usize = 64 << 10;
/// At the end, answers under way have this long to get out.
const ENDS_WITHIN: Duration = Duration::from_secs(2);
/// After the system refused a connection (no more file descriptors, say), the next try comes this much later.
const ACCEPTS_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The receiver that all connections share.
#[derive(Debug)]
pub(super) struct Receiver {
    keys: Vec<VerifyingKey>,
    style: Style,
    /// Ends after so many requests.
    count: Option<u64>,
    /// How many requests per minute it agrees to when it is asked; it agrees to nothing without it.
    consent: Option<String>,
    began: Instant,
    done: Notify,
    /// Held for moments only, never across an await.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    manners: Manners,
    seen: Seen,
    tally: Tally,
}

impl Receiver {
    pub(super) fn new(
        keys: Vec<VerifyingKey>,
        manners: Manners,
        style: Style,
        count: Option<u64>,
        consent: Option<String>,
    ) -> Arc<Self> {
        let state = State { manners, seen: Seen::new(REMEMBERED_MAX), tally: Tally::default() };
        let (began, done) = (Instant::now(), Notify::new());
        Arc::new(Self { keys, style, count, consent, began, done, state: Mutex::new(state) })
    }

    /// The state stays whole even if a thread died while it held it: every change is a single step.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, message: &str) -> io::Result<()> {
        if self.style.messages_aside {
            return writeln!(io::stderr().lock(), "{message}");
        }
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{message}")?;
        stdout.flush()
    }
}

/// Serves until the end is asked for, so many requests were answered, or nobody reads what is printed.
pub(super) async fn serve(
    listener: TcpListener,
    receiver: Arc<Receiver>,
    warning: Option<String>,
    end: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let address = listener.local_addr().context("cannot tell the address that is listened on")?;
    receiver.tell(&format!("listening on http://{address}")).context("cannot say where we listen")?;
    // Programs expect the address in the first line.
    if let Some(warning) = warning {
        output::note(&format!("{warning}\n"));
    }

    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX as usize));
    let (ending, ends) = watch::channel(false);
    let mut end = pin!(end);
    loop {
        tokio::select! {
            (stream, slot) = accept(&listener, &slots) => {
                tokio::spawn(connection(stream, slot, Arc::clone(&receiver), ends.clone()));
            }
            () = &mut end => break,
            () = receiver.done.notified() => break,
        }
    }
    // Who ends us may be waiting for the answer that is just on its way; those that hang are cut.
    let _ = ending.send(true);
    let _ = timeout(ENDS_WITHIN, slots.acquire_many(CONNECTIONS_MAX)).await;
    let summary = receiver.state().tally.to_string();
    // Nobody may be left to read it.
    let _ = receiver.tell(&summary);
    Ok(())
}

async fn accept(listener: &TcpListener, slots: &Arc<Semaphore>) -> (TcpStream, OwnedSemaphorePermit) {
    loop {
        let Ok(slot) = Arc::clone(slots).acquire_owned().await else { pending().await };
        match listener.accept().await {
            Ok((stream, _)) => return (stream, slot),
            Err(_) => sleep(ACCEPTS_AGAIN_AFTER).await,
        }
    }
}

async fn connection(
    stream: TcpStream,
    _slot: OwnedSemaphorePermit,
    receiver: Arc<Receiver>,
    mut ends: watch::Receiver<bool>,
) {
    // Without it small answers may wait for an acknowledgement; a connection that refuses it still works.
    let _ = stream.set_nodelay(true);
    let reset = Arc::new(Notify::new());
    let service = service_fn(|request| answer(Arc::clone(&receiver), Arc::clone(&reset), request));
    let mut http = http1::Builder::new();
    http.max_headers(HEADERS_MAX).max_buf_size(HEAD_BYTES_MAX);
    let mut connection = http.serve_connection(TokioIo::new(stream), service);
    let mut ending = false;
    loop {
        tokio::select! {
            biased;
            // However it ended, there is nobody left to tell.
            _ = &mut connection => return,
            () = reset.notified() => {
                // Closed without lingering, the kernel sends a reset instead of an orderly end.
                let _ = connection.into_parts().io.into_inner().set_zero_linger();
                return;
            }
            _ = ends.changed(), if !ending => {
                ending = true;
                std::pin::Pin::new(&mut connection).graceful_shutdown();
            }
        }
    }
}

async fn answer(
    receiver: Arc<Receiver>,
    reset: Arc<Notify>,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, Infallible> {
    let (head, body) = request.into_parts();
    let body = match read(body).await {
        Ok(body) => body,
        Err(status) => {
            receiver.settle(&head, &[], &Signature::Unchecked, Answered::Status(status.as_u16()));
            let mut response = plain(status, String::new());
            // The rest of the body would be taken for the next request.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            return Ok(response);
        }
    };
    if let Some(consent) = receiver.agrees(&head) {
        receiver.settle(&head, &body, &Signature::Unchecked, Answered::Status(200));
        return Ok(consent);
    }
    let signature = Signature::check(&head.headers, &body, &receiver.keys, now());
    let (answer, wait) = receiver.state().manners.decide(!signature.is_bad(), receiver.uptime());
    if wait > Millis::ZERO {
        sleep(Duration::from_millis(wait.0)).await;
    }
    receiver.settle(&head, &body, &signature, answer.into());
    Ok(match answer {
        Answer::Accepted => Response::new(AnswerBody::Text(Bytes::new())),
        Answer::Refused => plain(StatusCode::UNAUTHORIZED, format!("signature {signature}\n")),
        Answer::TooMany { retry_after_secs } => {
            let mut response = plain(StatusCode::TOO_MANY_REQUESTS, format!("again in {retry_after_secs} s\n"));
            response.headers_mut().insert(header::RETRY_AFTER, retry_after_secs.into());
            response
        }
        Answer::Misdeed(Misdeed::Status(status)) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
            plain(status, String::new())
        }
        Answer::Misdeed(Misdeed::Hang) => pending().await,
        Answer::Misdeed(Misdeed::Reset) => {
            reset.notify_one();
            pending().await
        }
        Answer::Misdeed(Misdeed::Drip) => Response::new(AnswerBody::drip()),
    })
}

/// The whole body, or the status that answers one that is too long or breaks off.
async fn read(body: Incoming) -> Result<Bytes, StatusCode> {
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(StatusCode::PAYLOAD_TOO_LARGE);
    }
    match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(fault) if fault.is::<LengthLimitError>() => Err(StatusCode::PAYLOAD_TOO_LARGE),
        Err(_) => Err(StatusCode::BAD_REQUEST),
    }
}

fn plain(status: StatusCode, text: String) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::Text(text.into()));
    *response.status_mut() = status;
    response
}

impl Receiver {
    /// The answer to a question for consent, if this is one and we agree.
    fn agrees(&self, head: &Parts) -> Option<Response<AnswerBody>> {
        let (rate, origin) = (self.consent.as_ref()?, head.headers.get(consent::REQUEST_ORIGIN)?);
        if head.method != Method::OPTIONS {
            return None;
        }
        let mut response = plain(StatusCode::OK, String::new());
        let headers = response.headers_mut();
        headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
        headers.insert(consent::ALLOWED_ORIGIN, origin.clone());
        headers.insert(consent::ALLOWED_RATE, HeaderValue::from_str(rate).ok()?);
        Some(response)
    }

    /// Counts and prints what a request got.
    fn settle(&self, head: &Parts, body: &[u8], signature: &Signature, answered: Answered) {
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let event_id = head.headers.get("webhook-id").and_then(|id| id.to_str().ok());
        let (duplicate, enough) = {
            let State { seen, tally, .. } = &mut *self.state();
            let duplicate = event_id.is_some_and(|id| seen.contains(path, id));
            if let Some(id) = event_id.filter(|_| answered.is_success()) {
                seen.insert(path, id);
            }
            tally.count(answered, signature.is_bad(), duplicate);
            (duplicate, self.count.is_some_and(|count| tally.requests >= count))
        };
        let printed = self.style.lines.map_or(Ok(()), |lines| {
            let (at, method, headers) = (OffsetDateTime::now_utc(), head.method.as_str(), &head.headers);
            let record = Record { at, method, path, headers, body, signature, answered, duplicate };
            io::stdout().lock().write_all(record.line(lines).as_bytes())
        });
        if enough || printed.is_err() {
            self.done.notify_one();
        }
    }

    /// What the rate limit counts by: a clock that nobody sets.
    fn uptime(&self) -> Timestamp {
        Timestamp(i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX))
    }
}

impl From<Answer> for Answered {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Accepted => Self::Status(200),
            Answer::Refused => Self::Status(401),
            Answer::TooMany { .. } => Self::Status(429),
            Answer::Misdeed(Misdeed::Status(status)) => Self::Status(status),
            Answer::Misdeed(Misdeed::Hang) => Self::Hang,
            Answer::Misdeed(Misdeed::Reset) => Self::Reset,
            Answer::Misdeed(Misdeed::Drip) => Self::Drip,
        }
    }
}

fn now() -> Timestamp {
    let ms = OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000;
    Timestamp(i64::try_from(ms).unwrap_or(i64::MAX))
}
