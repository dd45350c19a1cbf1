//! Who receives what: every tenant, destination and registered event type, in memory, as routing and sending need them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};

use doorstep_core::consent::Consent;
use doorstep_core::defaults::{Defaults, TenantDefaults};
use doorstep_core::destination::{Destination, DestinationSettings, Tenant};
use doorstep_core::filter::work::{Evaluation, FilterLoad, OverBudget};
use doorstep_core::filter::{Filter, Payload};
use doorstep_core::id::{DestinationId, TenantId};
use doorstep_core::id_map::IdMap;
use doorstep_core::route::EventType;

use crate::types::Types;

/// Reads take a short lock and clone a pointer; nobody holds it while waiting.
#[derive(Debug, Default)]
pub struct Catalog {
    pub types: Types,
    defaults: Defaults,
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    tenants: BTreeMap<TenantId, Arc<Tenant>>,
    destinations: BTreeMap<DestinationId, Arc<Destination>>,
    /// In the order of their IDs, so that an event's deliveries are numbered the same way each time.
    by_tenant: IdMap<TenantId, BTreeMap<DestinationId, Arc<Destination>>>,
}

impl Catalog {
    /// With the operator's defaults for destinations, before any of these are there.
    #[must_use]
    pub fn with_defaults(self, defaults: Defaults) -> Self {
        Self { defaults, ..self }
    }

    pub fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// Brings a destination's settings in line with what is in force for its tenant.
    pub fn resolve(&self, tenant_id: TenantId, settings: &mut DestinationSettings) {
        self.read(|inner| self.resolve_in(inner, tenant_id, settings));
    }

    fn resolve_in(&self, inner: &Inner, tenant_id: TenantId, settings: &mut DestinationSettings) {
        let none = TenantDefaults::default();
        let of_tenant = inner.tenants.get(&tenant_id).map_or(&none, |tenant| &tenant.defaults);
        self.defaults.resolve(of_tenant, settings);
    }

    /// An older version than the one that is there changes nothing: changes may arrive out of order.
    pub fn put_tenant(&self, tenant: Tenant) -> Arc<Tenant> {
        let tenant = Arc::new(tenant);
        self.write(|inner| {
            let there = inner.tenants.get(&tenant.id);
            if there.is_some_and(|there| there.version > tenant.version) {
                return;
            }
            let same_defaults = there.is_some_and(|there| there.defaults == tenant.defaults);
            inner.tenants.insert(tenant.id, Arc::clone(&tenant));
            if same_defaults {
                return;
            }
            // Its destinations follow what it says now.
            let own: Vec<_> = inner.by_tenant.get(&tenant.id).into_iter().flat_map(BTreeMap::values).cloned().collect();
            for destination in own {
                let mut destination = Destination::clone(&destination);
                self.resolve_in(inner, tenant.id, &mut destination.settings);
                inner.insert(Arc::new(destination));
            }
        });
        tenant
    }

    pub fn tenant(&self, id: TenantId) -> Option<Arc<Tenant>> {
        self.read(|inner| inner.tenants.get(&id).cloned())
    }

    /// In the order of their IDs, behind `after`.
    pub fn tenants(&self, after: Option<TenantId>, limit: usize) -> Vec<Arc<Tenant>> {
        self.read(|inner| behind(&inner.tenants, after, limit))
    }

    /// As it was stored, at the start.
    pub fn load_destination(&self, mut destination: Destination) -> Arc<Destination> {
        self.resolve(destination.tenant_id, &mut destination.settings);
        let destination = Arc::new(destination);
        self.write(|inner| inner.insert(Arc::clone(&destination)));
        destination
    }

    /// New, with a `version` of at most 1, or changed. Changes may arrive out of order: an older version than the one that is there
    /// changes nothing, and nothing brings back what was removed. What its receiver has agreed to stays as it is here.
    pub fn put_destination(&self, mut destination: Destination) -> Arc<Destination> {
        self.write(|inner| {
            let there = inner.destinations.get(&destination.id);
            if let Some(there) = there {
                destination.consent.clone_from(&there.consent);
            }
            let is_newest = match there {
                Some(there) => there.version <= destination.version,
                None => destination.version <= 1,
            };
            self.resolve_in(inner, destination.tenant_id, &mut destination.settings);
            let destination = Arc::new(destination);
            if is_newest {
                inner.insert(Arc::clone(&destination));
            }
            destination
        })
    }

    /// Its receiver has agreed. Of a URL that it does not have any more, that changes nothing.
    pub fn consented(&self, id: DestinationId, consent: Consent) {
        self.write(|inner| {
            if let Some(there) = inner.destinations.get(&id).filter(|there| there.settings.url == consent.url) {
                inner.insert(Arc::new(Destination { consent: Some(consent), ..Destination::clone(there) }));
            }
        });
    }

    pub fn remove_destination(&self, id: DestinationId) {
        self.write(|inner| {
            if let Some(destination) = inner.destinations.remove(&id)
                && let Some(of_tenant) = inner.by_tenant.get_mut(&destination.tenant_id)
            {
                of_tenant.remove(&id);
            }
        });
    }

