//! Where the API asks: what it wants changed is written first, then the running engine is told.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use doorstep_core::address::AddressRules;
use doorstep_core::audit::{AuditEntry, Mandate};
use doorstep_core::clock::{Now, Timeline};
use doorstep_core::consent::{Consent, Leave};
use doorstep_core::defaults::Defaults;
use doorstep_core::delivery::Delivery;
use doorstep_core::destination::{Destination, DestinationSettings, Tenant};
use doorstep_core::engine::{Accepted, Asking, Engine, EngineFault, GateView, Health, Reply, Trial, TypeRefusal};
use doorstep_core::event::{Event, Offer};
use doorstep_core::event_type::{Misfit, RegisteredType};
use doorstep_core::filter::Filter;
use doorstep_core::filter::work::FILTER_WORK_MAX;
use doorstep_core::gate::Hold;
use doorstep_core::id::{DeliveryId, DestinationId, TenantId};
use doorstep_core::reach::Reach;
use doorstep_core::retry::Progress;
use doorstep_core::route::EventType;
use doorstep_core::scheduler::{Hand, Input};
use doorstep_core::sender::{Parcel, Sender, Unsendable};
use doorstep_core::store::{ByHand, Refusal, Write, Written};
use doorstep_core::time::{Millis, Timestamp};
use tokio::sync::Mutex;

use crate::catalog::FilterWork;
use crate::compute_pool::Stopped;
use crate::consent::Consents;
use crate::ingest::Ingest;
use crate::run::Ended;
use crate::tenant_queues::{Places, TenantQueues};
use crate::trials::{TRIAL_TIMEOUT_MAX, Trials, Turn};
use crate::types::Inline;
use crate::writer::{Receipt, Telling, WriteFault};

/// Destinations of one tenant, unless the configuration says otherwise: each takes memory, and each event is matched against all of them.
pub const DESTINATIONS_PER_TENANT_MAX: usize = 1_000;
/// A hand on a gate is in force at once; its answer waits this long for the disk.
const SAVED_WITHIN: Duration = Duration::from_secs(5);

pub struct Desk {
    ingest: Ingest,
    sender: Arc<dyn Sender>,
    rules: AddressRules,
    consents: Consents,
    destinations_max: usize,
    filter_budget: FilterBudget,
    /// Changes of filters: what all of a tenant's cost together is counted before one more is written.
    filter_changes: TenantQueues,
    trials: Trials,
    /// Held while event types are changed: in memory they change in the order in which they do on disk.
    types: Mutex<()>,
}

/// What a tenant's filters may cost for one event.
#[derive(Clone, Copy, Debug)]
pub struct FilterBudget {
    /// In the units of [`doorstep_core::filter::work`].
    pub units_max: u64,
    /// The largest payload that is accepted.
    pub payload_max: usize,
}

