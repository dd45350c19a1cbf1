//! The run loop: tells the scheduler what happened and carries out what it says.
//!
//! One task owns the scheduler. It takes whatever has happened since, tells it all, and then does what follows in
//! groups: one write, one read of the store, one look-up of events; each request is a task of its own.

use std::error::Error;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use doorstep_core::delivery::{Delivery, Settlement};
use doorstep_core::destination::Destination;
use doorstep_core::dice::Dice;
use doorstep_core::engine::{Attempted, GateView, News};
use doorstep_core::event::Event;
use doorstep_core::gate::{GateChange, Hold};
use doorstep_core::id::{DeliveryId, DestinationId};
use doorstep_core::id_map::IdMap;
use doorstep_core::outcome::Outcome;
use doorstep_core::scheduler::{Command, DestinationPlan, Input, Scheduler, SchedulerLimits, Ticket};
use doorstep_core::sender::{Parcel, SendFault, Sender, Sent};
use doorstep_core::store::{DuePage, DueQuery, Settled, Store, StoreError, StoredDestination, Write, Written};
use doorstep_core::time::{Millis, Timestamp};
use futures_util::FutureExt;
use thiserror::Error;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::events::{Events, Found};
use crate::writer::{Receipt, Writer};

/// What may wait for the run loop. Producers of inputs wait for room beyond that.
const INPUTS_MAX: usize = 16_384;
/// Inputs that are told in one go, before what follows from them is done.
const INPUTS_PER_ROUND: usize = 1_024;
/// Overdue deliveries that are ended in one go.
const OVERDUE_PER_SWEEP: usize = 500;
/// Tenants and destinations that are read in one go at the start.
const CATALOG_PAGE: usize = 1_000;
/// The store is asked for overdue deliveries at most this often, and at least this seldom.
const SWEEP_MIN: Millis = Millis::from_secs(1);
const SWEEP_MAX: Millis = Millis::from_mins(1);

/// What the run loop works with.
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub sender: Arc<dyn Sender>,
    pub writer: Writer,
    pub catalog: Arc<Catalog>,
    pub events: Arc<Events>,
    pub clock: Clock,
    pub dice: Box<dyn Dice + Send>,
    pub limits: SchedulerLimits,
    /// Tells whoever watches. Whoever falls behind misses some; nobody waits for them.
    pub news: broadcast::Sender<News>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// A way to tell and to ask the run loop.
#[derive(Clone, Debug)]
pub struct Handle {
    inputs: mpsc::Sender<Message>,
}

#[derive(Debug)]
enum Message {
    Tell(Input),
    /// The catalog has changed here.
    Refresh(DestinationId),
    /// An answer, with the record of its request.
    Answered(DeliveryId, Box<Record>),
    Ask(Question),
    /// Answers once all that was told before is in the writer's line.
    Done(oneshot::Sender<()>),
    Overdue(Vec<Delivery>, Option<Timestamp>),
    Drain(oneshot::Sender<()>),
}

#[derive(Debug)]
enum Question {
    Holds(Vec<Delivery>, oneshot::Sender<Vec<Option<Hold>>>),
    Gates(Vec<DestinationId>, oneshot::Sender<Vec<Option<GateView>>>),
    InFlight(oneshot::Sender<usize>),
}

/// A request that has come to its end, and the event that it carried.
#[derive(Debug)]
struct Record {
    sent: Sent,
    event: Arc<Event>,
}

/// The run loop has ended: nobody is left to be told or asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the run loop has ended")]
pub struct Ended;

impl Handle {
    /// Tells the scheduler. Waits for room, never drops.
    pub async fn tell(&self, input: Input) {
        // The loop is gone only while the process ends: nobody is left to be told.
        let _ = self.inputs.send(Message::Tell(input)).await;
    }

    /// Has the scheduler serve this destination as the catalog has it now, or no longer.
    pub async fn refresh(&self, destination_id: DestinationId) {
        let _ = self.inputs.send(Message::Refresh(destination_id)).await;
    }

    /// Returns once what follows from all that was told before is in the writer's line.
    pub async fn done(&self) -> Result<(), Ended> {
        self.ask(Message::Done).await
    }

    /// Why each of these does not go now; `None` where it is on its way.
    pub async fn holds(&self, deliveries: Vec<Delivery>) -> Result<Vec<Option<Hold>>, Ended> {
        self.ask(|answer| Message::Ask(Question::Holds(deliveries, answer))).await
    }