    pub fn destination(&self, id: DestinationId) -> Option<Arc<Destination>> {
        self.read(|inner| inner.destinations.get(&id).cloned())
    }

    /// All, or a tenant's, in the order of their IDs, behind `after`.
    pub fn destinations(
        &self,
        of: Option<TenantId>,
        after: Option<DestinationId>,
        limit: usize,
    ) -> Vec<Arc<Destination>> {
        self.read(|inner| match of {
            None => behind(&inner.destinations, after, limit),
            Some(tenant_id) => inner.by_tenant.get(&tenant_id).map(|all| behind(all, after, limit)).unwrap_or_default(),
        })
    }

    /// The tenant's destinations that want this event, if finding out takes no more than `units_max` of work.
    pub fn route(
        &self,
        tenant_id: TenantId,
        event_type: &EventType,
        payload: &[u8],
        units_max: u64,
    ) -> Result<Routed, OverBudget> {
        let payload = Payload::new(payload);
        let of_tenant = self.of_tenant(tenant_id);
        let mut evaluation = Evaluation::new(units_max);
        let mut wanted_by = Vec::new();
        for destination in &of_tenant {
            if destination.settings.subscription.evaluate(event_type, &payload, &mut evaluation)? {
                wanted_by.push(Arc::clone(destination));
            }
        }
        Ok(Routed { wanted_by, units: evaluation.units() })
    }

    /// What the tenant's filters can cost for one event with this one in place of the destination's own.
    pub fn filter_work(
        &self,
        (tenant_id, id): (TenantId, DestinationId),
        filter: &Filter,
        payload_max: usize,
    ) -> FilterWork {
        let of_tenant = self.of_tenant(tenant_id);
        let mut load = FilterLoad::default();
        load.add(filter);
        let others = of_tenant.iter().filter(|other| other.id != id);
        others.filter_map(|other| other.settings.subscription.filter.as_ref()).for_each(|filter| load.add(filter));
        FilterWork { units: load.units(payload_max), searches: load.searches() }
    }

    fn of_tenant(&self, tenant_id: TenantId) -> Vec<Arc<Destination>> {
        self.read(|inner| {
            inner.by_tenant.get(&tenant_id).map(|all| all.values().cloned().collect()).unwrap_or_default()
        })
    }

