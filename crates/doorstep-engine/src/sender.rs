//! One HTTP request to a receiver who may be slow, broken or hostile, and what came of it.
//!
//! A receiver cannot make [`Sender::send`] fail, hang or grow: whatever it does is an [`Attempt`] with an [`Outcome`]
//! within the destination's timeout. Success is decided by the status line alone (D3). Redirects are not followed, bodies
//! are not unpacked, cookies are not kept, and no proxy is asked for.

mod seam;
mod ask;
mod fault;
mod prepared;
mod tls;
mod connector;
mod wire;
mod connection;
mod pool;
mod body;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use doorstep_core::address::AddressRules;
use doorstep_core::attempt::{Answer, Attempt, Timings};
use doorstep_core::clock::Now;
use doorstep_core::custom_headers::HeaderFault;
use doorstep_core::delivery::Delivery;
use doorstep_core::destination::Destination;
use doorstep_core::event::Event;
use doorstep_core::hints::{HEADERS_MAX, Hints};
use doorstep_core::id::{AttemptId, DeliveryId, DestinationId, EventId};
use doorstep_core::outcome::{Fault, Outcome};
use doorstep_core::output::{NoLinkKey, Output};
use doorstep_core::signature::{BadId, SecretError, SignerError};
use doorstep_core::time::{Millis, Timestamp};
use http::StatusCode;
use thiserror::Error;
use tokio::time::{Instant, timeout_at};

pub use ask::ASK_TIMEOUT_MAX;
pub use body::BODY_BYTES_MAX;
pub use connection::{BYTES_PER_REQUEST_MAX_HTTP2, HEAD_BYTES_MAX, HEAD_BYTES_MAX_HTTP2, INTERIM_BYTES_MAX};
pub use pool::PoolLimits;
pub use prepared::HEADER_BYTES_KEPT;
pub use tls::{CERTIFICATES_MAX, PEM_BYTES_MAX, Roots, TlsFault};

use body::Kept;
use connection::{Connection, Outgoing};
use connector::Connector;
use fault::NoAnswer;
use pool::{Origin, Pool};
use prepared::{Cache, Prepared, Target};
use tls::Tls;

use crate::resolve::{DnsSettings, Resolver};

/// No request takes longer, whatever its destination asks for.
pub const TIMEOUT_MAX: Millis = Millis::from_mins(5);

/// How the sender of a deployment behaves. The default is what a deployment should have.
#[derive(Clone, Debug, Default)]
pub struct SenderSettings {
    pub deadlines: Deadlines,
    pub pool: PoolLimits,
    pub dns: DnsSettings,
    pub roots: Roots,
    /// Where receivers find this server, without a slash at its end: links to payloads start with it.
    pub public_url: String,
}

/// How long each phase of a request may take; the destination's timeout bounds all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    pub dns: Duration,
    pub connect: Duration,
    pub tls: Duration,
    /// From the end of the headers to the end of the body. The outcome is known by then, so nothing is gained by waiting.
    pub body: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        let phase = Duration::from_secs(5);
        Self { dns: phase, connect: phase, tls: phase, body: phase }
    }
}

/// One request to be made.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub destination: &'a Destination,
    pub event: &'a Event,
    pub delivery: &'a Delivery,
    /// The replay that this is part of.
    pub replay_id: Option<&'a str>,
}

impl Request<'_> {
    /// Counts the delivery's requests from 1.
    fn number(&self) -> u32 {
        self.delivery.requests.saturating_add(1)
    }
}

/// A request that was made, as far as it got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub attempt: Attempt,
    pub outcome: Outcome,
    /// Why there was no answer, for the operator. It may name addresses, so it is not for tenants.
    pub detail: Option<String>,
}

