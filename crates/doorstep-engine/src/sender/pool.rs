//! Connections that wait for their next request.
//!
//! A pooled connection is not vetted again, so none outlives [`PoolLimits::lifetime`]: by then a verdict on its host may
//! be another. How many wait is bounded per host and in all; the one that has waited longest goes first.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use doorstep_core::id::DestinationId;
use tokio::time::Instant;

use super::connection::{Connection, Shared, Single};

/// A receiver that has answered may take this long to read the rest of the request; then the connection is given up.
const READY_WAIT: Duration = Duration::from_secs(1);

/// Whom a connection leads to, and as whom. Destinations with the same origin share connections.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub(super) https: bool,
    pub(super) host: Box<str>,
    pub(super) port: u16,
    /// The destination that has its connections for itself, and its version.
    pub(super) own: Option<(DestinationId, u64)>,
}

/// How many connections are kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// A connection that has waited this long is closed. Receivers commonly close theirs after 60 s and more.
    pub idle_timeout: Duration,
    /// A connection is used for this long at most, however busy it is.
    pub lifetime: Duration,
    /// So many connections to one host may wait.
    pub idle_per_host_max: usize,
    /// So many connections may wait in all.
    pub idle_max: usize,
    /// So many requests share one HTTP/2 connection.
    pub streams_max: usize,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(30),
            lifetime: Duration::from_secs(300),
            idle_per_host_max: 64,
            idle_max: 1_024,
            streams_max: 100,
        }
    }
}

#[derive(Debug)]
pub(super) struct Pool {
    limits: PoolLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    hosts: HashMap<Arc<Origin>, Host>,
    /// The waiting HTTP/1.1 connections of all hosts in the order in which they were put back, and so also by age.
    waiting: BTreeMap<u64, Arc<Origin>>,
    put_back: u64,
}

#[derive(Debug, Default)]
struct Host {
    singles: VecDeque<Idle>,
    shared: Vec<InUse>,
    /// Held by whoever opens the next connection to a host that speaks HTTP/2: the others can share it.
    turn: Option<Arc<tokio::sync::Mutex<()>>>,
}

#[derive(Debug)]
struct Idle {
    number: u64,
    since: Instant,
    single: Single,
}

#[derive(Debug)]
struct InUse {
    last_taken_at: Instant,
    shared: Arc<Shared>,
}

impl InUse {
    fn n_requests(&self) -> usize {
        Arc::strong_count(&self.shared) - 1
    }
}

impl Pool {
    /// Must be called inside a runtime: a task closes what has waited too long, until the pool is dropped.
    pub(super) fn new(limits: PoolLimits) -> Arc<Self> {
        let pool = Arc::new(Self { limits, state: Mutex::default() });
        tokio::spawn(sweep_regularly(Arc::downgrade(&pool), limits.idle_timeout / 2));
        pool
    }

    /// A connection that can be used at once: the one that was used last, since it is the likeliest to live.
    pub(super) fn take(&self, origin: &Origin) -> Option<Connection> {
        let now = Instant::now();
        let State { hosts, waiting, .. } = &mut *self.state();
        let host = hosts.get_mut(origin)?;
        host.shared.retain(|one| self.takes_more(one, now));
        if let Some(one) = host.shared.iter_mut().find(|one| one.n_requests() < self.limits.streams_max) {
            one.last_taken_at = now;
            return Some(Connection::Shared(Arc::clone(&one.shared)));
        }
        while let Some(idle) = host.singles.pop_back() {
            waiting.remove(&idle.number);
            if self.is_fresh(&idle, now) && idle.single.is_ready() {
                return Some(Connection::Single(idle.single));
            }
        }
        None
    }

    /// Keeps a connection whose answer has been read to its end.
    pub(super) fn keep(self: &Arc<Self>, origin: &Arc<Origin>, mut single: Single) {
        if single.is_closed() {
            return;
        }
        if single.is_ready() {
            return self.put_back(origin, single);
        }
        // The task that drives it has not come round yet, or the receiver answered before it had read the request.
        let (pool, origin) = (Arc::clone(self), Arc::clone(origin));
        tokio::spawn(async move {
            if single.becomes_ready(Instant::now() + READY_WAIT).await {
                pool.put_back(&origin, single);
            }
        });
    }

