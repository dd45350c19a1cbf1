//! Asks receivers for their consent: at once when one has to give it, then again and again but ever more seldom.

mod line;

use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use doorstep_core::consent::{Consent, ask_again_after};
use doorstep_core::destination::Destination;
use doorstep_core::dice::Dice;
use doorstep_core::engine::{Asking, EngineFault};
use doorstep_core::id::{DestinationId, TenantId};
use doorstep_core::sender::{Asked, SendFault, Sender};
use doorstep_core::store::{Refusal, Write, Written};
use futures_util::FutureExt;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::ingest::Ingest;
use crate::run::Handle;
use crate::writer::Writer;

use line::Line;
pub use line::{ASKED_AT_ONCE_MAX, ASKED_PER_TENANT_MAX};

/// What may wait to be looked at. Whoever tells more waits for room.
const LINE_MAX: usize = 1_024;
/// Destinations that are looked through in one go at the start.
const CATALOG_PAGE: usize = 1_000;

/// Where consent is put on record.
#[derive(Clone, Debug)]
pub struct Office {
    catalog: Arc<Catalog>,
    writer: Writer,
    run: Handle,
    clock: Clock,
}

impl From<&Ingest> for Office {
    fn from(ingest: &Ingest) -> Self {
        let Ingest { catalog, writer, run, clock, .. } = ingest;
        Self { catalog: Arc::clone(catalog), writer: writer.clone(), run: run.clone(), clock: clock.clone() }
    }
}

/// Who has been asked, and a way to have them asked.
#[derive(Clone)]
pub struct Consents {
    office: Office,
    line: mpsc::Sender<Message>,
    asking: Arc<Mutex<HashMap<DestinationId, Asking>>>,
}

#[derive(Debug)]
enum Message {
    /// It is new or has changed.
    Look(DestinationId),
    /// A person wants it asked now, and waits for what comes of it.
    Ask(DestinationId, oneshot::Sender<()>),
}

impl fmt::Debug for Consents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consents").finish_non_exhaustive()
    }
}

impl Consents {
    /// Starts the task that asks, beginning with all of the catalog that have to be. It ends with the run loop.
    pub fn start(office: impl Into<Office>, sender: Arc<dyn Sender>, dice: Box<dyn Dice + Send>) -> Self {
        let (office, (line, messages)) = (office.into(), mpsc::channel(LINE_MAX));
        let consents = Self { office: office.clone(), line, asking: Arc::default() };
        let asker = Asker {
            office,
            sender,
            dice,
            asking: Arc::clone(&consents.asking),
            line: Line::default(),
            waiting: HashMap::new(),
            out: JoinSet::new(),
        };
        tokio::spawn(asker.run(messages));
        consents
    }

    /// Has it asked if that is needed now.
    pub async fn look(&self, id: DestinationId) {
        // The task is gone only while the process ends.
        let _ = self.line.send(Message::Look(id)).await;
    }

    /// Has it asked now, and returns when that is over.
    pub async fn ask(&self, id: DestinationId) -> Result<(), EngineFault> {
        let (done, over) = oneshot::channel();
        self.line.send(Message::Ask(id, done)).await.map_err(|_| EngineFault::Stopped)?;
        over.await.map_err(|_| EngineFault::Stopped)
    }

    /// How far it has got with each of these; `None` where nobody has to be asked.
    pub fn asking(&self, ids: &[DestinationId]) -> Vec<Option<Asking>> {
        let asking = lock(&self.asking);
        ids.iter().map(|id| asking.get(id).cloned()).collect()
    }

    /// Puts on record that a receiver has agreed by following its link.
    pub async fn grant(&self, id: DestinationId, consent: Consent) -> Result<Result<(), Refusal>, EngineFault> {
        let granted = self.office.grant(id, consent).await?;
        self.look(id).await;
        Ok(granted)
    }
}

impl Office {
    /// Refused if the destination is gone, or has another URL by now: that one's consent is not overwritten.
    async fn grant(&self, id: DestinationId, consent: Consent) -> Result<Result<(), Refusal>, EngineFault> {
        if self.catalog.destination(id).is_none_or(|there| there.settings.url != consent.url) {
            return Ok(Err(Refusal::NotFound));
        }
        let write = Write::Consented { destination_id: id, consent: Box::new(consent.clone()) };
        let written = self.writer.write(vec![write]).await?.written.pop();
        if let Some(Written::Refused(refusal)) = written {
            return Ok(Err(refusal));
        }
        tracing::info!(destination_id = %id, per_minute = consent.leave.per_minute, "its receiver has agreed to be sent to");
        self.catalog.consented(id, consent);
        self.run.refresh(id).await;
        Ok(Ok(()))
    }

    /// If it has to be asked.
    fn awaiting(&self, id: DestinationId) -> Option<Arc<Destination>> {
        self.catalog.destination(id).filter(|destination| destination.awaits_consent())
    }
}

/// The task. It alone changes what `asking` says.
struct Asker {
    office: Office,
    sender: Arc<dyn Sender>,
    dice: Box<dyn Dice + Send>,
    asking: Arc<Mutex<HashMap<DestinationId, Asking>>>,
    line: Line,
    /// Those that are being asked, each with who waits for that.
    waiting: HashMap<DestinationId, Vec<oneshot::Sender<()>>>,
    out: JoinSet<Answer>,
}