/// Why a request could not even be written. It is our fault and not the receiver's: the delivery goes back as it was.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SendFault {
    #[error("a signing secret of {0} cannot be read")]
    Secret(DestinationId, #[source] SecretError),
    #[error("the signing secrets of {0} cannot be used")]
    Signer(DestinationId, #[source] SignerError),
    #[error("the TLS settings of {0} cannot be used")]
    Tls(DestinationId, #[source] TlsFault),
    #[error("the headers of {0} cannot be sent")]
    Headers(DestinationId, #[source] HeaderFault),
    #[error("the headers of event {0} cannot be sent")]
    EventHeaders(EventId, #[source] HeaderFault),
    #[error("the content type of event {0} cannot be sent: it is not a header's value")]
    ContentType(EventId),
    #[error("the body for {0} cannot be written")]
    Output(DestinationId, #[source] NoLinkKey),
    #[error("event {0} cannot be signed")]
    EventId(EventId, #[source] BadId),
    #[error("the replay's ID cannot be sent with {0}: it is not a header's value")]
    ReplayId(DeliveryId),
}

/// Why there can be no sender.
#[derive(Debug, Error)]
pub enum SetupFault {
    #[error("the machine's DNS configuration cannot be used; check /etc/resolv.conf")]
    Dns(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("no certificates to trust; install the system's CA certificates, or give some")]
    Roots(#[source] rustls::Error),
}

type Clock = dyn Fn() -> Now + Send + Sync;
type Ids = dyn Fn(Timestamp) -> AttemptId + Send + Sync;

/// Sends requests, and keeps the connections for the next ones.
pub struct Sender {
    connector: Connector,
    tls: Tls,
    pool: Arc<Pool>,
    prepared: Cache,
    public_url: String,
    /// The name of its host: receivers are asked for their consent in this name.
    origin: String,
    clock: Box<Clock>,
    ids: Box<Ids>,
}

impl Sender {
    /// Must be called inside a runtime. `clock` says what time it is, `ids` names an attempt made at that time.
    pub fn new(
        settings: SenderSettings,
        rules: AddressRules,
        clock: impl Fn() -> Now + Send + Sync + 'static,
        ids: impl Fn(Timestamp) -> AttemptId + Send + Sync + 'static,
    ) -> Result<Self, SetupFault> {
        let SenderSettings { deadlines, pool, dns, roots, public_url } = settings;
        let resolver = Resolver::new(&dns, rules.makes_exceptions()).map_err(|fault| SetupFault::Dns(fault.into()))?;
        Ok(Self {
            connector: Connector { rules, resolver, deadlines },
            tls: Tls::new(&roots).map_err(SetupFault::Roots)?,
            pool: Pool::new(pool),
            prepared: Cache::default(),
            origin: ask::origin(&public_url),
            public_url,
            clock: Box::new(clock),
            ids: Box::new(ids),
        })
    }

    /// Whether requests to this destination could be written at all.
    pub fn check(&self, destination: &Destination) -> Result<(), SendFault> {
        Prepared::new(destination, &self.connector.rules, &self.tls, (self.clock)().at).map(drop)
    }

    /// Makes one request. Dropping the future gives it up; the receiver may have got it nevertheless.
    pub async fn send(&self, request: Request<'_>) -> Result<Sent, SendFault> {
        let (Now { at: started_at, wall }, started) = ((self.clock)(), Instant::now());
        let destination = request.destination;
        let prepared = self.prepared.get(destination, &self.connector.rules, &self.tls, started_at)?;
        let output = Output::of(destination, request.event, request.delivery, &self.public_url)
            .map_err(|source| SendFault::Output(destination.id, source))?;
        let id = (self.ids)(started_at);
        let headers = prepared.headers(&request, &output, id, wall)?;
        let request_headers = prepared::shown_request(&headers, destination);

        let deadline = started + Duration::from_millis(destination.settings.timeout.min(TIMEOUT_MAX).0);
        let mut timings = Timings::default();
        let answered = match prepared.target() {
            Ok(target) => {
                let outgoing = target.outgoing(headers, output.body.clone());
                // Made once more only where it is needed: a copy of every request would cost more.
                let again = || {
                    let headers = prepared.headers(&request, &output, id, wall).ok()?;
                    Some(target.outgoing(headers, output.body.clone()))
                };
                self.deliver(target, outgoing, again, deadline, &mut timings).await
            }
            Err(blocked) => Err(blocked),
        };
        timings.total = millis_since(started);

        let attempt = |answer, response_headers, kept: Kept| Attempt {
            id,
            number: request.number(),
            started_at,
            timings,
            answer,
            request_headers,
            response_headers,
            response_body: kept.bytes,
            response_truncated: kept.truncated,
        };
        Ok(match answered {
            Ok(answered) => {
                let outcome = self.read_outcome(&answered, destination);
                let Answered { status, headers, body } = answered;
                let answer = Answer::Status(status.as_u16());
                Sent { attempt: attempt(answer, prepared::shown_answer(&headers), body), outcome, detail: None }
            }
            Err(NoAnswer { fault, detail, stale: _ }) => {
                let attempt = attempt(Answer::Fault(fault), vec![], Kept::default());
                Sent { attempt, outcome: Outcome::from_fault(fault), detail: Some(detail) }
            }
        })
    }

    fn read_outcome(&self, answered: &Answered, destination: &Destination) -> Outcome {
        let settings = &destination.settings;
        let lines = answered.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let hints = Hints::read(lines, (self.clock)().wall, settings.limits.wait_max);
        Outcome::from_status(answered.status.as_u16(), hints, &settings.status_overrides)
    }

    /// Over a connection that waits, or over a new one. A receiver may close a waiting connection at the very moment when
    /// a request goes out over it. That says nothing about the receiver, so the request goes out once more, over a new
    /// connection; but only if nothing at all of an answer has come.
    async fn deliver(
        &self,
        target: &Target,
        mut outgoing: Outgoing,
        again: impl FnOnce() -> Option<Outgoing>,
        deadline: Instant,
        timings: &mut Timings,
    ) -> Result<Answered, NoAnswer> {
        if let Some(connection) = self.pool.take(&target.origin) {
            match self.exchange(connection, &target.origin, outgoing, true, deadline, timings).await {
                Err(no_answer) if no_answer.stale => match again() {
                    Some(same) => outgoing = same,
                    None => return Err(no_answer),
                },
                done => return done,
            }
        }
        let connection = self.connect(target, deadline, timings).await?;
        self.exchange(connection, &target.origin, outgoing, false, deadline, timings).await
    }

    /// A new connection. Where one is enough for all, because the host speaks HTTP/2, one at a time opens it and the
    /// others wait for that.
    async fn connect(&self, target: &Target, deadline: Instant, timings: &mut Timings) -> Result<Connection, NoAnswer> {
        let Some(turn) = self.pool.turn(&target.origin) else {
            return self.open(target, deadline, timings).await;
        };
        let Ok(held) = timeout_at(deadline, turn.lock()).await else {
            return Err(NoAnswer::new(Fault::ConnectTimedOut, "no connection could be opened in time"));
        };
        if let Some(connection) = self.pool.take(&target.origin) {
            return Ok(connection);
        }
        if self.pool.turn(&target.origin).is_none() {
            drop(held);
            return self.open(target, deadline, timings).await;
        }
        let opened = self.open(target, deadline, timings).await;
        if !matches!(opened, Ok(Connection::Shared(_))) {
            self.pool.forget_turn(&target.origin);
        }
        opened
    }

    async fn open(&self, target: &Target, deadline: Instant, timings: &mut Timings) -> Result<Connection, NoAnswer> {
        let stream = self.connector.open(&target.url, &target.tls, deadline, timings).await?;
        let connection = match timeout_at(deadline, Connection::start(stream)).await {
            Ok(started) => started?,
            Err(_) => return Err(NoAnswer::timed_out()),
        };
        if let Connection::Shared(shared) = &connection {
            self.pool.share(&target.origin, shared);
        }
        Ok(connection)
    }

    /// One request and its answer. The connection is kept if the answer was read to its end, and cut otherwise.
    async fn exchange(
        &self,
        mut connection: Connection,
        origin: &Arc<Origin>,
        outgoing: Outgoing,
        reused: bool,
        deadline: Instant,
        timings: &mut Timings,
    ) -> Result<Answered, NoAnswer> {
        let asked = Instant::now();
        let response = connection.ask(outgoing, reused, deadline).await;
        if let (Connection::Shared(shared), Err(_)) = (&connection, &response) {
            self.pool.retire(origin, shared);
        }
        let (head, body) = response?.into_parts();
        timings.first_byte = Some(millis_since(asked));
        if head.headers.len() > HEADERS_MAX {
            return Err(NoAnswer::new(Fault::ProtocolViolated, format!("more than {HEADERS_MAX} headers")));
        }
        let body = body::read(body, deadline.min(Instant::now() + self.connector.deadlines.body)).await;
        // After 101 the receiver speaks another protocol, which nobody asked for.
        let reusable = !body.truncated && head.status != StatusCode::SWITCHING_PROTOCOLS;
        if let (Connection::Single(single), true) = (connection, reusable) {
            self.pool.keep(origin, single);
        }
        Ok(Answered { status: head.status, headers: head.headers, body })
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("rules", &self.connector.rules).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Answered {
    status: StatusCode,
    headers: http::HeaderMap,
    body: Kept,
}

fn millis_since(started: Instant) -> Millis {
    Millis(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX))
}
