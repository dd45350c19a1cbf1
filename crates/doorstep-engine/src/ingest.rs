//! Taking events in: route, number, write, and only then say yes (D1, I1, I2).

use std::sync::Arc;

use doorstep_core::delivery::Ordering;
use doorstep_core::destination::Destination;
use doorstep_core::engine::Accepted;
use doorstep_core::event::{Event, KeyDigest, NewDelivery, NewEvent, Offer};
use doorstep_core::id::{DeliveryId, DestinationId, TenantId};
use doorstep_core::scheduler::Input;
use doorstep_core::store::{Refusal, Write, Written};

use crate::catalog::Catalog;
use crate::chance::Ids;
use crate::clock::Clock;
use crate::compute_pool::{ComputePool, INLINE_UNITS_MAX, Stopped};
use crate::events::Events;
use crate::run::Handle;
use crate::writer::{BATCH_ROWS_MAX, Receipt, WriteFault, Writer};

#[derive(Clone, Debug)]
pub struct Ingest {
    pub catalog: Arc<Catalog>,
    pub writer: Writer,
    pub events: Arc<Events>,
    pub run: Handle,
    pub clock: Clock,
    pub ids: Arc<Ids>,
    pub pool: Arc<ComputePool>,
}

impl Ingest {
    /// Answers once the event is on disk. Several are written together, and each has its own answer.
    pub async fn accept(&self, offers: Vec<Offer>) -> Result<Vec<Answer>, WriteFault> {
        let other_ids: Vec<_> = offers
            .iter()
            .enumerate()
            .filter_map(|(at, offer)| Some((at, offer.other_id.clone()?, offer.event.clone(), offer.key)))
            .collect();
        let mut answers = self.write(offers).await?;
        // The store alone can say whose an ID is. What it refuses for that is written once more, under the ID that no other
        // source can have. A key that belongs to an event under that ID is refused at first too.
        let (again, ats): (Vec<_>, Vec<_>) = other_ids
            .into_iter()
            .filter(|(at, ..)| matches!(answers[*at], Err(Refusal::SourceDiffers | Refusal::KeyReused)))
            .map(|(at, id, event, key)| (Offer { event: Event { id, ..event }, key, other_id: None }, at))
            .unzip();
        if !again.is_empty() {
            let n = again.len();
            // The others are written, whatever becomes of these.
            let written = self.write(again).await.unwrap_or_else(|fault| not_written(n, &fault));
            for (at, answer) in ats.into_iter().zip(written) {
                answers[at] = answer;
            }
        }
        Ok(answers)
    }

    /// Fails if nothing was written.
    async fn write(&self, offers: Vec<Offer>) -> Result<Vec<Answer>, WriteFault> {
        let n = offers.len();
        let mut answers = Vec::with_capacity(n);
        match self.write_in_parts(offers, &mut answers).await {
            Ok(()) => {}
            Err(fault) if answers.is_empty() => return Err(fault),
            Err(fault) => answers.extend(not_written(n - answers.len(), &fault)),
        }
        Ok(answers)
    }

    /// Writes a few thousand rows at a time, so that others have their turn between them: what goes to many destinations has many rows.
    async fn write_in_parts(&self, offers: Vec<Offer>, answers: &mut Vec<Answer>) -> Result<(), WriteFault> {
        let (mut part, mut units) = (Part::default(), 0);
        for Offer { event, key, .. } in offers {
            let event = Arc::new(event);
            let wanted_by = self.route(&event, &mut units).await?;
            if part.rows + wanted_by.len() >= BATCH_ROWS_MAX && !part.events.is_empty() {
                self.write_part(std::mem::take(&mut part), answers).await?;
            }
            part.rows += 1 + wanted_by.len();
            let new = self.make_deliveries(&event, key, &wanted_by);
            let ordered = new.deliveries.iter().filter(|delivery| delivery.ordered);
            part.ordered.push(ordered.map(|delivery| delivery.destination_id).collect());
            part.writes.push(Write::Accept(Box::new(new)));
            part.events.push(event);
        }
        if part.events.is_empty() { Ok(()) } else { self.write_part(part, answers).await }
    }

