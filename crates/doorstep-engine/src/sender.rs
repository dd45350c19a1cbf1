//! One HTTP request to a receiver who may be slow, broken or hostile, and what came of it.
//!
//! A receiver cannot make [`Sender::send`] fail, hang or grow: whatever it does is an [`Attempt`] with an [`Outcome`]
//! within the destination's timeout. Success is decided by the status line alone (D3). Redirects are not followed, bodies
//! are not unpacked, cookies are not kept, and no proxy is asked for.

mod seam;
mod ask;
mod fault;
mod deadline;
mod prepared;
mod tls;
mod connector;
mod wire;
mod connection;
mod http2;
mod pool;
mod body;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use doorstep_core::address::AddressRules;
use doorstep_core::attempt::{Answer, Attempt, KeptHeaders, Timings};
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
use http::header::{CONNECTION, HeaderValue};
use http_body_util::Either;
use thiserror::Error;
use tokio::time::Instant;

pub use ask::ASK_TIMEOUT_MAX;
pub use body::BODY_BYTES_MAX;
pub use connection::{HEAD_BYTES_MAX, INTERIM_BYTES_MAX};
pub use http2::{BYTES_PER_REQUEST_MAX_HTTP2, HEAD_BYTES_MAX_HTTP2};
pub use pool::{OPENINGS_PER_HOST_MAX, PoolLimits};
pub use prepared::HEADER_BYTES_KEPT;
pub use tls::{CERTIFICATES_MAX, PEM_BYTES_MAX, ROOTS_BYTES_MAX, ROOTS_MAX, Roots, TlsFault, TlsVersion};

use body::Kept;
use connection::{Connection, Outgoing};
use connector::Connector;
use deadline::{ASLEEP_MIN, Deadline};
use fault::{NoAnswer, Resend};
use pool::{Found, Opening, Pool, Search};
use prepared::{Cache, Prepared, Target};
use tls::Tls;

use crate::resolve::{DnsSettings, Resolver};

/// No request takes longer, whatever its destination asks for.
pub const TIMEOUT_MAX: Millis = doorstep_core::defaults::TIMEOUT_MAX;

/// So often a request that the receiver says it did not process goes out again within one attempt. From the second time on
/// it is the first request of a connection of its own, so that only a receiver that refuses everything gets to the end.
pub const NOT_PROCESSED_RESENDS_MAX: u32 = 4;

/// How the sender of a deployment behaves. The default is what a deployment should have.
#[derive(Clone, Debug, Default)]
pub struct SenderSettings {
    pub deadlines: Deadlines,
    pub pool: PoolLimits,
    pub dns: DnsSettings,
    pub roots: Roots,
    pub tls_min: TlsVersion,
    /// Where receivers find this server, without a slash at its end: links to payloads start with it.
    pub public_url: String,
    /// So much of an answer's body is kept; [`BODY_BYTES_MAX`] without it.
    pub body_bytes_max: Option<usize>,
}

impl SenderSettings {
    /// Whether there can be a sender with them. Must be called inside a runtime.
    pub fn check(&self) -> Result<(), SetupFault> {
        Resolver::new(&self.dns, false).map_err(|fault| SetupFault::Dns(fault.into()))?;
        Tls::new(&self.roots, self.tls_min).map_err(SetupFault::Roots)?;
        Ok(())
    }
}

/// How long each phase of a request may take; the destination's timeout bounds all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    pub dns: Duration,
    pub connect: Duration,
    pub tls: Duration,
    /// From the request to the end of the answer's headers; without it, as long as the timeout allows.
    pub head: Option<Duration>,
    /// From the end of the headers to the end of the body. The outcome is known by then, so nothing is gained by waiting.
    pub body: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        let phase = Duration::from_secs(5);
        Self { dns: phase, connect: phase, tls: phase, head: None, body: phase }
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

/// Why a request could not even be written, or its answer was lost. It is our fault and not the receiver's: the delivery goes
/// back as it was.
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
    #[error("no answer came, and the process was stopped or its machine suspended meanwhile")]
    Asleep,
}

