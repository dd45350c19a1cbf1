//! Fair turns: between tenants by weight, then between a tenant's lanes one after the other (G12).
//!
//! Each tenant has a pass per track, which every turn there moves on by one over its weight; the lowest pass is next.
//! A tenant that was idle joins at the current pass: it neither owes nor has saved anything. One that only waited for a slot keeps
//! its pass, up to one turn: otherwise those whose request has just come to its end would always be first. The tracks are apart,
//! because turns in one of them must not count as saved in the other.

use std::collections::{BTreeSet, VecDeque};

use super::lane::LaneKey;
use crate::delivery::Track;
use crate::id::TenantId;
use crate::id_map::IdMap;

#[derive(Debug, Default)]
pub(super) struct Turns {
    tenants: IdMap<TenantId, Tenant>,
    /// Tenants with a lane whose turn could come, per track, by pass.
    ready: [BTreeSet<(u64, TenantId)>; 2],
    current: [u64; 2],
    /// Those of tenants whose weight is not 1.
    weights: IdMap<TenantId, u32>,
}

#[derive(Debug, Default)]
struct Tenant {
    passes: [u64; 2],
    lanes: [VecDeque<LaneKey>; 2],
}

/// What one turn costs a tenant of weight 1.
const STRIDE: u64 = 1 << 20;
/// A weight above this counts as this.
pub(super) const WEIGHT_MAX: u32 = 1_000;

impl Turns {
    pub(super) fn weigh(&mut self, tenant_id: TenantId, weight: u32) {
        match weight.clamp(1, WEIGHT_MAX) {
            1 => self.weights.remove(&tenant_id),
            weight => self.weights.insert(tenant_id, weight),
        };
    }

    pub(super) fn weight(&self, tenant_id: TenantId) -> u32 {
        self.weights.get(&tenant_id).copied().unwrap_or(1)
    }

    pub(super) fn is_empty(&self, track: Track) -> bool {
        self.ready[track as usize].is_empty()
    }

    pub(super) fn enter(&mut self, tenant_id: TenantId, track: Track, lane: LaneKey) {
        self.join(tenant_id, track, lane, self.current[track as usize]);
    }

    /// The lane waited for a slot.
    pub(super) fn come_back(&mut self, tenant_id: TenantId, track: Track, lane: LaneKey) {
        self.join(tenant_id, track, lane, self.current[track as usize].saturating_sub(STRIDE));
    }

    fn join(&mut self, tenant_id: TenantId, track: Track, lane: LaneKey, pass_min: u64) {
        let track = track as usize;
        let tenant = self.tenants.entry(tenant_id).or_default();
        if tenant.lanes[track].is_empty() {
            tenant.passes[track] = tenant.passes[track].max(pass_min);
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
        let (track, weight) = (track as usize, self.weight(tenant_id));
        let Some(tenant) = self.tenants.get_mut(&tenant_id) else { return };
        let before = tenant.passes[track];
        tenant.passes[track] += STRIDE / u64::from(weight);
        self.ready[track].remove(&(before, tenant_id));
        if !tenant.lanes[track].is_empty() {
            self.ready[track].insert((tenant.passes[track], tenant_id));
        }
    }
}
