//! How tenants share slots that many want (G12): a tenant may take another while it holds fewer than are free.
//!
//! The more is free, the more a tenant may hold; as slots get short, every tenant's limit falls, and those above it get nothing until some
//! of theirs are back. A tenant alone gets about half, `k` tenants with receivers that hang an even part each, and for any `k` some stay free.
//! On top of that an eighth of the slots is kept for tenants that hold none, so that a newcomer finds one at once, unless as many
//! newcomers hang as an eighth has slots: then there are more such tenants than any share could serve.
//! [Decision 15](../../../../docs/decisions/0015-slots-per-tenant.md) has the reasons.
//!
//! Lanes that have to wait do so here, by tenant. Which tenant may go on first depends only on what it holds, so one look at the
//! first of them is enough when a slot is given back.

use std::collections::BTreeSet;

use super::lane::LaneKey;
use crate::id::TenantId;
use crate::id_map::IdMap;

/// `N` pools of slots. What a tenant holds counts in all of them; but its first slot of a pool it gets whatever it holds in the others.
#[derive(Debug)]
pub(super) struct Shares<const N: usize> {
    /// Slots of one pool.
    slots: usize,
    /// Whether a tenant's limit falls as slots get short. Without it a tenant may hold all but the newcomers' share.
    even: bool,
    /// Those that hold slots or have lanes that wait.
    tenants: IdMap<TenantId, Tenant<N>>,
    /// Tenants that hold slots, and their weights added up.
    n_holders: u64,
    weight_held: u64,
    /// Tenants with lanes that wait, by what they claim. Of those that claim as much, the one that has had the fewest goes first.
    claims: [BTreeSet<(Claim, u64, TenantId)>; N],
    places: [IdMap<LaneKey, (TenantId, Place)>; N],
    last_place: u64,
    /// Where a tenant joins that was idle: it neither owes nor has saved anything.
    current_pass: [u64; N],
}

#[derive(Debug)]
struct Tenant<const N: usize> {
    weight: u32,
    held: [usize; N],
    /// Moved on with every slot that it takes, by one over its weight.
    passes: [u64; N],
    waiting: [BTreeSet<Place>; N],
    claims: [Option<(Claim, u64)>; N],
}

/// Who of a tenant's lanes goes first: the one with the fewest requests out, then the one that has waited longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    in_flight: u32,
    number: u64,
    lane: LaneKey,
}

/// How much a tenant holds already, in proportion to its weight. The least goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    /// It holds nothing.
    Newcomer,
    Holds(u64),
}

/// One slot of a tenant of weight 1, in a claim.
const UNIT: u64 = 1 << 20;
/// One slot in so many is for tenants that hold none. A tenant may hold as many again for its lanes that have none.
const NEWCOMERS_SHARE: usize = 8;