/// Why there can be no sender.
#[derive(Debug, Error)]
pub enum SetupFault {
    #[error("the machine's DNS configuration cannot be used: check /etc/resolv.conf, or set dns_servers")]
    Dns(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the machine has no certificate authorities to trust: install its CA certificates, or set tls_ca_file")]
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
    body_bytes_max: usize,
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
        let SenderSettings { deadlines, pool, dns, roots, tls_min, public_url, body_bytes_max } = settings;
        let resolver = Resolver::new(&dns, rules.makes_exceptions()).map_err(|fault| SetupFault::Dns(fault.into()))?;
        Ok(Self {
            connector: Connector { rules, resolver, deadlines },
            tls: Tls::new(&roots, tls_min).map_err(SetupFault::Roots)?,
            pool: Pool::new(pool),
            prepared: Cache::default(),
            origin: ask::origin(&public_url),
            public_url,
            body_bytes_max: body_bytes_max.unwrap_or(BODY_BYTES_MAX),
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
        let request_headers = prepared::shown(&headers);

        let timeout = destination.settings.timeout.min(TIMEOUT_MAX);
        let mut deadline = Deadline::new(started, Duration::from_millis(timeout.0));
        let mut timings = Timings::default();
        let answered = match prepared.target() {
            Ok(target) => {
                let outgoing = target.outgoing(headers, output.body.clone());
                // Made once more only where it is needed: a copy of every request would cost more.
                let again = || {
                    let headers = prepared.headers(&request, &output, id, wall).ok()?;
                    Some(target.outgoing(headers, output.body.clone()))
                };
                self.deliver(target, outgoing, again, &mut deadline, &mut timings).await
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
                let Answered { status, headers, body, closed_idle: _ } = answered;
                let answer = Answer::Status(status.as_u16());
                Sent { attempt: attempt(answer, prepared::shown(&headers), body), outcome, detail: None }
            }
            Err(no_answer) if self.was_asleep(&no_answer, &deadline, started_at) => return Err(SendFault::Asleep),
            Err(NoAnswer { fault, detail, resend: _ }) => {
                let attempt = attempt(Answer::Fault(fault), KeptHeaders::default(), Kept::default());
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

    /// Whether there is no answer because the process was stopped meanwhile, or its machine suspended. A receiver that has
    /// had its whole time after the process went on has timed out by its own fault.
    fn was_asleep(&self, no_answer: &NoAnswer, deadline: &Deadline, started_at: Timestamp) -> bool {
        // Timers do not count the time that a machine is suspended; schedule time does.
        let passed = Duration::from_millis((self.clock)().at.since(started_at).0);
        let suspended = passed.saturating_sub(deadline.elapsed()) >= ASLEEP_MIN;
        let timed_out = Outcome::from_fault(no_answer.fault) == Outcome::TimedOut;
        suspended || (deadline.was_asleep() && !timed_out)
    }

    /// Sends a request over a pooled connection or a new one, and sends it again where that costs the receiver nothing:
    /// up to [`NOT_PROCESSED_RESENDS_MAX`] times if the receiver did not process it, and once if a pooled connection was
    /// closed under it. That happens when a receiver closes an idle connection at the very moment when a request goes out
    /// over it; it is not repeated if anything of an answer has come.
    async fn deliver(
        &self,
        target: &Target,
        mut outgoing: Outgoing,
        again: impl Fn() -> Option<Outgoing>,
        deadline: &mut Deadline,
        timings: &mut Timings,
    ) -> Result<Answered, NoAnswer> {
        let mut search = Search::default();
        let (mut n_not_processed, mut closed_at_reuse) = (0, false);
        loop {
            let (connection, opening) = self.connect(target, &mut search, deadline, timings).await?;
            let done = self.exchange(connection, opening, target, outgoing, deadline, timings).await;
            let resend = match &done {
                Ok(answered) if answered.closed_idle => Resend::ClosedAtReuse,
                Ok(_) => Resend::Never,
                Err(no_answer) => no_answer.resend,
            };
            match resend {
                Resend::NotProcessed if n_not_processed < NOT_PROCESSED_RESENDS_MAX => {
                    n_not_processed += 1;
                    search.alone = n_not_processed > 1;
                }
                Resend::ClosedAtReuse if !closed_at_reuse => (closed_at_reuse, search.alone) = (true, true),
                Resend::Never | Resend::NotProcessed | Resend::ClosedAtReuse => return done,
            }
            let Some(same) = again() else { return done };
            outgoing = same;
        }
    }

    /// A connection, pooled or new. A new one comes with its [`Opening`].
    async fn connect(
        &self,
        target: &Target,
        search: &mut Search,
        deadline: &mut Deadline,
        timings: &mut Timings,
    ) -> Result<(Connection, Option<Opening>), NoAnswer> {
        loop {
            match self.pool.find(&target.origin, target.tenant_id, search) {
                Found::Pooled(connection) => return Ok((connection, None)),
                Found::Open(opening) => {
                    let stream = self.connector.open(&target.url, &target.tls, deadline, timings).await?;
                    let started = deadline.wait(None, Connection::start(stream, &opening.changed)).await;
                    let connection = started.ok_or_else(NoAnswer::timed_out)??;
                    return Ok((connection, Some(opening)));
                }
                Found::Wait(changed) => {
                    if deadline.wait(None, changed).await.is_none() {
                        return Err(NoAnswer::new(Fault::ConnectTimedOut, "no connection could be opened in time"));
                    }
                }
            }
        }
    }

    /// One request and its answer. An HTTP/1.1 connection is kept if the answer was read to its end, and cut otherwise.
    async fn exchange(
        &self,
        mut connection: Connection,
        opening: Option<Opening>,
        target: &Target,
        outgoing: Outgoing,
        deadline: &mut Deadline,
        timings: &mut Timings,
    ) -> Result<Answered, NoAnswer> {
        let asked = Instant::now();
        let Deadlines { head: head_within, body: body_within, .. } = self.connector.deadlines;
        let reused = opening.is_none();
        let response = match &mut connection {
            Connection::Single(single) => {
                if let Some(opening) = opening {
                    opening.opened_single();
                }
                single.ask(outgoing, reused, deadline, head_within).await.map(|response| response.map(Either::Left))
            }
            Connection::Shared(lease) => {
                let submitted = lease.submit(outgoing, reused)?;
                // Not earlier: the request that a connection was opened for is the first one on it.
                if let Some(opening) = opening {
                    opening.opened_shared(&lease.0);
                }
                let response = submitted.answer(deadline, head_within).await;
                if response.as_ref().is_err_and(|no_answer| no_answer.resend != Resend::NotProcessed) {
                    self.pool.retire(&target.origin, &lease.0);
                }
                response.map(|response| response.map(Either::Right))
            }
        };
        let (head, body) = response?.into_parts();
        timings.first_byte = Some(millis_since(asked));
        if head.headers.len() > HEADERS_MAX {
            return Err(NoAnswer::new(Fault::ProtocolViolated, format!("more than {HEADERS_MAX} headers")));
        }
        let body = body::read(body, self.body_bytes_max, deadline, body_within).await;
        let closed_idle = reused && matches!(connection, Connection::Single(_)) && says_goodbye(&head);
        // After 101 the receiver speaks another protocol, which nobody asked for.
        let reusable = !body.truncated && head.status != StatusCode::SWITCHING_PROTOCOLS;
        if let (Connection::Single(single), true) = (connection, reusable) {
            self.pool.keep(&target.origin, target.tenant_id, single);
        }
        Ok(Answered { status: head.status, headers: head.headers, body, closed_idle })
    }
}

/// A 408 with `Connection: close`: the receiver gives up a connection that was idle for too long (RFC 9110, 15.5.9).
fn says_goodbye(head: &http::response::Parts) -> bool {
    let closes = |value: &HeaderValue| {
        value.as_bytes().split(|&byte| byte == b',').any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
    };
    head.status == StatusCode::REQUEST_TIMEOUT && head.headers.get_all(CONNECTION).iter().any(closes)
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
    /// It is no answer to this request but the end of a pooled connection that was idle for too long.
    closed_idle: bool,
}

fn millis_since(started: Instant) -> Millis {
    Millis(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX))
}
