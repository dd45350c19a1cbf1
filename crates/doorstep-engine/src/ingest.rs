//! Taking events in: route, number, write, and only then say yes (D1, I1, I2).

use std::sync::Arc;

use doorstep_core::delivery::Ordering;
use doorstep_core::destination::Destination;
use doorstep_core::engine::Accepted;
use doorstep_core::event::{Event, KeyDigest, NewDelivery, NewEvent, Offer};
use doorstep_core::id::DeliveryId;
use doorstep_core::scheduler::Input;
use doorstep_core::store::{Refusal, Write, Written};

use crate::catalog::Catalog;
use crate::chance::Ids;
use crate::clock::Clock;
use crate::compute_pool::{ComputePool, INLINE_UNITS_MAX, Stopped};
use crate::events::Events;
use crate::run::Handle;
use crate::writer::{Receipt, WriteFault, Writer};

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
    pub async fn accept(&self, offers: Vec<Offer>) -> Result<Vec<Result<Accepted, Refusal>>, WriteFault> {
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
            for (at, answer) in ats.into_iter().zip(self.write(again).await?) {
                answers[at] = answer;
            }
        }
        Ok(answers)
    }

    async fn write(&self, offers: Vec<Offer>) -> Result<Vec<Result<Accepted, Refusal>>, WriteFault> {
        let offers: Vec<_> = offers.into_iter().map(|offer| (Arc::new(offer.event), offer.key)).collect();
        let mut writes = Vec::with_capacity(offers.len());
        let mut units = 0;
        for (event, key) in &offers {
            let wanted_by = self.route(event, &mut units).await?;
            writes.push(Write::Accept(Box::new(self.make_deliveries(event, *key, &wanted_by))));
        }
        let since = self.events.moment();
        let Receipt { written, untold } = self.writer.write(writes).await?;
        let mut deliveries = Vec::new();
        let mut answers = Vec::with_capacity(offers.len());
        for ((event, _), written) in offers.into_iter().zip(written) {
            answers.push(match written {
                Written::Accepted { deliveries: n, duplicate, available } => {
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
        if !deliveries.is_empty() {
            self.run.tell(Input::Available { deliveries }).await;
        }
        drop(untold);
        Ok(answers)
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

impl From<Stopped> for WriteFault {
    fn from(Stopped: Stopped) -> Self {
        Self::Stopped
    }
}