impl Default for FilterBudget {
    fn default() -> Self {
        Self { units_max: FILTER_WORK_MAX, payload_max: 256 * 1024 }
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

impl Desk {
    pub fn new(ingest: Ingest, sender: Arc<dyn Sender>, consents: Consents, rules: AddressRules) -> Self {
        Self {
            ingest,
            sender,
            rules,
            consents,
            destinations_max: DESTINATIONS_PER_TENANT_MAX,
            filter_budget: FilterBudget::default(),
            filter_changes: TenantQueues::new(1),
            trials: Trials::default(),
            types: Mutex::new(()),
        }
    }

    /// With so many destinations per tenant at most. Those that are there stay.
    pub fn with_destinations_max(self, destinations_max: usize) -> Self {
        Self { destinations_max, ..self }
    }

    /// With this budget for filters. Those that are there stay, whatever they cost.
    pub fn with_filter_budget(self, filter_budget: FilterBudget) -> Self {
        Self { filter_budget, ..self }
    }

    /// A change by a person: within their reach, and noted. Keep the second part until the run loop has been told what follows.
    async fn change(&self, mandate: Mandate, change: Write) -> Result<(Written, Option<Telling>), EngineFault> {
        let by_hand = Write::ByHand(Box::new(ByHand { mandate, change }));
        let Receipt { mut written, untold } = self.ingest.writer.write(vec![by_hand]).await?;
        Ok((written.pop().ok_or(EngineFault::Stopped)?, untold))
    }

    async fn available(&self, deliveries: Vec<Delivery>) {
        if !deliveries.is_empty() {
            self.ingest.run.tell(Input::Available { deliveries }).await;
        }
    }

    /// Waits until all that the run loop was told is on disk, and who told it.
    async fn saved(&self, entry: AuditEntry) -> Result<(), EngineFault> {
        self.ingest.run.done().await?;
        let line = self.ingest.writer.write_for_certain(vec![Write::Audit(Box::new(entry))]).await;
        match tokio::time::timeout(SAVED_WITHIN, line.written()).await {
            Ok(written) => Ok(written.map(drop)?),
            Err(_) => Err(EngineFault::Unsaved),
        }
    }

    async fn change_destination(
        &self,
        mandate: Mandate,
        destination: Destination,
    ) -> Result<Result<Arc<Destination>, Refusal>, EngineFault> {
        let id = destination.id;
        let _turn = match self.check_filter(&destination).await? {
            Ok(turn) => turn,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let put = Box::new(destination.clone());
        let put = match self.ingest.catalog.destination(id) {
            Some(_) => Write::PutDestination(put),
            // The store counts: of two that are made at the same time, one may be the last.
            None => Write::AddDestination { destination: put, of_tenant_max: self.destinations_max },
        };
        if let (Written::Refused(refusal), _) = self.change(mandate, put).await? {
            return Ok(Err(refusal));
        }
        let destination = self.ingest.catalog.put_destination(destination);
        self.ingest.run.refresh(id).await;
        self.consents.look(id).await;
        // Whoever asks next finds its gate.
        self.ingest.run.done().await?;
        Ok(Ok(destination))
    }

    /// Whether the filter fits into what its tenant's filters may cost. The turn is kept until the change is in force, so that of two changes at
    /// the same time the second one is counted with the first. A filter that stays as it was is not looked at.
    async fn check_filter(&self, destination: &Destination) -> Result<Result<Option<Places>, Refusal>, EngineFault> {
        let Some(filter) = destination.settings.subscription.filter.clone() else { return Ok(Ok(None)) };
        let turn = self.filter_changes.take(Some(destination.tenant_id), 1).await;
        let before = self.ingest.catalog.destination(destination.id);
        let before: Option<&Filter> = before.as_ref().and_then(|before| before.settings.subscription.filter.as_ref());
        if before == Some(&filter) {
            return Ok(Ok(None));
        }
        let FilterBudget { units_max, payload_max } = self.filter_budget;
        let (catalog, of) = (Arc::clone(&self.ingest.catalog), (destination.tenant_id, destination.id));
        let work = move || catalog.filter_work(of, &filter, payload_max);
        let FilterWork { units, searches } = self.ingest.pool.run(Some(of.0), work).await?;
        if units > units_max {
            return Ok(Err(Refusal::FilterTooCostly { units, units_max, searches, payload_max }));
        }
        Ok(Ok(Some(turn)))
    }

    async fn take_away(
        &self,
        mandate: Mandate,
        destination_id: DestinationId,
    ) -> Result<Result<(), Refusal>, EngineFault> {
        if let (Written::Refused(refusal), _) =
            self.change(mandate, Write::RemoveDestination { destination_id }).await?
        {
            return Ok(Err(refusal));
        }
        self.ingest.catalog.remove_destination(destination_id);
        self.ingest.run.refresh(destination_id).await;
        self.consents.look(destination_id).await;
        Ok(Ok(()))
    }

    async fn register(
        &self,
        mandate: Mandate,
        registered: RegisteredType,
    ) -> Result<Result<Arc<RegisteredType>, TypeRefusal>, EngineFault> {
        let _turn = self.types.lock().await;
        let catalog = &self.ingest.catalog;
        let registered = Arc::new(registered);
        let misfits = {
            let (catalog, registered) = (Arc::clone(catalog), Arc::clone(&registered));
            self.ingest.pool.run(None, move || catalog.types.misfits_of_type(&registered)).await?
        };
        if !misfits.is_empty() {
            return Ok(Err(TypeRefusal::Misfits(misfits)));
        }
        let put = Write::PutEventType(Box::new(RegisteredType::clone(&registered)));
        if let (Written::Refused(refusal), _) = self.change(mandate, put).await? {
            return Ok(Err(TypeRefusal::Refused(refusal)));
        }
        let catalog = Arc::clone(catalog);
        let put = move || catalog.types.put(Arc::unwrap_or_clone(registered));
        Ok(Ok(self.ingest.pool.run(None, put).await?))
    }

    async fn unregister(&self, mandate: Mandate, name: EventType) -> Result<Result<(), Refusal>, EngineFault> {
        let _turn = self.types.lock().await;
        let remove = Write::RemoveEventType { name: name.clone() };
        if let (Written::Refused(refusal), _) = self.change(mandate, remove).await? {
            return Ok(Err(refusal));
        }
        self.ingest.catalog.types.remove(&name);
        Ok(Ok(()))
    }

    async fn erase(&self, mandate: Mandate, tenant_id: TenantId) -> Result<Result<(), Refusal>, EngineFault> {
        if let (Written::Refused(refusal), _) = self.change(mandate, Write::ErasePayloads { tenant_id }).await? {
            return Ok(Err(refusal));
        }
        self.ingest.events.forget(tenant_id);
        Ok(Ok(()))
    }

    async fn send_again(
        &self,
        mandate: Mandate,
        delivery_id: DeliveryId,
        give_up_at: Timestamp,
    ) -> Result<Result<(), Refusal>, EngineFault> {
        let (written, untold) = self.change(mandate, Write::Revive { delivery_id, give_up_at }).await?;
        match written {
            Written::Refused(refusal) => return Ok(Err(refusal)),
            Written::Revived { available } => {
                // Whoever ended it may not have told of that yet.
                if let Some(untold) = &untold {
                    untold.earlier_told().await;
                }
                self.available(available).await;
            }
            other => unreachable!("a delivery was revived or refused, not {other:?}"),
        }
        Ok(Ok(()))
    }

    async fn end(
        &self,
        mandate: Mandate,
        delivery_id: DeliveryId,
        note: String,
    ) -> Result<Result<(), Refusal>, EngineFault> {
        let (written, untold) = self.change(mandate, Write::Abandon { delivery_id, note }).await?;
        match written {
            Written::Refused(refusal) => return Ok(Err(refusal)),
            Written::Abandoned { ended, available } => {
                // Whoever accepted it may not have told of it yet: that must not come after its end.
                if let Some(untold) = &untold {
                    untold.earlier_told().await;
                }
                self.ingest.run.tell(Input::Withdrawn { delivery: ended }).await;
                self.available(available).await;
            }
            other => unreachable!("a delivery was abandoned or refused, not {other:?}"),
        }
        Ok(Ok(()))
    }

    /// Whoever reaches everything also reaches what is left of destinations that are gone.
    fn is_within(&self, reach: Reach, id: DestinationId) -> bool {
        reach == Reach::All || self.destination(reach, id).is_some()
    }

    /// Leave to send something past the gate now; noted as soon as it is given, and not where it is refused.
    async fn turn(&self, destination: &Destination, entry: AuditEntry) -> Result<Turn, EngineFault> {
        let turn = self.trials.begin(destination.tenant_id, self.now())?;
        self.ingest.writer.write(vec![Write::Audit(Box::new(entry))]).await?;
        Ok(turn)
    }

    async fn try_one(
        &self,
        entry: AuditEntry,
        destination: Arc<Destination>,
        event: Event,
    ) -> Result<Trial, EngineFault> {
        if destination.awaits_consent() {
            return Err(EngineFault::NoConsent);
        }
        let _turn = self.turn(&destination, entry).await?;
        let now = self.now();
        let mut destination = destination;
        if destination.settings.timeout > TRIAL_TIMEOUT_MAX {
            Arc::make_mut(&mut destination).settings.timeout = TRIAL_TIMEOUT_MAX;
        }
        let delivery = Delivery {
            id: DeliveryId(self.new_id()),
            event_seq: 0,
            destination_id: destination.id,
            seq: 0,
            due_at: now,
            requests: 0,
            progress: Progress { attempts: 0, ambiguous: 0, last_delay: Millis::ZERO, give_up_at: now },
            ordering: None,
            unreadable: 0,
        };
        let parcel = Parcel { destination, event: Arc::new(event), delivery };
        let sent = self.sender.send(parcel).await.map_err(|fault| EngineFault::Unsendable(fault.0.to_string()))?;
        Ok(Trial { attempt: sent.attempt, outcome: sent.outcome })
    }
}

impl Engine for Desk {
    fn look(&self) -> Now {
        self.ingest.clock.look()
    }

    fn timeline(&self) -> Arc<Timeline> {
        self.ingest.clock.timeline()
    }

    fn new_id(&self) -> u128 {
        self.ingest.ids.next(self.now())
    }

    fn defaults(&self) -> &Defaults {
        self.ingest.catalog.defaults()
    }

    fn resolve(&self, tenant_id: TenantId, settings: &mut DestinationSettings) {
        self.ingest.catalog.resolve(tenant_id, settings);
    }

    fn rules(&self) -> &AddressRules {
        &self.rules
    }

    fn tenant(&self, reach: Reach, id: TenantId) -> Option<Arc<Tenant>> {
        self.ingest.catalog.tenant(id).filter(|_| reach.covers(id))
    }

    fn tenants(&self, reach: Reach, after: Option<TenantId>, limit: usize) -> Vec<Arc<Tenant>> {
        match reach {
            Reach::All => self.ingest.catalog.tenants(after, limit),
            Reach::Tenant(own) => {
                self.tenant(reach, own).into_iter().filter(|_| Some(own) > after).take(limit).collect()
            }
        }
    }

    fn destination(&self, reach: Reach, id: DestinationId) -> Option<Arc<Destination>> {
        self.ingest.catalog.destination(id).filter(|destination| reach.covers(destination.tenant_id))
    }

    fn destinations(
        &self,
        reach: Reach,
        of: Option<TenantId>,
        after: Option<DestinationId>,
        limit: usize,
    ) -> Vec<Arc<Destination>> {
        let Some(within) = reach.narrowed_to(of) else { return Vec::new() };
        self.ingest.catalog.destinations(within.tenant_id(), after, limit)
    }

    fn event_type(&self, name: &EventType) -> Option<Arc<RegisteredType>> {
        self.ingest.catalog.types.get(name)
    }

    fn event_types(&self, after: Option<&EventType>, limit: usize) -> Vec<Arc<RegisteredType>> {
        self.ingest.catalog.types.list(after, limit)
    }

    fn misfits<'a>(&'a self, event: &'a Event) -> Reply<'a, Vec<Misfit>> {
        Box::pin(async move {
            let catalog = &self.ingest.catalog;
            match catalog.types.misfits_inline(event) {
                Inline::AtOnce(misfits) => return Ok(misfits),
                Inline::Compared(misfits) => {
                    // A batch has many of them.
                    tokio::task::yield_now().await;
                    return Ok(misfits);
                }
                Inline::TooLong => {}
            }
            let (catalog, of_pool) = (Arc::clone(catalog), event.clone());
            Ok(self.ingest.pool.run(Some(event.tenant_id), move || catalog.types.misfits(&of_pool)).await?)
        })
    }

    fn ttl_of(&self, event: &Event) -> Option<Millis> {
        self.ingest.catalog.types.ttl_of(event)
    }

    fn accept(&self, reach: Reach, offers: Vec<Offer>) -> Reply<'_, Vec<Result<Accepted, Refusal>>> {
        Box::pin(async move {
            let covers = |offer: &Offer| reach.covers(offer.event.tenant_id);
            if offers.iter().all(covers) {
                return Ok(self.ingest.accept(offers).await?);
            }
            let may: Vec<bool> = offers.iter().map(covers).collect();
            let within = offers.into_iter().filter(covers).collect();
            let mut answers = self.ingest.accept(within).await?.into_iter();
            let answer = |may: bool| answers.by_ref().take(usize::from(may)).next().unwrap_or(Err(Refusal::NotFound));
            Ok(may.into_iter().map(answer).collect())
        })
    }

    fn put_tenant(&self, mandate: Mandate, tenant: Tenant) -> Reply<'_, Result<Arc<Tenant>, Refusal>> {
        Box::pin(async move {
            let put = Write::PutTenant(Box::new(tenant.clone()));
            if let (Written::Refused(refusal), _) = self.change(mandate, put).await? {
                return Ok(Err(refusal));
            }
            let before =
                self.ingest.catalog.tenant(tenant.id).map(|before| before.defaults.clone()).unwrap_or_default();
            let tenant = self.ingest.catalog.put_tenant(tenant);
            if before != tenant.defaults {
                for destination in self.ingest.catalog.destinations(Some(tenant.id), None, usize::MAX) {
                    self.ingest.run.refresh(destination.id).await;
                }
            }
            let weight = self.ingest.catalog.tenant(tenant.id).map_or(tenant.weight, |newest| newest.weight);
            self.ingest.run.tell(Input::Weighted { tenant_id: tenant.id, weight }).await;
            Ok(Ok(tenant))
        })
    }

    fn erase_payloads(&self, mandate: Mandate, tenant_id: TenantId) -> Reply<'_, Result<(), Refusal>> {
        Box::pin(self.erase(mandate, tenant_id))
    }

