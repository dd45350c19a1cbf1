//! What the API asks of whatever runs the deliveries: the verbs of producers and operators.
//!
//! Everything that changes something is on disk when it is answered, and the running engine has been told by then. Whoever asks
//! says how far they reach: what lies beyond is not there for them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use thiserror::Error as ThisError;

use crate::address::AddressRules;
use crate::attempt::{Answer, Attempt};
use crate::audit::Mandate;
use crate::clock::{Now, Timeline};
use crate::consent::Leave;
use crate::defaults::Defaults;
use crate::delivery::Delivery;
use crate::destination::{Destination, DestinationSettings, Tenant};
use crate::event::{Event, Offer};
use crate::event_type::{Misfit, RegisteredType};
use crate::gate::{AdvertisedQuota, GateChange, GateState, GateStatus, Hold};
use crate::id::{AttemptId, DeliveryId, DestinationId, EventId, TenantId};
use crate::outcome::Outcome;
use crate::reach::Reach;
use crate::retry::Decision;
use crate::route::EventType;
use crate::scheduler::Hand;
use crate::sender::Unsendable;
use crate::store::{Refusal, StoreError, Write, Written};
use crate::time::{Millis, Timestamp};

/// A future answer of the engine.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, EngineFault>> + Send + 'a>>;

pub trait Engine: Send + Sync {
    /// Schedule time and the wall clock's.
    fn look(&self) -> Now;

    /// Schedule time: what everything that is kept carries.
    fn now(&self) -> Timestamp {
        self.look().at
    }

    /// How schedule times are shown.
    fn timeline(&self) -> Arc<Timeline>;

    /// 128 bits that name nothing else; the later, the greater.
    fn new_id(&self) -> u128;

    /// What destinations get that were given nothing of their own, and the most that they may be given.
    fn defaults(&self) -> &Defaults;

    /// Brings a destination's settings in line with what is in force for its tenant.
    fn resolve(&self, tenant_id: TenantId, settings: &mut DestinationSettings);

    /// What destinations may be.
    fn rules(&self) -> &AddressRules;

    fn tenant(&self, reach: Reach, id: TenantId) -> Option<Arc<Tenant>>;

    /// In the order of their IDs, behind `after`.
    fn tenants(&self, reach: Reach, after: Option<TenantId>, limit: usize) -> Vec<Arc<Tenant>>;

    fn destination(&self, reach: Reach, id: DestinationId) -> Option<Arc<Destination>>;

    /// All, or a tenant's, in the order of their IDs, behind `after`.
    fn destinations(
        &self,
        reach: Reach,
        of: Option<TenantId>,
        after: Option<DestinationId>,
        limit: usize,
    ) -> Vec<Arc<Destination>>;

    fn event_type(&self, name: &EventType) -> Option<Arc<RegisteredType>>;

    /// In the order of their names, behind `after`.
    fn event_types(&self, after: Option<&EventType>, limit: usize) -> Vec<Arc<RegisteredType>>;

    /// What keeps an event from being taken, by its registered type and the schema of it (I4).
    fn misfits<'a>(&'a self, event: &'a Event) -> Reply<'a, Vec<Misfit>>;

    /// How long an event matters: as it says, or as its type does (D8).
    fn ttl_of(&self, event: &Event) -> Option<Millis>;

    /// Takes events in. They are written together, and each has its own answer.
    fn accept(&self, reach: Reach, offers: Vec<Offer>) -> Reply<'_, Vec<Result<Accepted, Refusal>>>;

    /// New or changed; see [`Write::PutTenant`] for its version.
    fn put_tenant(&self, mandate: Mandate, tenant: Tenant) -> Reply<'_, Result<Arc<Tenant>, Refusal>>;

    /// Makes a tenant's encrypted payloads unreadable for ever; see [`Write::ErasePayloads`]. What of them is
    /// still to be delivered ends as abandoned when its turn comes.
    fn erase_payloads(&self, mandate: Mandate, tenant_id: TenantId) -> Reply<'_, Result<(), Refusal>>;

    /// New or changed; see [`Write::PutDestination`] for its version. A tenant has a limited number of them.
    fn put_destination(
        &self,
        mandate: Mandate,
        destination: Destination,
    ) -> Reply<'_, Result<Arc<Destination>, Refusal>>;

    fn remove_destination(&self, mandate: Mandate, id: DestinationId) -> Reply<'_, Result<(), Refusal>>;

    /// New or changed; see [`Write::PutEventType`] for its version. Or where it does not
    /// fit the rules for types.
    fn put_event_type(
        &self,
        mandate: Mandate,
        registered: RegisteredType,
    ) -> Reply<'_, Result<Arc<RegisteredType>, TypeRefusal>>;

    fn remove_event_type(&self, mandate: Mandate, name: EventType) -> Reply<'_, Result<(), Refusal>>;

    /// Lays a person's hand on a gate (G14). `None`: there is no such destination.
    fn handle(&self, mandate: Mandate, id: DestinationId, hand: Hand) -> Reply<'_, Option<GateView>>;

    /// Sends a dead letter again, with a fresh budget.
    fn retry(&self, mandate: Mandate, id: DeliveryId, give_up_at: Timestamp) -> Reply<'_, Result<(), Refusal>>;