    pub async fn gates(&self, ids: Vec<DestinationId>) -> Result<Vec<Option<GateView>>, Ended> {
        self.ask(|answer| Message::Ask(Question::Gates(ids, answer))).await
    }

    pub async fn in_flight(&self) -> Result<usize, Ended> {
        self.ask(|answer| Message::Ask(Question::InFlight(answer))).await
    }

    async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Message) -> Result<T, Ended> {
        let (answer, answered) = oneshot::channel();
        self.inputs.send(message(answer)).await.map_err(|_| Ended)?;
        answered.await.map_err(|_| Ended)
    }

    /// Returns when the run loop has ended.
    pub async fn ended(&self) {
        self.inputs.closed().await;
    }

    /// Sends nothing more, and returns when all that was in flight has come to its end and is written. The run loop ends.
    pub async fn drain(&self) {
        let (done, drained) = oneshot::channel();
        if self.inputs.send(Message::Drain(done)).await.is_ok() {
            let _ = drained.await;
        }
    }
}

/// Starts the run loop's task. It ends after [`Handle::drain`], and has let go of everything then.
pub fn start(parts: Parts) -> (Handle, JoinHandle<()>) {
    let (sender, inputs) = mpsc::channel(INPUTS_MAX);
    let handle = Handle { inputs: sender };
    let scheduler = Scheduler::new(parts.limits.clone());
    let run = Run {
        parts,
        scheduler,
        inputs,
        handle: handle.clone(),
        records: IdMap::default(),
        next_sweep_at: Timestamp::default(),
        sweeping: false,
        drained: Vec::new(),
        tasks: JoinSet::new(),
    };
    let task = tokio::spawn(run.run());
    (handle, task)
}

struct Run {
    parts: Parts,
    scheduler: Scheduler,
    inputs: mpsc::Receiver<Message>,
    handle: Handle,
    /// Records of requests whose settlement is about to be said.
    records: IdMap<DeliveryId, Box<Record>>,
    next_sweep_at: Timestamp,
    sweeping: bool,
    drained: Vec<oneshot::Sender<()>>,
    /// What waits for the store on the loop's behalf.
    tasks: JoinSet<()>,
}

/// What follows from a round of inputs, in groups.
#[derive(Default)]
struct Round {
    writes: Vec<Write>,
    reads: Vec<(Ticket, DueQuery)>,
    sends: Vec<Delivery>,
    /// Who waits for all that to be in line.
    done: Vec<oneshot::Sender<()>>,
}

impl Run {
    async fn run(mut self) {
        while let Some((messages, now)) = self.next().await {
            while self.tasks.try_join_next().is_some() {}
            let mut round = Round::default();
            for message in messages {
                self.take(message, now, &mut round);
            }
            self.sweep_if_due(now);
            self.carry_out(round).await;
            if !self.drained.is_empty() && self.scheduler.in_flight() == 0 {
                return self.end().await;
            }
        }
    }

    /// Nothing is in flight any more: the last settlements and gates are written, and whoever waits for that is told.
    async fn end(&mut self) {
        loop {
            let mut round = Round::default();
            self.take(Message::Tell(Input::Stop), self.parts.clock.now(), &mut round);
            let is_last = round.writes.is_empty();
            let written = self.parts.writer.write_for_certain(round.writes).await.written().await;
            if let Err(fault) = &written {
                tracing::error!(error = %fault, "the last settlements could not be written; what they settled is sent again");
            }
            if is_last || written.is_err() {
                break;
            }
        }
        // Whoever still reads does so for nobody.
        self.tasks.shutdown().await;
        for done in self.drained.drain(..) {
            let _ = done.send(());
        }
    }

    /// What has happened since, or that it is time, and the time itself: one for all that comes together.
    async fn next(&mut self) -> Option<(Vec<Message>, Timestamp)> {
        let mut messages = Vec::new();
        let wake_at = self.scheduler.wake_at().map_or(self.next_sweep_at, |at| at.min(self.next_sweep_at));
        let alarm = self.parts.clock.sleep_until(wake_at);
        tokio::select! {
            n = self.inputs.recv_many(&mut messages, INPUTS_PER_ROUND) => if n == 0 { return None },
            () = alarm => {}
        }
        let now = self.parts.clock.now();
        if self.scheduler.wake_at().is_some_and(|at| at <= now) {
            messages.push(Message::Tell(Input::Woken));
        }
        Some((messages, now))
    }

