//! Payloads on their way out: read from the store once, shared by all deliveries of an event, and bounded in memory.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use doorstep_core::event::Event;
use doorstep_core::id::TenantId;
use doorstep_core::id_map::IdMap;
use doorstep_core::store::{Store, StoreError, StoredEvent, Unreadable};

use crate::unreadable::UnreadablePayloads;

/// Bytes of events that are kept for deliveries to come.
pub const CACHED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// What an event takes in memory beside what its producer may make long, about: without it, small ones would be kept without bound.
const EVENT_BYTES: usize = 512;
/// What a header takes beside its letters: two strings.
const HEADER_BYTES: usize = 2 * size_of::<String>();

pub struct Events {
    store: Arc<dyn Store>,
    cache: Mutex<Cache>,
    /// Those that could not be read.
    pub unreadable: UnreadablePayloads,
    /// How often something else could not be read because it is damaged.
    pub damage_met: AtomicU64,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Cache {
    events: IdMap<u64, Arc<Event>>,
    /// Oldest first.
    order: VecDeque<u64>,
    bytes: usize,
    /// Counts the erasures: what was read before one is not kept after it.
    erasures: u64,
}

/// A time between two erasures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(u64);

/// What can be had of an event.
#[derive(Clone, Debug)]
pub enum Found {
    Event(Arc<Event>),
    /// It was purged, or its payload was erased: it will never be had again.
    Gone,
    /// It is there, and cannot be read.
    Unreadable(Unreadable),
    /// The store did not answer.
    NotNow,
}

impl Events {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            cache: Mutex::default(),
            unreadable: UnreadablePayloads::default(),
            damage_met: AtomicU64::new(0),
        }
    }

    /// For `remember`: taken before the event is written.
    pub fn moment(&self) -> Moment {
        Moment(self.cache().erasures)
    }

    /// Just accepted: most likely sent in a moment. Not kept if payloads were erased since: it may be one of those.
    pub fn remember(&self, since: Moment, seq: u64, event: Arc<Event>) {
        let mut cache = self.cache();
        if Moment(cache.erasures) == since {
            cache.put(seq, event);
        }
    }

    /// A tenant's payloads were erased: none is kept here either.
    pub fn forget(&self, tenant_id: TenantId) {
        self.cache().forget(tenant_id);
    }

    /// In the order asked for.
    pub async fn get(&self, seqs: Vec<u64>) -> Vec<Found> {
        let (mut found, since): (Vec<Found>, Moment) = {
            let cache = self.cache();
            let known = |seq| cache.events.get(seq).map_or(Found::NotNow, |e| Found::Event(Arc::clone(e)));
            (seqs.iter().map(known).collect(), Moment(cache.erasures))
        };
        let unknown = seqs.iter().zip(&found).filter(|(_, found)| matches!(found, Found::NotNow));
        let mut missing: Vec<u64> = unknown.map(|(seq, _)| *seq).collect();
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() {
            return found;
        }
        let read = self.read(missing).await;
        for (seq, found) in seqs.iter().zip(&mut found) {
            match read.get(seq) {
                Some(StoredEvent::Readable(event)) => *found = Found::Event(Arc::clone(event)),
                Some(StoredEvent::Gone) => *found = Found::Gone,
                Some(StoredEvent::Unreadable(what)) => *found = Found::Unreadable(what.clone()),
                None => {}
            }
        }
        let mut cache = self.cache();
        if Moment(cache.erasures) != since {
            // What was read may have been erased meanwhile.
            return found;
        }
        for (seq, event) in read.into_iter().filter_map(|(seq, event)| Some((seq, Arc::clone(event.readable()?)))) {
            cache.put(seq, event);
        }
        found
    }

    async fn read(&self, seqs: Vec<u64>) -> IdMap<u64, StoredEvent> {
        match self.store.events(seqs.clone()).await {
            Ok(read) => seqs.into_iter().zip(read).collect(),
            Err(fault) => {
                self.note_damage(&fault);
                tracing::error!(error = %fault, source = ?fault.source(), "events could not be read from the store; will retry");
                IdMap::default()
            }
        }
    }

    /// Counts what does not pass by itself.
    pub(crate) fn note_damage(&self, fault: &StoreError) {
        if let StoreError::Corrupt(_) = fault {
            self.damage_met.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    fn forget(&mut self, tenant_id: TenantId) {
        self.erasures += 1;
        self.events.retain(|_, event| event.tenant_id != tenant_id);
        self.order.retain(|seq| self.events.contains_key(seq));
        self.bytes = self.events.values().map(|event| bytes(event)).sum();
    }

    fn put(&mut self, seq: u64, event: Arc<Event>) {
        self.bytes += bytes(&event);
        match self.events.insert(seq, event) {
            Some(before) => self.bytes = self.bytes.saturating_sub(bytes(&before)),
            None => self.order.push_back(seq),
        }
        while self.bytes > CACHED_BYTES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some(event) = self.events.remove(&oldest) {
                self.bytes = self.bytes.saturating_sub(bytes(&event));
            }
        }
    }
}

/// What it really takes, as long as its payload is in a buffer of its own: whoever makes events sees to that.
fn bytes(event: &Event) -> usize {
    let text = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
    let names = event.content_type.len() + text(&event.ordering_key) + text(&event.schema_version);
    EVENT_BYTES + event.content_bytes() + names + event.headers.len() * HEADER_BYTES
}

