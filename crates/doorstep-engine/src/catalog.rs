//! Who receives what: every tenant, destination and registered event type, in memory, as routing and sending need them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};

use doorstep_core::consent::Consent;
use doorstep_core::destination::{Destination, Tenant};
use doorstep_core::filter::Payload;
use doorstep_core::id::{DestinationId, TenantId};
use doorstep_core::route::EventType;

use crate::types::Types;

/// Reads take a short lock and clone a pointer; nobody holds it while waiting.
#[derive(Debug, Default)]
pub struct Catalog {
    pub types: Types,
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    tenants: BTreeMap<TenantId, Arc<Tenant>>,
    destinations: BTreeMap<DestinationId, Arc<Destination>>,
    /// In the order of their IDs, so that an event's deliveries are numbered the same way each time.
    by_tenant: HashMap<TenantId, BTreeMap<DestinationId, Arc<Destination>>>,
}

impl Catalog {
    /// An older version than the one that is there changes nothing: changes may arrive out of order.
    pub fn put_tenant(&self, tenant: Tenant) -> Arc<Tenant> {
        let tenant = Arc::new(tenant);
        self.write(|inner| {
            if inner.tenants.get(&tenant.id).is_none_or(|there| there.version <= tenant.version) {
                inner.tenants.insert(tenant.id, Arc::clone(&tenant));
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
    pub fn load_destination(&self, destination: Destination) -> Arc<Destination> {
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

    /// The tenant's destinations that want this event.
    pub fn route(&self, tenant_id: TenantId, event_type: &EventType, payload: &[u8]) -> Vec<Arc<Destination>> {
        let payload = Payload::new(payload);
        let of_tenant: Vec<Arc<Destination>> = self.read(|inner| {
            inner.by_tenant.get(&tenant_id).map(|all| all.values().cloned().collect()).unwrap_or_default()
        });
        let wants = |destination: &Arc<Destination>| destination.settings.subscription.matches(event_type, &payload);
        of_tenant.into_iter().filter(wants).collect()
    }

    fn read<T>(&self, read: impl FnOnce(&Inner) -> T) -> T {
        read(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, write: impl FnOnce(&mut Inner) -> T) -> T {
        write(&mut self.inner.write().unwrap_or_else(PoisonError::into_inner))
    }
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
    use doorstep_core::time::Timestamp;
    use doorstep_store::conformance::samples::{DST, a_consent, destination};

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
    fn a_tenant_does_not_become_what_it_was() {
        let catalog = Catalog::default();
        let put = |version| {
            let id = TenantId(1);
            let created_at = Timestamp(0);
            let weight = u32::try_from(version).unwrap();
            let name = String::new();
            catalog.put_tenant(Tenant { id, name, contact_email: None, weight, ingest_rate: None, created_at, version })
        };
        for (version, weight) in [(1, 1), (3, 3), (2, 3), (4, 4)] {
            assert_eq!(put(version).version, version, "whoever made it is shown what they made");
            assert_eq!(catalog.tenant(TenantId(1)).unwrap().weight, weight);
        }
    }
}
