//! What every handler works with.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use doorstep_core::engine::{Engine, News};
use doorstep_core::ingest_rate::IngestRate;
use doorstep_core::quota::Quota;
use doorstep_core::reach::Reach;
use doorstep_core::store::{Reply, Store, StoreError};
use tokio::sync::{broadcast, watch};

use crate::api::health::LastHealth;
use crate::auth::KeyHash;
use crate::auth::Proxies;
use crate::auth::guesses::Guesses;
use crate::auth::notes::Notes;
use crate::auth::ring::{KeyRing, Sessions};
use crate::auth::strangers::Strangers;
use crate::bodies::Bodies;
use crate::problem::Problem;
use crate::rates::Rates;
use crate::searches::Searches;
use crate::watchers::Watchers;

/// What the API keeps to. Every input has a bound (S8).
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one event's payload (I5).
    pub payload_max: usize,
    /// Bytes of a whole batch.
    pub batch_bytes_max: usize,
    /// Events of types that nobody has registered are refused (I4).
    pub strict_event_types: bool,
    /// Receivers of new destinations have to consent, whatever their tenants choose.
    pub require_verification: bool,
    /// How fast the producers of a tenant may send that has no limit of its own (G12).
    pub ingest_rate: Option<IngestRate>,
    /// What a tenant may take of the store that has no quota of its own (G12). The store keeps to it; here it is shown.
    pub quota: Quota,
    /// How long a client may take to send a body.
    pub body_within: Duration,
    /// Clients that watch the stream at the same time.
    pub watchers_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_max: 256 * 1024,
            batch_bytes_max: 8 * 1024 * 1024,
            strict_event_types: false,
            require_verification: false,
            ingest_rate: None,
            quota: Quota::UNLIMITED,
            body_within: Duration::from_secs(30),
            watchers_max: 256,
        }
    }
}

/// Where the server stands.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// Where people's browsers find it, without a slash at its end; `None`: it does not know.
    pub public_url: Option<String>,
    /// Links that receivers are sent would lead them nowhere: there is no such URL, nor an address that is one machine's.
    pub links_lead_nowhere: bool,
    /// What stands before it and says where requests come from.
    pub trusted_proxies: Proxies,
}

/// Keys and sessions are read so many at a time.
const RECALLED_AT_ONCE: usize = 1_000;

/// The API's state.
pub struct App {
    pub(crate) engine: Arc<dyn Engine>,
    /// Searched with [`App::find`].
    store: Arc<dyn Store>,
    pub(crate) searches: Searches,
    pub(crate) news: broadcast::Sender<News>,
    pub(crate) admin_key: KeyHash,
    pub(crate) keys: KeyRing,
    pub(crate) sessions: Sessions,
    pub(crate) notes: Notes,
    pub(crate) strangers: Strangers,
    pub(crate) guesses: Guesses,
    pub(crate) health: LastHealth,
    pub(crate) limits: Limits,
    pub(crate) place: Place,
    /// What was found wrong at the start, though it runs.
    pub(crate) warnings: Vec<String>,
    pub(crate) counts: Counts,
    pub(crate) rates: Rates,
    pub(crate) watchers: Watchers,
    pub(crate) bodies: Bodies,
    /// What waits to be written.
    pub(crate) writing: Bodies,
    /// True once streams have to come to their end.
    pub(crate) ending: watch::Sender<bool>,
}

/// What has been counted since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) events_accepted: AtomicU64,
    pub(crate) events_repeated: AtomicU64,
    pub(crate) events_refused: AtomicU64,
}

impl App {
    pub fn new(
        engine: Arc<dyn Engine>,
        store: Arc<dyn Store>,
        news: broadcast::Sender<News>,
        admin_key: KeyHash,
        limits: Limits,
    ) -> Self {
        let (watchers, searches) = (Watchers::new(limits.watchers_max), Searches::default());
        let (counts, rates, ending) = (Counts::default(), Rates::default(), watch::Sender::new(false));
        let (keys, sessions, notes) = (KeyRing::default(), Sessions::default(), Notes::default());
        let (strangers, place) = (Strangers::default(), Place::default());
        Self {
            engine,
            store,
            searches,
            news,
            admin_key,
            keys,
            sessions,
            notes,
            strangers,
            guesses: Guesses::default(),
            health: LastHealth::default(),
            limits,
            place,
            warnings: Vec::new(),
            counts,
            rates,
            watchers,
            bodies: Bodies::default(),
            writing: Bodies::writing(),
            ending,
        }
    }

    #[must_use]
    pub fn placed(self, place: Place) -> Self {
        Self { place, ..self }
    }

    /// What readiness checks say for as long as this process runs.
    #[must_use]
    pub fn warned(self, warnings: Vec<String>) -> Self {
        Self { warnings, ..self }
    }

    /// Brings to mind who may come in. Until then, only the first administrator's key is known.
    pub async fn recall(&self) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let found = self.store.api_keys(Reach::All, after, RECALLED_AT_ONCE).await?;
            let Some(last) = found.last() else { break };
            after = Some(last.id);
            found.into_iter().for_each(|key| self.keys.put(key));
        }
        let (mut after, now) = (None, self.engine.now());
        loop {
            let found = self.store.portal_sessions(Reach::All, after, RECALLED_AT_ONCE).await?;
            let Some(last) = found.last() else { break };
            after = Some(last.id);
            let open = found.into_iter().filter(|session| now < session.expires_at);
            open.for_each(|session| self.sessions.put(session));
        }
        Ok(())
    }

    /// Looks something up for somebody who reaches this far, when it is their turn.
    pub(crate) async fn find<T>(
        &self,
        reach: Reach,
        search: impl FnOnce(&dyn Store, Reach) -> Reply<'_, T>,
    ) -> Result<T, Problem> {
        Ok(self.searches.in_turn(reach, async { search(self.store.as_ref(), reach).await }).await?)
    }

    /// One event by its name, for a receiver with a link to it or a producer that repeats it: nothing is searched for, and neither waits
    /// for their tenant's people.
    pub(crate) async fn fetch<T>(&self, one: impl FnOnce(&dyn Store) -> Reply<'_, T>) -> Result<T, Problem> {
        Ok(one(self.store.as_ref()).await?)
    }

    /// Hears what happens from now on.
    pub fn watch(&self) -> broadcast::Receiver<News> {
        self.news.subscribe()
    }

    /// Ends the streams, which would not end by themselves.
    pub fn end_streams(&self) {
        self.ending.send_replace(true);
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("limits", &self.limits).finish_non_exhaustive()
    }
}