struct Answer {
    id: DestinationId,
    tenant_id: TenantId,
    url: String,
    asked: Result<Asked, SendFault>,
}

impl Asker {
    async fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        self.look_at_all();
        let ended = self.office.run.clone();
        loop {
            self.ask_those_due();
            let clock = self.office.clock.clone();
            let next_at = self.line.wake_at();
            let alarm = async {
                match next_at {
                    Some(at) => clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = ended.ended() => return,
                message = messages.recv() => match message {
                    Some(Message::Look(id)) => self.look(id),
                    Some(Message::Ask(id, done)) => self.hurry(id, done),
                    None => return,
                },
                Some(Ok(answer)) = self.out.join_next() => self.learn(answer).await,
                () = alarm => {}
            }
        }
    }

    fn look_at_all(&mut self) {
        let mut after = None;
        loop {
            let page = self.office.catalog.destinations(None, after, CATALOG_PAGE);
            let Some(last) = page.last() else { return };
            after = Some(last.id);
            for destination in page {
                self.look(destination.id);
            }
        }
    }

    fn look(&mut self, id: DestinationId) {
        let now = self.office.clock.now();
        let Some(destination) = self.office.awaiting(id) else { return self.forget(id) };
        let mut asking = lock(&self.asking);
        if asking.get(&id).is_some_and(|asking| asking.url == destination.settings.url) {
            return;
        }
        let url = destination.settings.url.clone();
        let fresh = Asking { url, asked: 0, next_ask_at: Some(now), last_answer: None };
        asking.insert(id, fresh);
        self.line.put(id, destination.tenant_id, now);
    }

    /// A person asks for it to be asked now.
    fn hurry(&mut self, id: DestinationId, done: oneshot::Sender<()>) {
        self.look(id);
        if let Some(waiting) = self.waiting.get_mut(&id) {
            return waiting.push(done);
        }
        let Some(destination) = self.office.awaiting(id) else { return over(vec![done]) };
        let first = self.line.put_first(id, destination.tenant_id, self.office.clock.now());
        if let Some(asking) = lock(&self.asking).get_mut(&id) {
            asking.next_ask_at = Some(first);
        }
        self.waiting.insert(id, vec![done]);
    }

    fn forget(&mut self, id: DestinationId) {
        lock(&self.asking).remove(&id);
        self.line.remove(id);
        over(self.waiting.remove(&id).unwrap_or_default());
    }

    fn ask_those_due(&mut self) {
        let now = self.office.clock.now();
        while let Some((id, tenant_id)) = self.line.next(now) {
            let Some(destination) = self.office.awaiting(id) else {
                self.line.ended(tenant_id);
                self.forget(id);
                continue;
            };
            if let Some(asking) = lock(&self.asking).get_mut(&id) {
                asking.next_ask_at = None;
            }
            self.waiting.entry(id).or_default();
            let (sender, url) = (Arc::clone(&self.sender), destination.settings.url.clone());
            self.out.spawn(async move {
                let asked = AssertUnwindSafe(async { sender.ask(destination).await }).catch_unwind().await;
                let asked = asked.unwrap_or_else(|_| Err(SendFault("the sender panicked".into())));
                Answer { id, tenant_id, url, asked }
            });
        }
    }

    async fn learn(&mut self, Answer { id, tenant_id, url, asked }: Answer) {
        self.line.ended(tenant_id);
        let (last_answer, wait) = match asked {
            Ok(Asked { leave: Ok(leave), origin, .. }) => {
                let consent = Consent { url: url.clone(), origin, leave, given_at: self.office.clock.now() };
                match self.office.grant(id, consent).await {
                    Ok(_) => {}
                    Err(fault) => {
                        tracing::warn!(destination_id = %id, error = %fault, "its receiver's consent could not be written; it is asked again")
                    }
                }
                ("it has agreed, which could not be written down".to_owned(), None)
            }
            Ok(Asked { leave: Err(why), wait, .. }) => (why, wait),
            Err(fault) => {
                tracing::error!(destination_id = %id, error = %fault, "its receiver could not be asked for consent");
                ("it could not be asked; the server's log says why".to_owned(), None)
            }
        };
        let waiting = self.waiting.remove(&id).unwrap_or_default();
        self.look(id);
        let now = self.office.clock.now();
        if let Some(asking) = lock(&self.asking).get_mut(&id).filter(|asking| asking.url == url) {
            asking.asked += 1;
            asking.last_answer = Some(last_answer);
            let again = ask_again_after(asking.asked, self.dice.roll());
            asking.next_ask_at = again.map(|after| now + after.max(wait.unwrap_or_default()));
            if let Some(at) = asking.next_ask_at {
                self.line.put(id, tenant_id, at);
            }
        }
        // Told last: whoever waited sees what came of it.
        over(waiting);
    }
}

fn over(waiting: Vec<oneshot::Sender<()>>) {
    for done in waiting {
        // They may have gone away.
        let _ = done.send(());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
