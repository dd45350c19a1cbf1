//! The cap per receiving host, which many destinations may share (G10). A tenant may use all slots of a
//! host but an eighth (at least one), which is for tenants that have no request there: one tenant's slow receivers do not shut others out.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use super::lane::LaneKey;
use super::shares::Shares;
use crate::id::TenantId;
use crate::id_map::IdMap;

#[derive(Debug)]
pub(super) struct Hosts {
    max: Option<usize>,
    /// Hosts with requests out or lanes that wait.
    hosts: HashMap<Arc<str>, Host, BuildHasherDefault<DefaultHasher>>,
    /// Which host a lane waits for: it may have moved since.
    waits_for: IdMap<LaneKey, Arc<str>>,
}

#[derive(Debug)]
struct Host {
    in_flight: usize,
    shares: Shares<1>,
}

impl Hosts {
    pub(super) fn new(max: Option<usize>) -> Self {
        Self { max, hosts: HashMap::default(), waits_for: IdMap::default() }
    }

    /// Whether a lane of this tenant that has `in_flight` requests out may have another to this host.
    pub(super) fn allows(&self, host: &Arc<str>, tenant_id: TenantId, in_flight: u32) -> bool {
        let (Some(max), Some(host)) = (self.max, self.hosts.get(host)) else { return true };
        host.shares.allows(0, tenant_id, in_flight, max - host.in_flight)
    }

    /// Requests that are out to this host.
    pub(super) fn in_flight(&self, host: &Arc<str>) -> usize {
        self.hosts.get(host).map_or(0, |host| host.in_flight)
    }

    pub(super) fn enter(&mut self, host: &Arc<str>, tenant_id: TenantId, weight: u32) {
        let Some(max) = self.max else { return };
        let host = self.hosts.entry(Arc::clone(host)).or_insert_with(|| Host::new(max));
        host.in_flight += 1;
        host.shares.take(0, tenant_id, weight);
    }

    /// One request less.
    pub(super) fn leave(&mut self, host: &Arc<str>, tenant_id: TenantId) {
        let Some(entry) = self.hosts.get_mut(host) else { return };
        entry.in_flight -= 1;
        entry.shares.give_back(0, tenant_id);
        self.forget_if_idle(host);
    }

    pub(super) fn wait(&mut self, host: &Arc<str>, tenant_id: TenantId, weight: u32, in_flight: u32, lane: LaneKey) {
        let Some(max) = self.max else { return };
        self.leave_queue(lane);
        self.waits_for.insert(lane, Arc::clone(host));
        let entry = self.hosts.entry(Arc::clone(host)).or_insert_with(|| Host::new(max));
        entry.shares.wait(0, tenant_id, weight, in_flight, lane);
    }

    /// The next lane that waits for this host and may go on. It waits no more.
    pub(super) fn call(&mut self, host: &Arc<str>) -> Option<LaneKey> {
        let entry = self.hosts.get_mut(host)?;
        let (_, lane) = entry.shares.call(0, self.max? - entry.in_flight)?;
        self.waits_for.remove(&lane);
        self.forget_if_idle(host);
        Some(lane)
    }

    pub(super) fn leave_queue(&mut self, lane: LaneKey) {
        let Some(host) = self.waits_for.remove(&lane) else { return };
        if let Some(entry) = self.hosts.get_mut(&host) {
            entry.shares.leave(0, lane);
        }
        self.forget_if_idle(&host);
    }

    fn forget_if_idle(&mut self, host: &Arc<str>) {
        if self.hosts.get(host).is_some_and(|entry| entry.shares.is_idle()) {
            self.hosts.remove(host);
        }
    }
}

impl Host {
    fn new(max: usize) -> Self {
        Self { in_flight: 0, shares: Shares::but_for_newcomers(max) }
    }
}