    fn take(&mut self, message: Message, now: Timestamp, round: &mut Round) {
        let input = match message {
            Message::Tell(input) => input,
            Message::Answered(delivery_id, record) => {
                let outcome: Outcome = record.sent.outcome;
                self.records.insert(delivery_id, record);
                Input::Answered { delivery_id, outcome }
            }
            Message::Refresh(destination_id) => return self.refresh(destination_id, now, round),
            Message::Ask(question) => return self.answer(question, now),
            Message::Done(done) => return round.done.push(done),
            Message::Overdue(deliveries, next) => {
                self.sweeping = false;
                let full = deliveries.len() >= OVERDUE_PER_SWEEP;
                let next = if full { now } else { next.unwrap_or(Timestamp::MAX) };
                self.next_sweep_at = next.max(now + SWEEP_MIN).min(now + SWEEP_MAX);
                Input::Overdue { deliveries }
            }
            Message::Drain(done) => {
                self.drained.push(done);
                Input::Stop
            }
        };
        self.handle(input, now, round);
    }

    fn handle(&mut self, input: Input, now: Timestamp, round: &mut Round) {
        let mut commands = Vec::new();
        self.scheduler.handle(input, now, self.parts.dice.as_mut(), &mut commands);
        for command in commands {
            self.sort(command, now, round);
        }
    }

    /// Looks itself: two changes may arrive in either order, and the later look sees the later state.
    fn refresh(&mut self, destination_id: DestinationId, now: Timestamp, round: &mut Round) {
        let Some(destination) = self.parts.catalog.destination(destination_id) else {
            return self.handle(Input::Dropped { destination_id }, now, round);
        };
        // An event may have found a new destination before this did: the store may hold something for it.
        let (plan, backlog) = (Box::new(plan(&destination)), true);
        if self.scheduler.gate(destination_id).is_none() {
            return self.handle(Input::Adopted { plan, gate: Box::default(), backlog }, now, round);
        }
        self.handle(Input::Changed { plan }, now, round);
    }

    fn sort(&mut self, command: Command, now: Timestamp, round: &mut Round) {
        match command {
            Command::Send { delivery, .. } => round.sends.push(delivery),
            Command::Settle(settlement) => round.writes.push(self.settle(settlement)),
            Command::SaveGate { destination_id, state } => {
                round.writes.push(Write::SaveGate { destination_id, state });
            }
            Command::Refill { ticket, destination_id, track, after, limit } => {
                round.reads.push((ticket, DueQuery { destination_id, track, after, limit }));
            }
            Command::Announce { destination_id, change } => self.announce(destination_id, change, now),
        }
    }

    fn settle(&mut self, settlement: Settlement) -> Write {
        let record = self.records.remove(&settlement.delivery.id);
        if let Some(record) = &record
            && self.parts.news.receiver_count() > 0
        {
            self.tell_of(record, &settlement);
        }
        Write::Settle(Arc::new(Settled { settlement, attempt: record.map(|record| record.sent.attempt) }))
    }

    fn tell_of(&self, record: &Record, settlement: &Settlement) {
        let Record { sent, event } = record;
        // Nobody may be left to hear it.
        let _ = self.parts.news.send(News::Attempted(Box::new(Attempted {
            at: settlement.settled_at,
            tenant_id: event.tenant_id,
            destination_id: settlement.delivery.destination_id,
            delivery_id: settlement.delivery.id,
            event_id: event.id.clone(),
            event_type: event.event_type.clone(),
            attempt_id: sent.attempt.id,
            number: sent.attempt.number,
            answer: sent.attempt.answer,
            took: sent.attempt.timings.total,
            outcome: sent.outcome,
            decision: settlement.decision,
        })));
    }

    fn announce(&self, destination_id: DestinationId, change: GateChange, at: Timestamp) {
        tracing::info!(%destination_id, ?change, "a gate has changed");
        if let Some(destination) = self.parts.catalog.destination(destination_id) {
            let tenant_id = destination.tenant_id;
            let _ = self.parts.news.send(News::GateChanged { at, tenant_id, destination_id, change });
        }
    }

    fn answer(&self, question: Question, now: Timestamp) {
        // Whoever asked may have gone away.
        match question {
            Question::Holds(deliveries, answer) => {
                let holds = deliveries.iter().map(|delivery| self.scheduler.hold(delivery, now)).collect();
                drop(answer.send(holds));
            }
            Question::Gates(ids, answer) => {
                let view = |id: DestinationId| {
                    self.scheduler.gate(id).map(|gate| GateView {
                        state: gate.state().clone(),
                        status: gate.status(now),
                        in_flight: gate.in_flight(),
                        advertised_quota: gate.advertised_quota(now),
                    })
                };
                drop(answer.send(ids.into_iter().map(view).collect()));
            }
            Question::InFlight(answer) => drop(answer.send(self.scheduler.in_flight())),
        }
    }

