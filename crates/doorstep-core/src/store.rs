//! What the engine asks of whatever remembers: verbs of the domain, over batches.
//!
//! Promises of every store, checked by one conformance suite:
//! - [`Store::write`] is one transaction and is on disk when it answers; or it fails as a whole, and nothing was written.
//! - The writes of a batch take effect in their order, and batches in the order in which they were asked for.
//! - A read sees every write that was answered before the read was asked for.
//! - [`Store::due`] shows, of an ordering key, only the first unfinished delivery. When a settlement releases the key,
//!   the next one is among what the write makes available.
//! - A dead delivery whose settlement does not release its key keeps its place there: those behind it wait until a person
//!   has sent it again or abandoned it, or until it is purged.
//! - A settlement of a delivery that has ended, or that a person has sent again since (its `give_up_at` is another then),
//!   changes nothing.
//! - What a person asks for is limited by their [`Reach`]: what lies beyond is as if it were not there, whatever the ID.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use thiserror::Error as ThisError;

use crate::api_key::{ApiKey, KeyHash};
use crate::attempt::Attempt;
use crate::audit::{Action, AuditEntry, Mandate};
use crate::clock::{ClockRecord, KeptClock};
use crate::consent::Consent;
use crate::delivery::{Delivery, Place, Settlement, Track};
use crate::destination::{Destination, Tenant};
use crate::event::{Event, NewEvent};
use crate::event_type::RegisteredType;
use crate::gate::GateState;
use crate::id::{DeliveryId, DestinationId, EventId, KeyId, SessionId, TenantId};
use crate::outcome::Class;
use crate::portal::PortalSession;
use crate::quota::{QuotaExceeded, Usage};
use crate::reach::Reach;
use crate::retry::{DeadReason, Decision};
use crate::route::EventType;
use crate::time::{Millis, Timestamp};

pub use crate::search::{Codes, DeliveryFilter, EventFilter, Statuses};

/// A future answer of a store.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

pub trait Store: Send + Sync {
    /// Writes a batch in one transaction. The answers are in the order of the writes.
    fn write(&self, batch: Vec<Write>, now: Timestamp) -> Reply<'_, Vec<Written>>;

    /// Answers many refills at once, in their order.
    fn due(&self, queries: Vec<DueQuery>) -> Reply<'_, Vec<DuePage>>;

    /// Unfinished deliveries whose time is up, oldest first.
    fn overdue(&self, now: Timestamp, limit: usize) -> Reply<'_, Vec<Delivery>>;

    /// When the next unfinished delivery gives up.
    fn next_give_up_at(&self) -> Reply<'_, Option<Timestamp>>;

    /// Events by their numbers, in the order asked for. One that cannot be read does not keep the others back.
    fn events(&self, seqs: Vec<u64>) -> Reply<'_, Vec<StoredEvent>>;

    /// All tenants, in the order of their IDs, behind `after`.
    fn tenants(&self, after: Option<TenantId>, limit: usize) -> Reply<'_, Vec<Tenant>>;

    /// All destinations with their gates, in the order of their IDs, behind `after`.
    fn destinations(&self, after: Option<DestinationId>, limit: usize) -> Reply<'_, Vec<StoredDestination>>;

    /// All registered event types, in the order of their names, behind `after`.
    fn event_types(&self, after: Option<EventType>, limit: usize) -> Reply<'_, Vec<RegisteredType>>;

    /// Events by their name: the tenant's, or those of the first few tenants that have one so called. Not those whose
    /// payload was erased; they are listed still.
    fn event(
        &self,
        reach: Reach,
        tenant_id: Option<TenantId>,
        id: EventId,
    ) -> Reply<'_, Vec<(EventSummary, Arc<Event>)>>;

    /// Events that fit a filter, newest first.
    fn event_list(&self, reach: Reach, filter: EventFilter, page: Page) -> Reply<'_, Vec<EventSummary>>;

    /// A delivery, finished or not, with its last attempts.
    fn delivery(&self, reach: Reach, id: DeliveryId) -> Reply<'_, Option<DeliveryHistory>>;

    /// One attempt of a delivery, with everything that was captured of it.
    fn attempt(&self, reach: Reach, id: DeliveryId, number: u32) -> Reply<'_, Option<Attempt>>;