impl<const N: usize> Shares<N> {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            slots,
            even: true,
            tenants: IdMap::default(),
            n_holders: 0,
            weight_held: 0,
            claims: std::array::from_fn(|_| BTreeSet::new()),
            places: std::array::from_fn(|_| IdMap::default()),
            last_place: 0,
            current_pass: [0; N],
        }
    }

    /// One tenant alone may hold all of them but the newcomers' share.
    pub(super) fn but_for_newcomers(slots: usize) -> Self {
        Self { even: false, ..Self::new(slots) }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.tenants.is_empty()
    }

    /// Whether a lane of this tenant that has `in_flight` requests out may take one of `free` slots.
    pub(super) fn allows(&self, pool: usize, tenant_id: TenantId, in_flight: u32, free: usize) -> bool {
        let claim = self.tenants.get(&tenant_id).map_or(Claim::Newcomer, |tenant| self.claim(tenant, pool, in_flight));
        self.satisfies(claim, free)
    }

    fn claim(&self, tenant: &Tenant<N>, pool: usize, in_flight: u32) -> Claim {
        if tenant.total() == 0 {
            return Claim::Newcomer;
        }
        let held = match (tenant.held[pool], in_flight) {
            (0, _) => 0,
            // A destination with nothing out gets its first request past the others of its tenant, which may hang.
            (_, 0) => tenant.total().saturating_sub(self.slots / NEWCOMERS_SHARE * 2),
            _ => tenant.total(),
        };
        Claim::Holds(held as u64 * UNIT / u64::from(tenant.weight))
    }

    /// What a tenant of average weight holds is compared with what is free beyond the newcomers' share.
    fn satisfies(&self, claim: Claim, free: usize) -> bool {
        match claim {
            Claim::Newcomer => free > 0,
            Claim::Holds(units) => {
                let free = free.saturating_sub((self.slots / NEWCOMERS_SHARE).max(1));
                if !self.even {
                    return free > 0;
                }
                let held = u128::from(units) * u128::from(self.weight_held);
                held < u128::from(UNIT) * u128::from(self.n_holders) * free as u128
            }
        }
    }

    pub(super) fn take(&mut self, pool: usize, tenant_id: TenantId, weight: u32) {
        let tenant = self.tenants.entry(tenant_id).or_insert_with(|| Tenant::new(weight, self.current_pass));
        if tenant.total() == 0 {
            self.n_holders += 1;
            self.weight_held += u64::from(tenant.weight);
        }
        tenant.held[pool] += 1;
        self.current_pass[pool] = self.current_pass[pool].max(tenant.passes[pool]);
        tenant.passes[pool] += UNIT / u64::from(weight);
        self.weigh(tenant_id, weight);
    }

    pub(super) fn give_back(&mut self, pool: usize, tenant_id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(&tenant_id) else { return };
        assert!(tenant.held[pool] > 0, "a slot was given back that was never taken");
        tenant.held[pool] -= 1;
        if tenant.total() == 0 {
            self.n_holders -= 1;
            self.weight_held -= u64::from(tenant.weight);
        }
        self.update(tenant_id);
    }

    pub(super) fn weigh(&mut self, tenant_id: TenantId, weight: u32) {
        let Some(tenant) = self.tenants.get_mut(&tenant_id) else { return };
        let before = std::mem::replace(&mut tenant.weight, weight);
        if tenant.total() > 0 {
            self.weight_held = self.weight_held + u64::from(weight) - u64::from(before);
        }
        self.update(tenant_id);
    }

    /// The lane waits until [`Shares::call`] names it, or until it leaves.
    pub(super) fn wait(&mut self, pool: usize, tenant_id: TenantId, weight: u32, in_flight: u32, lane: LaneKey) {
        self.last_place += 1;
        let place = Place { in_flight, number: self.last_place, lane };
        let before = self.places[pool].insert(lane, (tenant_id, place));
        assert!(before.is_none(), "a lane waits twice for the same slots");
        let tenant = self.tenants.entry(tenant_id).or_insert_with(|| Tenant::new(weight, self.current_pass));
        tenant.waiting[pool].insert(place);
        self.update(tenant_id);
    }

    pub(super) fn leave(&mut self, pool: usize, lane: LaneKey) {
        let Some((tenant_id, place)) = self.places[pool].remove(&lane) else { return };
        if let Some(tenant) = self.tenants.get_mut(&tenant_id) {
            tenant.waiting[pool].remove(&place);
        }
        self.update(tenant_id);
    }

    /// The next lane that may go on with so many slots free. It waits no more.
    pub(super) fn call(&mut self, pool: usize, free: usize) -> Option<(TenantId, LaneKey)> {
        let (claim, _, tenant_id) = *self.claims[pool].first()?;
        if !self.satisfies(claim, free) {
            return None;
        }
        let lane = self.tenants.get(&tenant_id)?.waiting[pool].first()?.lane;
        self.leave(pool, lane);
        Some((tenant_id, lane))
    }

    /// What a tenant holds, or who waits there, has changed.
    fn update(&mut self, tenant_id: TenantId) {
        let Some(tenant) = self.tenants.get(&tenant_id) else { return };
        let (mut before, mut after) = ([None; N], [None; N]);
        for pool in 0..N {
            before[pool] = tenant.claims[pool];
            let first = tenant.waiting[pool].first();
            after[pool] = first.map(|place| (self.claim(tenant, pool, place.in_flight), tenant.passes[pool]));
        }
        let is_idle = tenant.total() == 0 && after.iter().all(Option::is_none);
        for pool in 0..N {
            if before[pool] != after[pool] {
                before[pool].map(|(claim, pass)| self.claims[pool].remove(&(claim, pass, tenant_id)));
                after[pool].map(|(claim, pass)| self.claims[pool].insert((claim, pass, tenant_id)));
            }
        }
        if is_idle {
            self.tenants.remove(&tenant_id);
        } else if let Some(tenant) = self.tenants.get_mut(&tenant_id) {
            tenant.claims = after;
        }
    }
}

impl<const N: usize> Tenant<N> {
    fn new(weight: u32, passes: [u64; N]) -> Self {
        let waiting = std::array::from_fn(|_| BTreeSet::new());
        Self { weight, held: [0; N], passes, waiting, claims: [None; N] }
    }

    fn total(&self) -> usize {
        self.held.iter().sum()
    }
}