#[cfg(test)]
mod tests {
    use doorstep_core::event::NewEvent;
    use doorstep_core::id::EventId;
    use doorstep_core::store::Write;
    use doorstep_core::time::Timestamp;
    use doorstep_store::memory::MemoryStore;
    use doorstep_store::seal::{KEY_LEN, Keyring, MasterKey};
    use doorstep_store::sqlite::{SqliteLimits, SqliteStore};

    use super::*;

    fn event(bytes: usize) -> Arc<Event> {
        Arc::new(Event {
            id: EventId::generated(1),
            tenant_id: TenantId(1),
            event_type: "a.b".parse().unwrap(),
            content_type: "text/plain".into(),
            payload: vec![0; bytes].into(),
            ordering_key: None,
            produced_at: None,
            schema_version: None,
            headers: Vec::new(),
            ttl: None,
            accepted_at: Timestamp(0),
            wall_offset_ms: 0,
            trace: None,
            cloud: None,
        })
    }

    /// Payloads are erased while a read of one is on its way.
    #[tokio::test]
    async fn what_was_read_before_an_erasure_is_not_kept_after_it() {
        let directory = tempfile::tempdir().unwrap();
        let keys = Keyring::new(MasterKey::new(&[1; KEY_LEN]));
        let store = SqliteStore::open(directory.path(), keys, &SqliteLimits::default()).unwrap();
        let accept = NewEvent { event: Event::clone(&event(9)), key: None, deliveries: Vec::new() };
        store.write(vec![Write::Accept(Box::new(accept))], Timestamp(0)).await.unwrap();
        let events = Events::new(Arc::new(store));
        let erased = async { events.forget(TenantId(1)) };
        let (found, ()) = futures_util::future::join(events.get(vec![1]), erased).await;
        assert!(matches!(found[..], [Found::Event(_)]), "{found:?}");
        assert!(events.cache().events.is_empty());
        events.get(vec![1]).await;
        assert_eq!(events.cache().events.len(), 1, "what is read after it is kept");
    }

    #[test]
    fn what_was_accepted_before_an_erasure_is_not_kept_after_it() {
        let events = Events::new(Arc::new(MemoryStore::default()));
        let since = events.moment();
        events.forget(TenantId(1));
        events.remember(since, 1, event(9));
        assert!(events.cache().events.is_empty());
        events.remember(events.moment(), 1, event(9));
        assert_eq!(events.cache().events.len(), 1);
    }

    /// The payload of one was damaged on disk.
    #[tokio::test]
    async fn one_that_cannot_be_read_does_not_hold_up_the_others() {
        let directory = tempfile::tempdir().unwrap();
        let open = || {
            let keys = Keyring::new(MasterKey::new(&[1; KEY_LEN])).sealing_payloads(true);
            SqliteStore::open(directory.path(), keys, &SqliteLimits::default()).unwrap()
        };
        let accept = |n: u128| {
            let event = Event { id: EventId::generated(n), ..Event::clone(&event(9)) };
            Write::Accept(Box::new(NewEvent { event, key: None, deliveries: Vec::new() }))
        };
        let store = open();
        store.write(vec![accept(1), accept(2), accept(3)], Timestamp(0)).await.unwrap();
        drop(store);
        let file = rusqlite::Connection::open(directory.path().join("doorstep.db")).unwrap();
        assert_eq!(file.execute("update events set payload = zeroblob(40) where seq = 2", []).unwrap(), 1);
        drop(file);
        let found = Events::new(Arc::new(open())).get(vec![1, 2, 3]).await;
        assert!(matches!(found[..], [Found::Event(_), Found::Unreadable(_), Found::Event(_)]), "{found:?}");
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes_first() {
        let mut cache = Cache::default();
        let third = CACHED_BYTES_MAX / 3 - bytes(&event(0));
        for seq in [1, 2, 2, 2, 3] {
            cache.put(seq, event(third));
        }
        assert_eq!((cache.events.len(), cache.bytes), (3, 3 * bytes(&event(third))), "the same one counts once");
        cache.put(4, event(third));
        assert!(cache.bytes <= CACHED_BYTES_MAX);
        assert!(!cache.events.contains_key(&1) && cache.events.contains_key(&4));
        cache.forget(TenantId(2));
        assert_eq!((cache.events.len(), cache.bytes), (3, 3 * bytes(&event(third))), "another tenant's are left alone");
        cache.forget(TenantId(1));
        assert_eq!((cache.events.len(), cache.order.len(), cache.bytes), (0, 0, 0));
        cache.put(4, event(third));
        cache.put(5, event(CACHED_BYTES_MAX + 1));
        assert!(cache.events.is_empty(), "what does not fit is not kept");
        for seq in 0..100_000 {
            cache.put(seq, event(0));
        }
        assert!(cache.events.len() <= CACHED_BYTES_MAX / EVENT_BYTES, "small ones are bounded too");
        let wordy = Event { headers: vec![("x".to_owned(), "y".repeat(16_000))], ..Event::clone(&event(0)) };
        let wordy = Arc::new(wordy);
        for seq in 0..10_000 {
            cache.put(seq, Arc::clone(&wordy));
        }
        assert!(cache.events.len() <= CACHED_BYTES_MAX / 16_000, "and those with much beside the payload");
    }
}