    /// Deliveries that fit a filter, newest first.
    fn deliveries(&self, reach: Reach, filter: DeliveryFilter, page: Page) -> Reply<'_, Vec<DeliverySummary>>;

    /// What a tenant takes of the store; nothing if it is out of reach.
    fn usage(&self, reach: Reach, tenant_id: TenantId) -> Reply<'_, Usage>;

    /// How much each of these destinations has queued, and since when.
    fn backlogs(&self, reach: Reach, ids: Vec<DestinationId>) -> Reply<'_, Vec<Backlog>>;

    /// What was sent and what came of it, minute by minute: in order of time, then of destinations. It is written along
    /// with the settlements, so that no screen has to count deliveries.
    fn activity(&self, reach: Reach, query: ActivityQuery) -> Reply<'_, Vec<Activity>>;

    /// API keys, those included that have ended, in the order of their IDs, behind `after`.
    fn api_keys(&self, reach: Reach, after: Option<KeyId>, limit: usize) -> Reply<'_, Vec<ApiKey>>;

    /// Portal sessions, in the order of their IDs, behind `after`.
    fn portal_sessions(&self, reach: Reach, after: Option<SessionId>, limit: usize) -> Reply<'_, Vec<PortalSession>>;

    /// The audit log, newest first, each line with its number.
    fn audit(&self, reach: Reach, filter: AuditFilter, page: Page) -> Reply<'_, Vec<(u64, AuditEntry)>>;

    /// How far the clock had come when it was last kept.
    fn clock(&self) -> Reply<'_, KeptClock>;

    /// Forgets what is older than `ages` say, the oldest first and at most `limit` of each kind at once, so that it can be
    /// done gradually (R4). A dead delivery that is forgotten lets go of its key. Takes away as gradually what removed
    /// destinations have left.
    fn purge(&self, ages: Ages, limit: usize) -> Reply<'_, Purged>;
}

/// One change. All of a batch or none.
#[derive(Clone, Debug)]
pub enum Write {
    /// Deliveries to destinations that are not there (any more) are not made. Refused if it would take more than its tenant may have; one
    /// that was accepted before is answered as before, whatever its tenant has.
    Accept(Box<NewEvent>),
    /// Shared: whoever has to write it for certain keeps it until it is written. Of an attempt that would take more than its tenant may
    /// have, neither headers nor body are kept. One that ends untried ([`Settlement::ends_untried`]) keeps what is written of it.
    Settle(Arc<Settled>),
    /// Refused if there is no such destination.
    SaveGate {
        destination_id: DestinationId,
        state: Box<GateState>,
    },
    /// A person sends a dead letter again, with a fresh budget: in its old place if it held its ordering key, else behind
    /// what its key has queued meanwhile.
    Revive {
        delivery_id: DeliveryId,
        give_up_at: Timestamp,
    },
    /// A person ends a delivery: an unfinished one, or a dead letter for good.
    Abandon {
        delivery_id: DeliveryId,
        note: String,
    },
    /// Makes the payloads of all events of a tenant that were encrypted unreadable for ever, by forgetting its key. Refused if there is no key.
    /// What comes later has another one.
    ErasePayloads {
        tenant_id: TenantId,
    },
    /// New, with a `version` of at most 1, or changed: then `version` is the one that it replaces plus one, or the write is
    /// refused.
    PutTenant(Box<Tenant>),
    /// New, with a `version` of at most 1, or changed: then `version` is the one that it replaces plus one, or the write is
    /// refused. Its `consent` is not written: see [`Write::Consented`].
    PutDestination(Box<Destination>),
    /// Its receiver has agreed to be sent to. Refused if there is no such destination, or not with this URL any more.
    Consented {
        destination_id: DestinationId,
        consent: Box<Consent>,
    },
    /// The same for a new one, which is refused if its tenant has so many already.
    AddDestination {
        destination: Box<Destination>,
        of_tenant_max: usize,
    },
    /// Takes it away with everything that is queued for it: from now on none of that is seen, sent or counted, and what is
    /// left on disk goes with the purges that follow. What has ended stays until it is purged. For as long as [`Ages::idle`] says,
    /// a new destination with its ID is refused.
    RemoveDestination {
        destination_id: DestinationId,
    },
    /// New, with a `version` of at most 1, or changed: then `version` is the one that it replaces plus one, or the write is
    /// refused.
    PutEventType(Box<RegisteredType>),
    /// The name may be used again.
    RemoveEventType {
        name: EventType,
    },
    /// What a person does. It takes effect within their reach alone, and is refused as not found beyond it; if it took
    /// effect, it is noted in the audit log.
    ByHand(Box<ByHand>),
    /// A new key. Refused if there is one with this ID.
    PutApiKey(Box<ApiKey>),
    /// A key's name, end, ranges and secrets; the rest stays as it is. `version` is the one that it replaces plus one, or the write is refused; also if
    /// the key was revoked.
    ChangeApiKey(Box<ApiKey>),
    /// From now on it is good for nothing, for ever. Refused if it was revoked before.
    RevokeApiKey {
        key_id: KeyId,
    },
    /// When keys were last used. Of keys that are not there, nothing is noted.
    UsedApiKeys(Vec<(KeyId, Timestamp)>),
    /// A new session that waits for its code. Refused if there is one with this ID.
    PutPortalSession(Box<PortalSession>),
    /// Exchanges a code for a token, once and in time.
    OpenPortalSession {
        session_id: SessionId,
        code: KeyHash,
        token: KeyHash,
    },
    EndPortalSession {
        session_id: SessionId,
    },
    /// Ends all of a tenant's.
    EndPortalSessions {
        tenant_id: TenantId,
    },
    /// A line of the audit log on its own.
    Audit(Box<AuditEntry>),
    /// How far the clock has come; only the last one is kept.
    KeepClock(Box<ClockRecord>),
}