    async fn carry_out(&mut self, round: Round) {
        // What was withdrawn leaves its record behind.
        self.records.clear();
        if !round.writes.is_empty() {
            let pending = self.parts.writer.write_for_certain(round.writes).await;
            let handle = self.handle.clone();
            self.tasks.spawn(async move {
                let Ok(Receipt { written, untold }) = pending.written().await else { return };
                let deliveries: Vec<Delivery> = written.into_iter().flat_map(available).collect();
                if !deliveries.is_empty() {
                    handle.tell(Input::Available { deliveries }).await;
                }
                drop(untold);
            });
        }
        for done in round.done {
            let _ = done.send(());
        }
        if !round.reads.is_empty() {
            self.read(round.reads).await;
        }
        if !round.sends.is_empty() {
            self.send(round.sends);
        }
    }

    /// Reads once everything that was said before is written.
    async fn read(&mut self, reads: Vec<(Ticket, DueQuery)>) {
        let barrier = self.parts.writer.write_for_certain(Vec::new()).await;
        let (store, writer, handle) = (Arc::clone(&self.parts.store), self.parts.writer.clone(), self.handle.clone());
        let events = Arc::clone(&self.parts.events);
        self.tasks.spawn(async move {
            let (tickets, queries): (Vec<Ticket>, Vec<DueQuery>) = reads.into_iter().unzip();
            let pages = match barrier.written().await {
                Ok(_) => store.due(queries).await.map_err(|fault| {
                    events.note_damage(&fault);
                    in_full(&fault)
                }),
                Err(fault) => Err(fault.to_string()),
            };
            // It may have seen writes that nobody has told of yet.
            writer.all_told().await;
            match pages {
                Ok(pages) => {
                    for (ticket, DuePage { deliveries, exhausted }) in tickets.into_iter().zip(pages) {
                        handle.tell(Input::Refilled { ticket, deliveries, exhausted }).await;
                    }
                }
                Err(fault) => {
                    tracing::warn!(error = fault, "the store could not be read; it is asked again in a second");
                    for ticket in tickets {
                        handle.tell(Input::RefillFailed { ticket }).await;
                    }
                }
            }
        });
    }

    /// Looks the events up together, then sends each in a task of its own.
    fn send(&mut self, deliveries: Vec<Delivery>) {
        let (events, catalog) = (Arc::clone(&self.parts.events), Arc::clone(&self.parts.catalog));
        let (sender, handle, clock) = (Arc::clone(&self.parts.sender), self.handle.clone(), self.parts.clock.clone());
        self.tasks.spawn(async move {
            let seqs = deliveries.iter().map(|delivery| delivery.event_seq).collect();
            let found = events.get(seqs).await;
            let (mut erased, mut unreadable) = (Vec::new(), Vec::new());
            for (delivery, event) in deliveries.into_iter().zip(found) {
                let destination = catalog.destination(delivery.destination_id);
                let (event, destination) = match (event, destination) {
                    (Found::Event(event), Some(destination)) => (event, destination),
                    (Found::Gone, Some(_)) => {
                        erased.push(delivery.id);
                        continue;
                    }
                    (Found::Unreadable(what), Some(_)) => {
                        events.unreadable.note(&delivery, &what, clock.now());
                        unreadable.push(delivery.id);
                        continue;
                    }
                    (Found::Event(_) | Found::Gone | Found::Unreadable(_) | Found::NotNow, _) => {
                        tracing::error!(delivery_id = %delivery.id, "event or destination missing; will retry");
                        handle.tell(Input::Interrupted { delivery_id: delivery.id }).await;
                        continue;
                    }
                };
                if destination.awaits_consent() {
                    // It was changed just now, and the scheduler is about to hear of it.
                    handle.tell(Input::Interrupted { delivery_id: delivery.id }).await;
                    continue;
                }
                let parcel = Parcel { destination, event, delivery };
                tokio::spawn(send_one(Arc::clone(&sender), parcel, handle.clone()));
            }
            if !erased.is_empty() {
                handle.tell(Input::Voided { delivery_ids: erased }).await;
            }
            if !unreadable.is_empty() {
                handle.tell(Input::Unreadable { delivery_ids: unreadable }).await;
            }
        });
    }

