//! Taking events in: route, number, write, and only then say yes (D1, I1, I2).

use std::sync::Arc;

use doorstep_core::delivery::Ordering;
use doorstep_core::engine::Accepted;
use doorstep_core::event::{Event, KeyDigest, NewDelivery, NewEvent, Offer};
use doorstep_core::id::DeliveryId;
use doorstep_core::scheduler::Input;
use doorstep_core::store::{Refusal, Write, Written};

use crate::catalog::Catalog;
use crate::chance::Ids;
use crate::clock::Clock;
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
}

impl Ingest {
    /// Answers once the event is on disk. Several are written together, and each has its own answer.
    pub async fn accept(&self, offers: Vec<Offer>) -> Result<Vec<Result<Accepted, Refusal>>, WriteFault> {
        let offers: Vec<_> = offers.into_iter().map(|Offer { event, key }| (Arc::new(event), key)).collect();
        let writes = offers.iter().map(|(event, key)| Write::Accept(Box::new(self.route(event, *key)))).collect();
        let since = self.events.moment();
        let Receipt { written, untold } = self.writer.write(writes).await?;
        let mut deliveries = Vec::new();
        let mut answers = Vec::with_capacity(offers.len());
        for ((event, _), written) in offers.into_iter().zip(written) {
            answers.push(match written {
                Written::Accepted { deliveries: n, duplicate, available } => {
                    if let Some(first) = available.first() {
                        self.events.remember(since, first.event_seq, event);
                    }
                    deliveries.extend(available);
                    Ok(Accepted { deliveries: n, duplicate })
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

    fn route(&self, event: &Arc<Event>, key: Option<KeyDigest>) -> NewEvent {
        let now = self.clock.now();
        let wanted_by = self.catalog.route(event.tenant_id, &event.event_type, &event.payload);
        let ttl = self.catalog.types.ttl_of(event);
        let delivery = |destination: &Arc<doorstep_core::destination::Destination>| NewDelivery {
            id: DeliveryId(self.ids.next(now)),
            destination_id: destination.id,
            ordered: event.ordering_key.is_some() && destination.settings.ordering != Ordering::Unordered,
            give_up_at: destination.settings.policy.give_up_at(now, ttl),
        };
        NewEvent { event: Event::clone(event), key, deliveries: wanted_by.iter().map(delivery).collect() }
    }
}