    async fn write_part(&self, part: Part, answers: &mut Vec<Answer>) -> Result<(), WriteFault> {
        let (of, since) = (part.tenant(), self.events.moment());
        let Receipt { written, untold } = self.writer.write_in_turn(of, part.writes).await?;
        let (mut deliveries, mut behind) = (Vec::new(), Vec::new());
        for ((event, ordered), written) in part.events.into_iter().zip(part.ordered).zip(written) {
            answers.push(match written {
                Written::Accepted { deliveries: n, duplicate, available } => {
                    if available.len() < n && !duplicate {
                        let waits = |id: &DestinationId| available.iter().all(|one| one.destination_id != *id);
                        behind.extend(ordered.into_iter().filter(waits));
                    }
                    let id = event.id.clone();
                    if let Some(first) = available.first() {
                        self.events.remember(since, first.event_seq, event);
                    }
                    deliveries.extend(available);
                    Ok(Accepted { id, deliveries: n, duplicate })
                }
                Written::Refused(refusal) => Err(refusal),
                other => unreachable!("an event was accepted or refused, not {other:?}"),
            });
        }
        if !deliveries.is_empty() || !behind.is_empty() {
            self.run.tell(Input::Accepted { deliveries, behind }).await;
        }
        drop(untold);
        Ok(())
    }

    /// The destinations that want this event. `units` is the work done since the last yield; an event that takes much more than a runtime thread may
    /// do is moved to the pool, however much that is: what was offered is not refused for what filters cost.
    async fn route(&self, event: &Arc<Event>, units: &mut u64) -> Result<Vec<Arc<Destination>>, WriteFault> {
        let route = |catalog: &Catalog, event: &Event, units_max: u64| {
            catalog.route(event.tenant_id, &event.event_type, &event.payload, units_max)
        };
        if let Ok(routed) = route(&self.catalog, event, INLINE_UNITS_MAX) {
            *units += routed.units;
            if *units >= INLINE_UNITS_MAX {
                *units = 0;
                tokio::task::yield_now().await;
            }
            return Ok(routed.wanted_by);
        }
        *units = 0;
        let (catalog, of_pool) = (Arc::clone(&self.catalog), Arc::clone(event));
        let routed = self.pool.run(Some(event.tenant_id), move || route(&catalog, &of_pool, u64::MAX)).await?;
        // Without a budget it cannot be exceeded.
        Ok(routed.map(|routed| routed.wanted_by).unwrap_or_default())
    }

    fn make_deliveries(&self, event: &Event, key: Option<KeyDigest>, wanted_by: &[Arc<Destination>]) -> NewEvent {
        let now = self.clock.now();
        let ttl = self.catalog.types.ttl_of(event);
        let delivery = |destination: &Arc<Destination>| NewDelivery {
            id: DeliveryId(self.ids.next(now)),
            destination_id: destination.id,
            ordered: event.ordering_key.is_some() && destination.settings.ordering != Ordering::Unordered,
            give_up_at: destination.settings.policy.give_up_at(now, ttl),
        };
        NewEvent { event: event.clone(), key, deliveries: wanted_by.iter().map(delivery).collect() }
    }
}

/// What became of one event.
type Answer = Result<Accepted, Refusal>;

/// Events that are written together.
#[derive(Default)]
struct Part {
    events: Vec<Arc<Event>>,
    /// For each event, the destinations where it may have to wait behind another one of its key.
    ordered: Vec<Vec<DestinationId>>,
    writes: Vec<Write>,
    rows: usize,
}

impl Part {
    /// Whose they are, if they are of one tenant.
    fn tenant(&self) -> Option<TenantId> {
        let first = self.events.first()?.tenant_id;
        self.events.iter().all(|event| event.tenant_id == first).then_some(first)
    }
}

/// The answers to so many events whose turn came after others of their request had been written.
fn not_written(n: usize, fault: &WriteFault) -> Vec<Answer> {
    tracing::warn!(error = %fault, n, "part of a batch was not written; its events are refused");
    vec![Err(Refusal::NotWritten); n]
}

impl From<Stopped> for WriteFault {
    fn from(Stopped: Stopped) -> Self {
        Self::Stopped
    }
}