    fn sweep_if_due(&mut self, now: Timestamp) {
        if self.sweeping || now < self.next_sweep_at {
            return;
        }
        self.sweeping = true;
        self.next_sweep_at = now + SWEEP_MAX;
        let (store, handle) = (Arc::clone(&self.parts.store), self.handle.clone());
        self.tasks.spawn(async move {
            let found = store.overdue(now, OVERDUE_PER_SWEEP).await;
            let next = store.next_give_up_at().await;
            let deliveries = found.unwrap_or_else(|fault| {
                tracing::warn!(error = %fault, "overdue deliveries could not be read; they are looked for again");
                Vec::new()
            });
            let _ = handle.inputs.send(Message::Overdue(deliveries, next.ok().flatten())).await;
        });
    }
}

/// With its causes: which row, and what is wrong with it.
fn in_full(fault: &StoreError) -> String {
    fault.source().map_or_else(|| fault.to_string(), |source| format!("{fault}: {source}"))
}

async fn send_one(sender: Arc<dyn Sender>, parcel: Parcel, handle: Handle) {
    let (delivery_id, event) = (parcel.delivery.id, Arc::clone(&parcel.event));
    // A panic in a send is our own fault, and this delivery's alone.
    let sent = AssertUnwindSafe(async { sender.send(parcel).await }).catch_unwind().await;
    let sent: Result<Sent, SendFault> = sent.unwrap_or_else(|_| Err(SendFault("the sender panicked".into())));
    match sent {
        Ok(sent) => {
            let record = Box::new(Record { sent, event });
            drop(handle.inputs.send(Message::Answered(delivery_id, record)).await);
        }
        Err(fault) => {
            tracing::error!(%delivery_id, error = %fault, "a request could not be made or was lost; will retry");
            handle.tell(Input::Interrupted { delivery_id }).await;
        }
    }
}

fn available(written: Written) -> Vec<Delivery> {
    match written {
        Written::Accepted { available, .. }
        | Written::Settled { available }
        | Written::Revived { available }
        | Written::Abandoned { available, .. } => available,
        Written::Saved | Written::Refused(_) => Vec::new(),
    }
}

/// Reads all tenants and destinations, and has the run loop serve them, each with the gate that was stored.
pub async fn adopt_all(store: &dyn Store, catalog: &Catalog, handle: &Handle) -> Result<usize, StoreError> {
    let mut after = None;
    loop {
        let tenants = store.tenants(after, CATALOG_PAGE).await?;
        after = tenants.last().map(|tenant| tenant.id);
        for tenant in tenants {
            handle.tell(Input::Weighted { tenant_id: tenant.id, weight: tenant.weight }).await;
            catalog.put_tenant(tenant);
        }
        if after.is_none() {
            break;
        }
    }
    let mut after = None;
    loop {
        let types = store.event_types(after, CATALOG_PAGE).await?;
        after = types.last().map(|registered| registered.name.clone());
        for registered in types {
            catalog.types.put(registered);
        }
        if after.is_none() {
            break;
        }
    }
    let (mut after, mut n) = (None, 0);
    loop {
        let page = store.destinations(after, CATALOG_PAGE).await?;
        after = page.last().map(|stored| stored.destination.id);
        for StoredDestination { destination, gate, has_backlog } in page {
            let destination = catalog.load_destination(destination);
            if let Some(preset) = destination.settings.preset.as_ref().filter(|name| catalog.defaults().lacks(name)) {
                let destination_id = destination.id;
                tracing::warn!(%destination_id, %preset, "its policy is not configured any more; the default policy is used");
            }
            let (plan, gate) = (Box::new(plan(&destination)), Box::new(gate));
            handle.tell(Input::Adopted { plan, gate, backlog: has_backlog }).await;
            n += 1;
        }
        if after.is_none() {
            return Ok(n);
        }
    }
}

/// What the scheduler needs to know of a destination.
pub fn plan(destination: &Destination) -> DestinationPlan {
    let policy = &destination.settings.policy;
    DestinationPlan {
        id: destination.id,
        tenant_id: destination.tenant_id,
        host: host(&destination.settings.url).into(),
        limits: Arc::new(destination.limits().for_window(policy.window())),
        policy: Arc::new(policy.clone()),
        ordering: destination.settings.ordering,
        awaits_consent: destination.awaits_consent(),
    }
}

/// The host and port of a stored URL, which is in its normal form; the whole text if it is not.
fn host(url: &str) -> &str {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    authority.split(['/', '?', '#']).next().unwrap_or(authority)
}