    /// Lets others use this connection too, and remembers that this host speaks HTTP/2.
    pub(super) fn share(&self, origin: &Arc<Origin>, shared: &Arc<Shared>) {
        let mut state = self.state();
        let n_shared: usize = state.hosts.values().map(|host| host.shared.len()).sum();
        let host = state.hosts.entry(Arc::clone(origin)).or_default();
        host.turn.get_or_insert_default();
        if n_shared < self.limits.idle_max && host.shared.len() < self.limits.idle_per_host_max {
            host.shared.push(InUse { last_taken_at: Instant::now(), shared: Arc::clone(shared) });
        }
    }

    /// No further request goes over this connection.
    pub(super) fn retire(&self, origin: &Origin, shared: &Arc<Shared>) {
        if let Some(host) = self.state().hosts.get_mut(origin) {
            host.shared.retain(|one| !Arc::ptr_eq(&one.shared, shared));
        }
    }

    /// For a host known to speak HTTP/2: the lock to hold while opening a connection to it.
    pub(super) fn turn(&self, origin: &Origin) -> Option<Arc<tokio::sync::Mutex<()>>> {
        self.state().hosts.get(origin)?.turn.clone()
    }

    /// There was nothing to share: no connection, or one of HTTP/1.1. Those who wait need not queue for the same.
    pub(super) fn forget_turn(&self, origin: &Origin) {
        if let Some(host) = self.state().hosts.get_mut(origin) {
            host.turn = None;
        }
    }

    fn put_back(&self, origin: &Arc<Origin>, single: Single) {
        let now = Instant::now();
        let state = &mut *self.state();
        let number = state.put_back;
        let idle = Idle { number, since: now, single };
        if !self.is_fresh(&idle, now) {
            return;
        }
        state.put_back += 1;
        let host = state.hosts.entry(Arc::clone(origin)).or_default();
        host.singles.push_back(idle);
        state.waiting.insert(number, Arc::clone(origin));
        if host.singles.len() > self.limits.idle_per_host_max
            && let Some(oldest) = host.singles.pop_front()
        {
            state.waiting.remove(&oldest.number);
        }
        while state.waiting.len() > self.limits.idle_max {
            state.drop_oldest();
        }
    }

    fn sweep(&self) {
        let now = Instant::now();
        let state = &mut *self.state();
        while state.oldest().is_some_and(|idle| !self.is_fresh(idle, now)) {
            state.drop_oldest();
        }
        for host in state.hosts.values_mut() {
            host.shared.retain(|one| {
                let idle = one.n_requests() == 0 && now - one.last_taken_at >= self.limits.idle_timeout;
                self.takes_more(one, now) && !idle
            });
        }
        state.hosts.retain(|_, host| !host.singles.is_empty() || !host.shared.is_empty());
    }

    fn is_fresh(&self, idle: &Idle, now: Instant) -> bool {
        now - idle.since < self.limits.idle_timeout && now - idle.single.opened_at < self.limits.lifetime
    }

    fn takes_more(&self, one: &InUse, now: Instant) -> bool {
        !one.shared.is_closed() && now - one.shared.opened_at < self.limits.lifetime
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing below can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn oldest(&self) -> Option<&Idle> {
        let (_, origin) = self.waiting.first_key_value()?;
        self.hosts.get(origin)?.singles.front()
    }

    fn drop_oldest(&mut self) {
        if let Some((_, origin)) = self.waiting.pop_first()
            && let Some(host) = self.hosts.get_mut(&origin)
        {
            host.singles.pop_front();
        }
    }
}

async fn sweep_regularly(pool: Weak<Pool>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(pool) = pool.upgrade() else { return };
        pool.sweep();
    }
}