/// A change, with the leave of whoever makes it.
#[derive(Clone, Debug)]
pub struct ByHand {
    pub mandate: Mandate,
    pub change: Write,
}

/// A settlement with the request that led to it, if there was one.
#[derive(Clone, Debug)]
pub struct Settled {
    pub settlement: Settlement,
    pub attempt: Option<Attempt>,
}

/// What became of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// Accepted now, or `duplicate` of one that was accepted before with the same body.
    Accepted {
        deliveries: usize,
        duplicate: bool,
        available: Vec<Delivery>,
    },
    /// The deliveries that may go from now on.
    Settled {
        available: Vec<Delivery>,
    },
    Revived {
        available: Vec<Delivery>,
    },
    /// The delivery as it was when it was ended (a dead letter: as it is), and those that may go instead.
    Abandoned {
        ended: Box<Delivery>,
        available: Vec<Delivery>,
    },
    Saved,
    /// This one write did not take effect; the rest of the batch did.
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
pub enum Refusal {
    #[error("an event with this ID was accepted before with another body")]
    EventDiffers,
    #[error("an event with this ID was accepted before from another source")]
    SourceDiffers,
    #[error("another event was accepted before with this key")]
    KeyReused,
    #[error("there is no such thing")]
    NotFound,
    #[error("it has changed meanwhile")]
    VersionDiffers,
    #[error("it is not dead, so it cannot be sent again")]
    NotDead,
    #[error("it has already ended")]
    AlreadyEnded,
    #[error("the tenant has {max} destinations already, and may not have more")]
    TooManyDestinations { max: usize },
    #[error(transparent)]
    QuotaExceeded(QuotaExceeded),
    #[error(
        "the filters of this tenant could take {units} units of work for one event, and {units_max} are allowed: up to {searches} \
         values are searched for with `contains` in one field of up to {payload_max} bytes; use fewer of them, or `eq`, `in`, `prefix` or `suffix`"
    )]
    FilterTooCostly { units: u64, units_max: u64, searches: usize, payload_max: usize },
    #[error("an event with this ID was accepted before, but its stored copy cannot be read")]
    EventUnreadable,
    #[error("the key that the tenant's payloads are encrypted with cannot be read")]
    TenantKeyUnreadable,
    #[error("the stored data is damaged")]
    Damaged,
    #[error("not written, unlike the events before it in the same request")]
    NotWritten,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueQuery {
    pub destination_id: DestinationId,
    pub track: Track,
    pub after: Option<Place>,
    pub limit: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuePage {
    pub deliveries: Vec<Delivery>,
    /// There is nothing beyond.
    pub exhausted: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StoredDestination {
    pub destination: Destination,
    pub gate: GateState,
    /// Whether anything is queued for it.
    pub has_backlog: bool,
}

/// Where a delivery is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryStatus {
    /// Not tried yet, or put back by a throttle before its first attempt.
    Queued,
    RetryScheduled,
    Delivered,
    Dead(DeadReason),
}

/// A line of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliverySummary {
    pub delivery: Delivery,
    pub event_id: EventId,
    pub event_type: EventType,
    pub tenant_id: TenantId,
    pub status: DeliveryStatus,
    /// Others with the same ordering key come first.
    pub behind: bool,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// What the last request was answered with, if it was.
    pub last_status: Option<u16>,
    /// Why a person ended it.
    pub note: Option<String>,
}

