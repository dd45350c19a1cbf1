//! Connections that wait for their next request.
//!
//! A pooled connection is not vetted again, so none outlives [`PoolLimits::lifetime`]: by then a verdict on its host may
//! be another. How many wait is bounded per host and in all; the one that has waited longest goes first.
//!
//! An HTTP/1.1 connection is used again by the same tenant alone. Answers are told apart by nothing but their order there: one that
//! nobody asked for would be taken for the answer to the next request, which must not be another tenant's.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use doorstep_core::id::{DestinationId, TenantId};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Instant;

use super::connection::{Connection, Single};
use super::http2::Shared;

/// A receiver that has answered may take this long to read the rest of the request; then the connection is given up.
const READY_WAIT: Duration = Duration::from_secs(1);

/// So many connections to one host are new at once, as long as it may speak HTTP/2: the other requests wait until it is known
/// how many of them these can take, which may be all. Two, so that one lost packet does not hold up everybody.
pub const OPENINGS_PER_HOST_MAX: usize = 2;

/// Whom a connection leads to, and as whom. Destinations with the same origin share HTTP/2 connections; those of a tenant, all.
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
    /// So many requests share one HTTP/2 connection, or fewer if its receiver says so.
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
    /// Its newest connection speaks HTTP/1.1, so every request needs its own.
    speaks_http1: bool,
    /// Connections being opened that others may share.
    n_opening: usize,
    /// How many could not be opened, ever.
    n_failed: u64,
    /// Told whenever a request that waits for a connection should look again.
    changed: Arc<Notify>,
}

#[derive(Debug)]
struct Idle {
    number: u64,
    tenant_id: TenantId,
    since: Instant,
    single: Single,
}

#[derive(Debug)]
struct InUse {
    last_taken_at: Instant,
    shared: Arc<Shared>,
}

/// What one request looks for.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// Only a new connection, over which this request is the first.
    pub(super) alone: bool,
    /// What [`Host::n_failed`] was when the search began.
    n_failed: Option<u64>,
}

/// How a request gets its connection.
pub(super) enum Found {
    /// Somebody opened it earlier.
    Pooled(Connection),
    /// The caller opens one.
    Open(Opening),
    /// Others are opening some: look again after this.
    Wait(OwnedNotified),
}

/// Leave to open a connection. Dropped before the connection is there, it has failed.
#[derive(Debug)]
pub(super) struct Opening {
    pool: Arc<Pool>,
    origin: Arc<Origin>,
    pub(super) changed: Arc<Notify>,
    /// Whether it counts against [`OPENINGS_PER_HOST_MAX`].
    counted: bool,
    failed: bool,
}

impl Opening {
    /// The connection is there, and speaks HTTP/1.1.
    pub(super) fn opened_single(mut self) {
        self.failed = false;
        self.pool.host(&self.origin, |host| host.speaks_http1 = true);
    }

    /// The connection is there, and others may use it too.
    pub(super) fn opened_shared(mut self, shared: &Arc<Shared>) {
        self.failed = false;
        self.pool.share(&self.origin, shared);
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let (counted, failed) = (self.counted, self.failed);
        self.pool.host(&self.origin, |host| {
            host.n_opening -= usize::from(counted);
            host.n_failed += u64::from(failed);
        });
        self.changed.notify_waiters();
    }
}

impl Pool {
    /// Must be called inside a runtime: a task closes what has waited too long, until the pool is dropped.
    pub(super) fn new(limits: PoolLimits) -> Arc<Self> {
        let pool = Arc::new(Self { limits, state: Mutex::default() });
        tokio::spawn(sweep_regularly(Arc::downgrade(&pool), limits.idle_timeout / 2));
        pool
    }

