//! What a scheduler is told and what it says.

use std::sync::Arc;

use crate::delivery::{Delivery, Ordering, Place, Settlement, Track};
use crate::gate::{GateChange, GateLimits, GateState};
use crate::id::{DeliveryId, DestinationId, TenantId};
use crate::outcome::Outcome;
use crate::retry::RetryPolicy;

/// Bounds of one scheduler.
#[derive(Clone, Debug)]
pub struct SchedulerLimits {
    /// Requests at once, over all destinations. A tenant alone gets somewhat less than half of them, so that another finds some free.
    pub in_flight_max: usize,
    /// Deliveries that one lane keeps in memory, per track.
    pub window_max: usize,
    /// Reads of the store at once.
    pub refills_max: usize,
    /// This share of the slots, in per cent, is kept for first attempts; as much for retries.
    pub reserved_percent: usize,
    /// Requests at once to one receiving host, over all destinations there (G10). Tenants share them in the same way.
    pub per_host_max: Option<usize>,
}

impl Default for SchedulerLimits {
    fn default() -> Self {
        Self { in_flight_max: 4_096, window_max: 64, refills_max: 64, reserved_percent: 20, per_host_max: None }
    }
}

impl SchedulerLimits {
    /// What is left to a track when the other has its share.
    pub(super) fn track_max(&self) -> usize {
        // More than half for each is more than there is.
        self.in_flight_max - self.in_flight_max * self.reserved_percent.min(50) / 100
    }
}

/// What the scheduler needs to know of a destination.
#[derive(Clone, Debug)]
pub struct DestinationPlan {
    pub id: DestinationId,
    pub tenant_id: TenantId,
    /// The receiving host, where a cap per host is wanted.
    pub host: Arc<str>,
    pub limits: Arc<GateLimits>,
    pub policy: Arc<RetryPolicy>,
    pub ordering: Ordering,
    /// Its receiver has not agreed to be sent to: everything waits.
    pub awaits_consent: bool,
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// This destination is ours to serve from now on. `backlog`: the store may hold deliveries for it.
    Adopted { plan: Box<DestinationPlan>, gate: Box<GateState>, backlog: bool },
    /// Its settings changed.
    Changed { plan: Box<DestinationPlan> },
    /// It is ours no more: deleted, or handed to another node.
    Dropped { destination_id: DestinationId },
    /// A tenant's share in the turns. Unknown tenants have weight 1.
    Weighted { tenant_id: TenantId, weight: u32 },
    /// New deliveries are in the store. These may go; for each of `behind`, one waits behind another of its ordering key.
    Accepted { deliveries: Vec<Delivery>, behind: Vec<DestinationId> },
    /// These are in the store and may go: next of their key, or sent again by a person.
    Available { deliveries: Vec<Delivery> },
    /// What a `Refill` found. `exhausted`: there is nothing beyond. It is told after the `Accepted` or `Available` of every write that it may have
    /// seen: otherwise a delivery would be taken twice.
    Refilled { ticket: Ticket, deliveries: Vec<Delivery>, exhausted: bool },
    /// The store could not be read.
    RefillFailed { ticket: Ticket },
    /// A request came to its end.
    Answered { delivery_id: DeliveryId, outcome: Outcome },
    /// A request's fate is unknown, by our own fault: the delivery runs again and pays nothing (D6).
    Interrupted { delivery_id: DeliveryId },
    /// There was nothing to send for these, in the order in which they were said to be sent: their payloads were erased. No request was
    /// made, and they end.
    Voided { delivery_ids: Vec<DeliveryId> },
    /// The payloads of these cannot be read, in the order in which they were said to be sent. No request was made: they step aside
    /// for a while, and pay nothing (D6).
    Unreadable { delivery_ids: Vec<DeliveryId> },
    /// These have run out of time, wherever they wait.
    Overdue { deliveries: Vec<Delivery> },
    /// A person ended this one.
    Withdrawn { delivery: Box<Delivery> },
    /// A person's hand on a gate (G14).
    Handled { destination_id: DestinationId, hand: Hand },
    /// The time of [`Scheduler::wake_at`](super::Scheduler::wake_at) has come.
    Woken,
    /// Send nothing more; what is in flight comes to its end. Once nothing is, each further `Stop` says of some gates that
    /// they are to be saved, until all are.
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hand {
    Pause,
    Resume,
    Probe,
    ClearThrottle {
        /// Also the pace that throttling has taught.
        forget_learned: bool,
    },
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Read up to `limit` deliveries of this track behind `after`, in order of their places.
    Refill {
        ticket: Ticket,
        destination_id: DestinationId,
        track: Track,
        after: Option<Place>,
        limit: usize,
    },
    Send {
        delivery: Delivery,
        probe: bool,
    },
    Settle(Settlement),
    SaveGate {
        destination_id: DestinationId,
        state: Box<GateState>,
    },
    Announce {
        destination_id: DestinationId,
        change: GateChange,
    },
}

/// Ties the answer to a `Refill` to its question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);
