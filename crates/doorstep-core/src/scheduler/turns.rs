//! Fair turns: between tenants by weight, then between a tenant's lanes one after the other (G12).
//!
//! Each tenant has a pass per track, which every turn there moves on by one over its weight; the lowest pass is next.
//! A tenant that was idle joins at the current pass: it neither owes nor has saved anything. The tracks are apart,
//! because turns in one of them must not count as saved in the other.

use std::collections::{BTreeSet, VecDeque};

use super::Map;
use super::lane::LaneKey;
use crate::delivery::Track;
use crate::id::TenantId;

#[derive(Debug, Default)]
pub(super) struct Turns {
    tenants: Map<TenantId, Tenant>,
    /// Tenants with a lane whose turn could come, per track, by pass.
    ready: [BTreeSet<(u64, TenantId)>; 2],
    current: [u64; 2],
    /// The weights of the tenants with a request out, added up.
    weight_in_flight: usize,
}

#[derive(Debug)]
struct Tenant {
    weight: u32,
    passes: [u64; 2],
    lanes_in_flight: usize,
    lanes: [VecDeque<LaneKey>; 2],
}

/// What one turn costs a tenant of weight 1.
const STRIDE: u64 = 1 << 20;
/// A weight above this counts as this.
pub(super) const WEIGHT_MAX: u32 = 1_000;

impl Turns {
    pub(super) fn weigh(&mut self, tenant_id: TenantId, weight: u32) {
        let tenant = self.tenant(tenant_id);
        let before = std::mem::replace(&mut tenant.weight, weight.clamp(1, WEIGHT_MAX));
        if tenant.lanes_in_flight > 0 {
            let after = tenant.weight;
            self.weight_in_flight = self.weight_in_flight + after as usize - before as usize;
        }
    }

    pub(super) fn is_empty(&self, track: Track) -> bool {
        self.ready[track as usize].is_empty()
    }

    pub(super) fn enter(&mut self, tenant_id: TenantId, track: Track, lane: LaneKey) {
        let track = track as usize;
        let current = self.current[track];
        let tenant = self.tenant(tenant_id);
        if tenant.lanes[track].is_empty() {
            tenant.passes[track] = tenant.passes[track].max(current);
        }
        tenant.lanes[track].push_back(lane);
        let pass = tenant.passes[track];
        self.ready[track].insert((pass, tenant_id));
    }

    pub(super) fn leave(&mut self, tenant_id: TenantId, track: Track, lane: LaneKey) {
        let track = track as usize;
        let Some(tenant) = self.tenants.get_mut(&tenant_id) else { return };
        tenant.lanes[track].retain(|other| *other != lane);
        if tenant.lanes[track].is_empty() {
            self.ready[track].remove(&(tenant.passes[track], tenant_id));
        }
    }

    /// The lane whose turn it is.
    pub(super) fn take(&mut self, track: Track) -> Option<(TenantId, LaneKey)> {
        let track = track as usize;
        let &(pass, tenant_id) = self.ready[track].first()?;
        let tenant = self.tenants.get_mut(&tenant_id)?;
        let lane = tenant.lanes[track].pop_front()?;
        if tenant.lanes[track].is_empty() {
            self.ready[track].remove(&(pass, tenant_id));
        }
        self.current[track] = self.current[track].max(pass);
        Some((tenant_id, lane))
    }

    /// The turn was used.
    pub(super) fn charge(&mut self, tenant_id: TenantId, track: Track) {
        let track = track as usize;
        let Some(tenant) = self.tenants.get_mut(&tenant_id) else { return };
        let before = tenant.passes[track];
        tenant.passes[track] += STRIDE / u64::from(tenant.weight);
        self.ready[track].remove(&(before, tenant_id));
        if !tenant.lanes[track].is_empty() {
            self.ready[track].insert((tenant.passes[track], tenant_id));
        }
    }

    /// A lane of this tenant has its first request out.
    pub(super) fn lane_took_off(&mut self, tenant_id: TenantId) {
        let tenant = self.tenant(tenant_id);
        tenant.lanes_in_flight += 1;
        let joins = if tenant.lanes_in_flight == 1 { tenant.weight as usize } else { 0 };
        self.weight_in_flight += joins;
    }

    /// A lane of this tenant has no request out any more.
    pub(super) fn lane_landed(&mut self, tenant_id: TenantId) {
        let tenant = self.tenant(tenant_id);
        tenant.lanes_in_flight -= 1;
        let leaves = if tenant.lanes_in_flight == 0 { tenant.weight as usize } else { 0 };
        self.weight_in_flight -= leaves;
    }

    /// What is left of so many slots for one lane of this tenant, when tenants share by weight, and lanes within them.
    pub(super) fn share(&self, slots: usize, tenant_id: TenantId) -> usize {
        let tenant = self.tenants.get(&tenant_id);
        let (weight, lanes) = tenant.map_or((1, 0), |tenant| (tenant.weight as usize, tenant.lanes_in_flight));
        (slots * weight).div_ceil(self.weight_in_flight.max(weight)).div_ceil(lanes.max(1))
    }

    fn tenant(&mut self, tenant_id: TenantId) -> &mut Tenant {
        self.tenants.entry(tenant_id).or_insert_with(|| Tenant {
            weight: 1,
            passes: [0, 0],
            lanes_in_flight: 0,
            lanes: [VecDeque::new(), VecDeque::new()],
        })
    }
}
