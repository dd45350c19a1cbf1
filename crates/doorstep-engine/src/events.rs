//! Payloads on their way out: read from the store once, shared by all deliveries of an event, and bounded in memory.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use doorstep_core::event::Event;
use doorstep_core::store::Store;

/// Payload bytes that are kept for deliveries to come.
pub const CACHED_BYTES_MAX: usize = 32 * 1024 * 1024;

pub struct Events {
    store: Arc<dyn Store>,
    cache: Mutex<Cache>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Cache {
    events: HashMap<u64, Arc<Event>>,
    /// Oldest first.
    order: VecDeque<u64>,
    bytes: usize,
}

impl Events {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, cache: Mutex::default() }
    }

    /// Just accepted: most likely sent in a moment.
    pub fn remember(&self, seq: u64, event: Arc<Event>) {
        self.cache().put(seq, event);
    }

    /// In the order asked for; `None` where one cannot be had.
    pub async fn get(&self, seqs: Vec<u64>) -> Vec<Option<Arc<Event>>> {
        let mut found: Vec<Option<Arc<Event>>> = {
            let cache = self.cache();
            seqs.iter().map(|seq| cache.events.get(seq).cloned()).collect()
        };
        let mut missing: Vec<u64> = seqs.iter().zip(&found).filter(|(_, e)| e.is_none()).map(|(seq, _)| *seq).collect();
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() {
            return found;
        }
        let read = self.store.events(missing.clone()).await.unwrap_or_else(|fault| {
            tracing::error!(error = %fault, "events could not be read");
            Vec::new()
        });
        let read: HashMap<u64, Arc<Event>> =
            missing.into_iter().zip(read).filter_map(|(seq, event)| Some((seq, event?))).collect();
        for (seq, event) in seqs.iter().zip(&mut found) {
            if event.is_none() {
                *event = read.get(seq).cloned();
            }
        }
        let mut cache = self.cache();
        for (seq, event) in read {
            cache.put(seq, event);
        }
        found
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    fn put(&mut self, seq: u64, event: Arc<Event>) {
        self.bytes += event.payload.len();
        if self.events.insert(seq, event).is_none() {
            self.order.push_back(seq);
        }
        while self.bytes > CACHED_BYTES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some(event) = self.events.remove(&oldest) {
                self.bytes = self.bytes.saturating_sub(event.payload.len());
            }
        }
    }
}