    fn read<T>(&self, read: impl FnOnce(&Inner) -> T) -> T {
        read(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, write: impl FnOnce(&mut Inner) -> T) -> T {
        write(&mut self.inner.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Which destinations want an event, and how much work it was to find out.
#[derive(Debug)]
pub struct Routed {
    pub wanted_by: Vec<Arc<Destination>>,
    pub units: u64,
}

/// What a tenant's filters can cost for one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterWork {
    pub units: u64,
    /// The most operands of `contains` that are searched for in one field.
    pub searches: usize,
}

impl Inner {
    fn insert(&mut self, destination: Arc<Destination>) {
        let of_tenant = self.by_tenant.entry(destination.tenant_id).or_default();
        of_tenant.insert(destination.id, Arc::clone(&destination));
        self.destinations.insert(destination.id, destination);
    }
}

fn behind<K: Ord + Copy, V>(all: &BTreeMap<K, Arc<V>>, after: Option<K>, limit: usize) -> Vec<Arc<V>> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    all.range((from, Bound::Unbounded)).take(limit).map(|(_, one)| Arc::clone(one)).collect()
}

#[cfg(test)]
mod tests {
    use doorstep_core::defaults::Chosen;
    use doorstep_core::quota::OwnQuota;
    use doorstep_core::time::{Millis, Timestamp};
    use doorstep_store::conformance::samples::{DST, a_consent, destination, tenant};

    use super::*;

    #[test]
    fn a_late_change_neither_brings_back_what_was_removed_nor_undoes_a_later_one() {
        let catalog = Catalog::default();
        let version = || catalog.destination(DST).map(|there| there.version);
        catalog.load_destination(destination(DST, 5));
        for (put, expected) in [(7, 7), (6, 7), (8, 8)] {
            assert_eq!(catalog.put_destination(destination(DST, put)).version, put);
            assert_eq!(version(), Some(expected));
        }
        catalog.remove_destination(DST);
        assert_eq!(catalog.put_destination(destination(DST, 9)).version, 9, "whoever made it is shown what they made");
        assert_eq!(version(), None);
        assert!(catalog.destinations(Some(destination(DST, 1).tenant_id), None, 9).is_empty());
    }

    #[test]
    fn consent_counts_for_the_url_that_was_asked() {
        let catalog = Catalog::default();
        catalog.put_destination(destination(DST, 1));
        catalog.consented(DST, a_consent(1));
        catalog.consented(DST, Consent { url: "https://example.com/before".to_owned(), ..a_consent(2) });
        assert_eq!(catalog.destination(DST).unwrap().consent, Some(a_consent(1)));
    }

    #[test]
    fn a_tenants_destinations_follow_its_defaults_and_keep_what_they_were_given() {
        let operator = Defaults { timeout: Millis::from_secs(7), ..Defaults::default() };
        let catalog = Catalog::default().with_defaults(operator);
        let timeout = |id| catalog.destination(id).unwrap().settings.timeout;
        let add = |id, chosen| {
            let mut added = destination(id, 1);
            added.settings.chosen = Some(chosen);
            catalog.put_destination(added);
        };
        let other = DestinationId(DST.0 + 1);
        add(DST, Chosen::default());
        add(other, Chosen { timeout: Some(Millis::from_secs(3)), ..Chosen::default() });
        assert_eq!((timeout(DST), timeout(other)), (Millis::from_secs(7), Millis::from_secs(3)));
        let put = |version, timeout| {
            let defaults = TenantDefaults { timeout, ..TenantDefaults::default() };
            catalog.put_tenant(Tenant { defaults, ..tenant(destination(DST, 1).tenant_id, version) });
        };
        put(1, Some(Millis::from_secs(9)));
        assert_eq!((timeout(DST), timeout(other)), (Millis::from_secs(9), Millis::from_secs(3)));
        put(2, None);
        put(1, Some(Millis::from_secs(9)));
        assert_eq!(timeout(DST), Millis::from_secs(7), "a late change changes nothing");
    }

    #[test]
    fn a_tenant_does_not_become_what_it_was() {
        let catalog = Catalog::default();
        let put = |version| {
            let id = TenantId(1);
            let created_at = Timestamp(0);
            let weight = u32::try_from(version).unwrap();
            let name = String::new();
            let tenant = Tenant {
                id,
                name,
                contact_email: None,
                weight,
                ingest_rate: None,
                quota: OwnQuota::default(),
                defaults: TenantDefaults::default(),
                created_at,
                version,
            };
            catalog.put_tenant(tenant)
        };
        for (version, weight) in [(1, 1), (3, 3), (2, 3), (4, 4)] {
            assert_eq!(put(version).version, version, "whoever made it is shown what they made");
            assert_eq!(catalog.tenant(TenantId(1)).unwrap().weight, weight);
        }
    }

    fn searching(id: u128, needles: std::ops::Range<usize>) -> Destination {
        let tests: Vec<_> =
            needles.map(|n| serde_json::json!({ "text": { "contains": format!("needle {n};") } })).collect();
        let mut destination = destination(DestinationId(id), 1);
        let subscription = serde_json::json!({ "filter": { "any": tests } });
        destination.settings.subscription = serde_json::from_value(subscription).unwrap();
        destination
    }

    /// The attack: many destinations of one tenant that search a large payload.
    #[test]
    fn an_event_that_costs_too_much_for_a_runtime_thread_is_routed_all_the_same() {
        let catalog = Catalog::default();
        for id in 0..100 {
            catalog.load_destination(searching(id, id as usize * 50..id as usize * 50 + 50));
        }
        let tenant_id = destination(DST, 1).tenant_id;
        let route = |payload: &str, units_max| {
            let routed = catalog.route(tenant_id, &"a.b".parse().unwrap(), payload.as_bytes(), units_max);
            routed.map(|routed| (routed.wanted_by.iter().map(|one| one.id.0).collect::<Vec<_>>(), routed.units))
        };
        let large = serde_json::json!({ "text": "needle 4999; ".to_owned() + &"x".repeat(250_000) }).to_string();
        assert_eq!(route(&large, crate::compute_pool::INLINE_UNITS_MAX), Err(OverBudget));
        let (wanted_by, units) = route(&large, u64::MAX).unwrap();
        assert_eq!(wanted_by, [99]);
        assert!(units < 5_001 * 251_000, "{units}");
        let (wanted_by, units) = route(r#"{"text": "a needle 7;"}"#, u64::MAX).unwrap();
        assert_eq!(wanted_by, [0]);
        assert!(units < 1_000_000, "{units}");
    }

    #[test]
    fn a_filter_is_counted_with_the_tenants_others_and_in_place_of_its_own() {
        let catalog = Catalog::default();
        catalog.load_destination(searching(1, 0..50));
        catalog.load_destination(searching(2, 50..100));
        let tenant_id = destination(DST, 1).tenant_id;
        let searches = |tenant_id, id: u128, needles| {
            let filter = searching(id, needles).settings.subscription.filter.unwrap();
            catalog.filter_work((tenant_id, DestinationId(id)), &filter, 1_000).searches
        };
        assert_eq!(searches(tenant_id, 3, 100..110), 110);
        assert_eq!(searches(tenant_id, 3, 90..110), 110, "what is searched for anyway costs nothing more");
        assert_eq!(searches(tenant_id, 2, 50..51), 51, "its own filter is replaced");
        assert_eq!(searches(TenantId(77), 3, 0..10), 10, "another tenant's do not count");
    }
}