/// What the store has of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredEvent {
    Readable(Arc<Event>),
    /// It was purged, or its payload was erased: it never comes back.
    Gone,
    /// It is there, but damaged or changed, or its tenant's key cannot be opened. A person has to look.
    Unreadable(Unreadable),
}

impl StoredEvent {
    pub fn readable(&self) -> Option<&Arc<Event>> {
        match self {
            Self::Readable(event) => Some(event),
            Self::Gone | Self::Unreadable(_) => None,
        }
    }
}

/// An event that cannot be read, as far as it can be named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unreadable {
    pub event_id: Option<EventId>,
    pub tenant_id: Option<TenantId>,
    pub why: String,
}

/// An event without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSummary {
    pub seq: u64,
    pub id: EventId,
    pub tenant_id: TenantId,
    pub event_type: EventType,
    pub content_type: Arc<str>,
    pub payload_bytes: u64,
    pub ordering_key: Option<Arc<str>>,
    pub produced_at: Option<Timestamp>,
    pub schema_version: Option<Arc<str>>,
    pub accepted_at: Timestamp,
    /// Made when it was accepted.
    pub deliveries: u64,
}

impl EventSummary {
    pub fn of(seq: u64, event: &Event, deliveries: u64) -> Self {
        Self {
            seq,
            id: event.id.clone(),
            tenant_id: event.tenant_id,
            event_type: event.event_type.clone(),
            content_type: Arc::clone(&event.content_type),
            payload_bytes: event.payload.len() as u64,
            ordering_key: event.ordering_key.clone(),
            produced_at: event.produced_at,
            schema_version: event.schema_version.clone(),
            accepted_at: event.accepted_at,
            deliveries,
        }
    }
}

/// Tenants whose events of the same name are told apart.
pub const NAMESAKES_MAX: usize = 2;

/// What is asked of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    pub tenant_id: Option<TenantId>,
    /// As [`Actor::name`](crate::audit::Actor::name) has it.
    pub actor: Option<String>,
    pub action: Option<Action>,
    pub resource: Option<String>,
    /// At this time or later.
    pub after: Option<Timestamp>,
    pub before: Option<Timestamp>,
}

impl AuditFilter {
    /// What is left of it within a reach; `None`: nothing is.
    pub fn within(self, reach: Reach) -> Option<Self> {
        let tenant_id = reach.narrowed_to(self.tenant_id)?.tenant_id();
        Some(Self { tenant_id, ..self })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryHistory {
    pub summary: DeliverySummary,
    /// In the order in which they were made, the last [`ATTEMPTS_TOLD_MAX`] of them. Headers and bodies are there for the last [`CAPTURED_TOLD_MAX`] alone.
    pub attempts: Vec<Attempt>,
}

/// A receiver decides how much is captured of its answers, up to a bound: so it is read for so many attempts at once.
pub const CAPTURED_TOLD_MAX: usize = 5;

/// Whoever is throttled has as many attempts as it likes: what is read of them at once has an end.
pub const ATTEMPTS_TOLD_MAX: usize = 100;

/// A stretch of a list: those that come after the one with this number in ingest order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    pub before_seq: Option<u64>,
    pub limit: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    pub queued: u64,
    /// Of the first in ingest order.
    pub oldest_created_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivityQuery {
    /// `None`: all of them.
    pub destination_id: Option<DestinationId>,
    /// From the minute that this is in …
    pub from: Timestamp,
    /// … to before this.
    pub until: Timestamp,
    pub limit: usize,
}

/// One destination's minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Its beginning.
    pub minute: Timestamp,
    pub destination_id: DestinationId,
    pub tally: Tally,
}

/// What was settled, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests by the class of their outcome.
    pub succeeded: u64,
    pub transient: u64,
    pub throttled: u64,
    pub ambiguous: u64,
    pub permanent: u64,
    /// How many of the requests were of a delivery that had spent no attempt before; the others are retries (M3).
    pub first: u64,
    pub delivered: u64,
    pub dead: u64,
    /// How long the requests took, together and at most.
    pub took_sum: Millis,
    pub took_max: Millis,
}