    fn put_destination(
        &self,
        mandate: Mandate,
        destination: Destination,
    ) -> Reply<'_, Result<Arc<Destination>, Refusal>> {
        Box::pin(self.change_destination(mandate, destination))
    }

    fn remove_destination(&self, mandate: Mandate, id: DestinationId) -> Reply<'_, Result<(), Refusal>> {
        Box::pin(self.take_away(mandate, id))
    }

    fn put_event_type(
        &self,
        mandate: Mandate,
        registered: RegisteredType,
    ) -> Reply<'_, Result<Arc<RegisteredType>, TypeRefusal>> {
        Box::pin(self.register(mandate, registered))
    }

    fn remove_event_type(&self, mandate: Mandate, name: EventType) -> Reply<'_, Result<(), Refusal>> {
        Box::pin(self.unregister(mandate, name))
    }

    fn handle(&self, mandate: Mandate, id: DestinationId, hand: Hand) -> Reply<'_, Option<GateView>> {
        Box::pin(async move {
            if self.destination(mandate.reach, id).is_none() {
                return Ok(None);
            }
            self.ingest.run.tell(Input::Handled { destination_id: id, hand }).await;
            self.saved(mandate.entry).await?;
            Ok(self.ingest.run.gates(vec![id]).await?.pop().flatten())
        })
    }

    fn retry(&self, mandate: Mandate, id: DeliveryId, give_up_at: Timestamp) -> Reply<'_, Result<(), Refusal>> {
        Box::pin(self.send_again(mandate, id, give_up_at))
    }

    fn abandon(&self, mandate: Mandate, id: DeliveryId, note: String) -> Reply<'_, Result<(), Refusal>> {
        Box::pin(self.end(mandate, id, note))
    }

    fn ask_consent(&self, mandate: Mandate, id: DestinationId) -> Reply<'_, Option<Arc<Destination>>> {
        Box::pin(async move {
            let Some(destination) = self.destination(mandate.reach, id) else { return Ok(None) };
            let _turn = self.turn(&destination, mandate.entry).await?;
            self.consents.ask(id).await?;
            Ok(self.destination(mandate.reach, id))
        })
    }

    fn consent(&self, id: DestinationId, url: String, leave: Leave) -> Reply<'_, Result<(), Refusal>> {
        let consent = Consent { url, origin: self.sender.origin().to_owned(), leave, given_at: self.now() };
        Box::pin(self.consents.grant(id, consent))
    }

    fn asking(&self, reach: Reach, ids: &[DestinationId]) -> Vec<Option<Asking>> {
        let asking = self.consents.asking(ids).into_iter().zip(ids);
        asking.map(|(asking, id)| asking.filter(|_| self.is_within(reach, *id))).collect()
    }

    fn check(&self, destination: &Destination) -> Result<(), Unsendable> {
        self.sender.check(destination)
    }

    fn try_out(&self, mandate: Mandate, id: DestinationId, event: Event) -> Reply<'_, Option<Trial>> {
        Box::pin(async move {
            match self.destination(mandate.reach, id) {
                Some(destination) => self.try_one(mandate.entry, destination, event).await.map(Some),
                None => Ok(None),
            }
        })
    }

    fn gates(&self, reach: Reach, ids: Vec<DestinationId>) -> Reply<'_, Vec<Option<GateView>>> {
        let within: Vec<bool> = ids.iter().map(|id| self.is_within(reach, *id)).collect();
        Box::pin(async move { Ok(only(&within, self.ingest.run.gates(ids).await?)) })
    }

    fn holds(&self, reach: Reach, deliveries: Vec<Delivery>) -> Reply<'_, Vec<Option<Hold>>> {
        let within: Vec<bool> = deliveries.iter().map(|one| self.is_within(reach, one.destination_id)).collect();
        Box::pin(async move { Ok(only(&within, self.ingest.run.holds(deliveries).await?)) })
    }

    fn write(&self, writes: Vec<Write>) -> Reply<'_, Vec<Written>> {
        Box::pin(async move { Ok(self.ingest.writer.write(writes).await?.written) })
    }

    fn health(&self) -> Reply<'_, Health> {
        Box::pin(async move {
            let writes = self.ingest.writer.write(Vec::new()).await.is_ok();
            let in_flight = self.ingest.run.in_flight().await;
            Ok(Health {
                writes,
                sends: in_flight.is_ok(),
                in_flight: in_flight.unwrap_or(0),
                unreadable_payloads: self.ingest.events.unreadable.total(),
                damage_met: self.ingest.events.damage_met.load(Ordering::Relaxed)
                    + self.ingest.writer.commits().damaged.load(Ordering::Relaxed),
            })
        })
    }
}

/// What is known of those that are within reach.
fn only<T>(within: &[bool], known: Vec<Option<T>>) -> Vec<Option<T>> {
    known.into_iter().zip(within).map(|(one, is_within)| one.filter(|_| *is_within)).collect()
}

impl From<WriteFault> for EngineFault {
    fn from(fault: WriteFault) -> Self {
        match fault {
            WriteFault::Busy => Self::Busy,
            WriteFault::Store(fault) => Self::Store(fault),
            WriteFault::Stopped => Self::Stopped,
        }
    }
}

impl From<Stopped> for EngineFault {
    fn from(Stopped: Stopped) -> Self {
        Self::Stopped
    }
}

impl From<Ended> for EngineFault {
    fn from(Ended: Ended) -> Self {
        Self::Stopped
    }
}