    /// Ends a delivery by a person's decision.
    fn abandon(&self, mandate: Mandate, id: DeliveryId, note: String) -> Reply<'_, Result<(), Refusal>>;

    /// Whether requests to this destination could be made at all.
    fn check(&self, destination: &Destination) -> Result<(), Unsendable>;

    /// Asks a destination's receiver for its consent now, and answers when that is over. Not too often, and noted, as with
    /// [`Engine::try_out`]. `None`: there is no such destination.
    fn ask_consent(&self, mandate: Mandate, id: DestinationId) -> Reply<'_, Option<Arc<Destination>>>;

    /// A destination's receiver at this URL has followed the link that came with the question.
    fn consent(&self, id: DestinationId, url: String, leave: Leave) -> Reply<'_, Result<(), Refusal>>;

    /// How far asking for consent has got with each of these; `None` where nobody has to be asked, or out of reach.
    fn asking(&self, reach: Reach, ids: &[DestinationId]) -> Vec<Option<Asking>>;

    /// Sends one event to one destination now, whatever its gate says, and keeps no record of it. Not without consent,
    /// where that is needed, and not too often. Who wanted it is noted once nothing stands against it. `None`: there is no such
    /// destination.
    fn try_out(&self, mandate: Mandate, id: DestinationId, event: Event) -> Reply<'_, Option<Trial>>;

    /// The gates of these destinations as they are now, in the order asked for; `None` where there is none.
    fn gates(&self, reach: Reach, ids: Vec<DestinationId>) -> Reply<'_, Vec<Option<GateView>>>;

    /// Why each of these deliveries waits; `None` where it is on its way, or out of reach.
    fn holds(&self, reach: Reach, deliveries: Vec<Delivery>) -> Reply<'_, Vec<Option<Hold>>>;

    /// Writes what the deliveries under way have nothing to do with: keys, portal sessions, the audit log.
    fn write(&self, writes: Vec<Write>) -> Reply<'_, Vec<Written>>;

    /// Whether it takes events and sends.
    fn health(&self) -> Reply<'_, Health>;
}

/// What a producer hears of an event that is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The ID that it is kept under.
    pub id: EventId,
    pub deliveries: usize,
    /// It was accepted before, with the same body: no second delivery is made.
    pub duplicate: bool,
}

/// Why an event type was not registered, or not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeRefusal {
    Misfits(Vec<Misfit>),
    Refused(Refusal),
}

/// A destination's gate as it is now.
#[derive(Clone, Debug)]
pub struct GateView {
    pub state: GateState,
    pub status: GateStatus,
    pub in_flight: u32,
    pub advertised_quota: Option<AdvertisedQuota>,
}

/// A destination's receiver has to agree before anything is sent, and has not yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asking {
    /// Where it is asked.
    pub url: String,
    /// How often it has been, since this server was started.
    pub asked: u32,
    /// When it is asked again; not by itself without it, or right now.
    pub next_ask_at: Option<Timestamp>,
    /// Why the last answer was no consent.
    pub last_answer: Option<String>,
}

/// What came of trying a destination out.
#[derive(Clone, Debug)]
pub struct Trial {
    pub attempt: Attempt,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// The store takes writes.
    pub writes: bool,
    /// It has not been told to stop.
    pub sends: bool,
    pub in_flight: usize,
    /// How often a payload could not be read when its delivery's turn came, since the start.
    pub unreadable_payloads: u64,
    /// How often something else that is stored could not be read or written because it is damaged, since the start.
    pub damage_met: u64,
}

/// Why the engine could not do it. Whatever was asked for did not happen.
#[derive(Clone, Debug, ThisError)]
pub enum EngineFault {
    #[error("too much is waiting to be done: try again in a moment")]
    Busy,
    #[error(transparent)]
    Store(Arc<StoreError>),
    #[error("it is shutting down")]
    Stopped,
    /// The one that did happen.
    #[error("it is in force, but the store has not taken it yet: it is lost if this process ends before it does")]
    Unsaved,
    #[error("it cannot be sent: {0}")]
    Unsendable(String),
    #[error("its receiver has not agreed to be sent to")]
    NoConsent,
    /// Again after this long.
    #[error("that is asked for too often")]
    TooOften(Millis),
}

/// Something happened that people may want to watch.
#[derive(Clone, Debug)]
pub enum News {
    Attempted(Box<Attempted>),
    GateChanged { at: Timestamp, tenant_id: TenantId, destination_id: DestinationId, change: GateChange },
}

/// One request, and what follows from it. Headers and bodies have no place in it: a slow watcher keeps thousands of these in memory.
#[derive(Clone, Debug)]
pub struct Attempted {
    pub at: Timestamp,
    pub tenant_id: TenantId,
    pub destination_id: DestinationId,
    pub delivery_id: DeliveryId,
    pub event_id: EventId,
    pub event_type: EventType,
    pub attempt_id: AttemptId,
    /// Counts the delivery's requests from 1.
    pub number: u32,
    pub answer: Answer,
    pub took: Millis,
    pub outcome: Outcome,
    pub decision: Decision,
}