impl Tally {
    pub fn of(settled: &Settled) -> Self {
        let mut tally = Self::default();
        let spent = settled.settlement.delivery.progress.attempts;
        if let Some(outcome) = &settled.settlement.outcome {
            let (count, spent_before) = match outcome.class() {
                Class::Success => (&mut tally.succeeded, spent.saturating_sub(1)),
                Class::Transient => (&mut tally.transient, spent.saturating_sub(1)),
                Class::Throttled => (&mut tally.throttled, spent),
                Class::Ambiguous => (&mut tally.ambiguous, spent.saturating_sub(1)),
                Class::Permanent => (&mut tally.permanent, spent.saturating_sub(1)),
            };
            *count = 1;
            tally.first = u64::from(spent_before == 0);
        }
        match settled.settlement.decision {
            Decision::Delivered => tally.delivered = 1,
            Decision::Dead(_) => tally.dead = 1,
            Decision::RetryAt(_) | Decision::Requeue => {}
        }
        if let Some(attempt) = &settled.attempt {
            (tally.took_sum, tally.took_max) = (attempt.timings.total, attempt.timings.total);
        }
        tally
    }

    pub fn add(&mut self, other: &Self) {
        self.succeeded += other.succeeded;
        self.transient += other.transient;
        self.throttled += other.throttled;
        self.ambiguous += other.ambiguous;
        self.permanent += other.permanent;
        self.first += other.first;
        self.delivered += other.delivered;
        self.dead += other.dead;
        self.took_sum = self.took_sum + other.took_sum;
        self.took_max = self.took_max.max(other.took_max);
    }
}

/// What came to its end before these times is forgotten (R4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ages {
    pub delivered: Timestamp,
    pub dead: Timestamp,
    /// By when they were started, whatever became of their deliveries.
    pub attempts: Timestamp,
    /// Accepted before this, and none of its deliveries is left. Until then a repetition is recognised (I2).
    pub events: Timestamp,
    pub activity: Timestamp,
    /// Lines of the audit log.
    pub audit: Timestamp,
    /// API keys that ended before this. Their ends are the wall clock's.
    pub keys: Timestamp,
    /// Portal sessions that were over before this.
    pub sessions: Timestamp,
    /// Ordering keys that were last used on an earlier day than this, and that nothing is queued for: their sequence numbers begin anew when they are
    /// used again. Removed destinations whose ID may be forgotten.
    pub idle: Timestamp,
}

/// How many of each kind were forgotten. As many as the limit: there may be more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    pub delivered: usize,
    pub dead: usize,
    pub attempts: usize,
    pub events: usize,
    pub activity: usize,
    pub audit: usize,
    /// Keys and portal sessions.
    pub access: usize,
    /// Of removed destinations: what was queued for them, their ordering keys, and in the end that they were there.
    pub removed: usize,
    /// Ordering keys that were looked at, because they had not been used for long. Those that are still needed stay.
    pub keys: usize,
    /// The deliveries that may go from now on.
    pub available: Vec<Delivery>,
}

impl Purged {
    /// Whether there may be more to forget.
    pub fn is_full(&self, limit: usize) -> bool {
        let Self { delivered, dead, attempts, events, activity, audit, access, removed, keys, .. } = *self;
        [delivered, dead, attempts, events, activity, audit, access, removed, keys].contains(&limit)
    }
}

/// What went wrong, by what a caller can do about it.
#[derive(Debug, ThisError)]
pub enum StoreError {
    /// Try again later: the disk is full, the database is away.
    #[error("the store is not available")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// A search by a person was cut off.
    #[error("the search took too long: ask for less, such as a destination or a shorter time")]
    TookTooLong,
    /// What is stored cannot be read. A person has to look.
    #[error("what is stored cannot be read")]
    Corrupt(#[source] Box<dyn Error + Send + Sync>),
}
