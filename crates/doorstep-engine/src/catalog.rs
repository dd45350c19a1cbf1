//! Who receives what: every tenant and destination, in memory, as routing and sending need them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use doorstep_core::destination::{Destination, Tenant};
use doorstep_core::filter::Payload;
use doorstep_core::id::{DestinationId, TenantId};
use doorstep_core::route::EventType;

/// Reads take a short lock and clone a pointer; nobody holds it while waiting.
#[derive(Debug, Default)]
pub struct Catalog {
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    tenants: HashMap<TenantId, Arc<Tenant>>,
    destinations: HashMap<DestinationId, Arc<Destination>>,
    /// In the order of their IDs, so that an event's deliveries are numbered the same way each time.
    by_tenant: HashMap<TenantId, BTreeMap<DestinationId, Arc<Destination>>>,
}

impl Catalog {
    pub fn put_tenant(&self, tenant: Tenant) {
        self.write(|inner| drop(inner.tenants.insert(tenant.id, Arc::new(tenant))));
    }

    pub fn tenant(&self, id: TenantId) -> Option<Arc<Tenant>> {
        self.read(|inner| inner.tenants.get(&id).cloned())
    }

    pub fn put_destination(&self, destination: Destination) -> Arc<Destination> {
        let destination = Arc::new(destination);
        let kept = Arc::clone(&destination);
        self.write(|inner| {
            let of_tenant = inner.by_tenant.entry(destination.tenant_id).or_default();
            of_tenant.insert(destination.id, Arc::clone(&destination));
            inner.destinations.insert(destination.id, destination);
        });
        kept
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

    fn write(&self, write: impl FnOnce(&mut Inner)) {
        write(&mut self.inner.write().unwrap_or_else(PoisonError::into_inner));
    }
}