    /// A connection that can be used at once, or how to come by one.
    pub(super) fn find(self: &Arc<Self>, origin: &Arc<Origin>, tenant_id: TenantId, search: &mut Search) -> Found {
        let now = Instant::now();
        let State { hosts, waiting, .. } = &mut *self.state();
        if !hosts.contains_key(origin) {
            hosts.insert(Arc::clone(origin), Host::default());
        }
        let Some(host) = hosts.get_mut(origin) else { unreachable!("it was just put there") };
        if !search.alone
            && let Some(connection) = self.take(host, tenant_id, waiting, now)
        {
            return Found::Pooled(connection);
        }
        // Whoever waited for an opening that failed does not queue for the next one: each finds out for itself.
        let n_failed = *search.n_failed.get_or_insert(host.n_failed);
        let may_share = origin.https && !host.speaks_http1 && !search.alone;
        let counted = may_share && n_failed == host.n_failed;
        let n_new = host.n_opening + host.shared.iter().filter(|one| one.shared.is_new()).count();
        if counted && n_new >= OPENINGS_PER_HOST_MAX {
            return Found::Wait(Arc::clone(&host.changed).notified_owned());
        }
        host.n_opening += usize::from(counted);
        let (pool, origin, changed) = (Arc::clone(self), Arc::clone(origin), Arc::clone(&host.changed));
        Found::Open(Opening { pool, origin, changed, counted, failed: true })
    }

    /// Of the connections that wait, the one that was used last is the likeliest to live.
    fn take(
        &self,
        host: &mut Host,
        tenant_id: TenantId,
        waiting: &mut BTreeMap<u64, Arc<Origin>>,
        now: Instant,
    ) -> Option<Connection> {
        host.shared.retain(|one| self.takes_more(one, now));
        if let Some(one) = host.shared.iter_mut().find(|one| one.shared.has_room(self.limits.streams_max)) {
            one.last_taken_at = now;
            return Some(Connection::Shared(Arc::clone(&one.shared).lease()));
        }
        let last = |host: &Host| host.singles.iter().rposition(|idle| idle.tenant_id == tenant_id);
        while let Some(idle) = last(host).and_then(|at| host.singles.remove(at)) {
            waiting.remove(&idle.number);
            if self.is_fresh(&idle, now) && idle.single.is_ready() {
                return Some(Connection::Single(idle.single));
            }
        }
        None
    }

    /// Keeps a connection whose answer has been read to its end.
    pub(super) fn keep(self: &Arc<Self>, origin: &Arc<Origin>, tenant_id: TenantId, mut single: Single) {
        if single.is_closed() {
            return;
        }
        if single.is_ready() {
            return self.put_back(origin, tenant_id, single);
        }
        // The task that drives it has not come round yet, or the receiver answered before it had read the request.
        let (pool, origin) = (Arc::clone(self), Arc::clone(origin));
        tokio::spawn(async move {
            if single.becomes_ready(Instant::now() + READY_WAIT).await {
                pool.put_back(&origin, tenant_id, single);
            }
        });
    }

    /// Lets others use this connection too.
    fn share(&self, origin: &Arc<Origin>, shared: &Arc<Shared>) {
        let mut state = self.state();
        let n_shared: usize = state.hosts.values().map(|host| host.shared.len()).sum();
        let host = state.hosts.entry(Arc::clone(origin)).or_default();
        host.speaks_http1 = false;
        if n_shared < self.limits.idle_max && host.shared.len() < self.limits.idle_per_host_max {
            host.shared.push(InUse { last_taken_at: Instant::now(), shared: Arc::clone(shared) });
        }
    }

    /// No further request goes over this connection.
    pub(super) fn retire(&self, origin: &Origin, shared: &Arc<Shared>) {
        self.host(origin, |host| host.shared.retain(|one| !Arc::ptr_eq(&one.shared, shared)));
    }

    /// Changes what is known of a host, if anything is.
    fn host(&self, origin: &Origin, change: impl FnOnce(&mut Host)) {
        if let Some(host) = self.state().hosts.get_mut(origin) {
            change(host);
        }
    }

    fn put_back(&self, origin: &Arc<Origin>, tenant_id: TenantId, single: Single) {
        let now = Instant::now();
        let state = &mut *self.state();
        let number = state.put_back;
        let idle = Idle { number, tenant_id, since: now, single };
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
                let idle = one.shared.n_requests() == 0 && now - one.last_taken_at >= self.limits.idle_timeout;
                self.takes_more(one, now) && !idle
            });
        }
        state.hosts.retain(|_, host| host.n_opening > 0 || !host.singles.is_empty() || !host.shared.is_empty());
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
