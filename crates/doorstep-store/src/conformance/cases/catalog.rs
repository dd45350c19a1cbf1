//! Tenants and destinations: how they change, and how many there may be.

use doorstep_core::destination::{Destination, Tenant};
use doorstep_core::id::{DestinationId, TenantId};
use doorstep_core::store::{Refusal, Write, Written};

use super::*;

pub fn tenants_and_destinations_come_in_the_order_of_their_ids(subject: &mut dyn Subject) {
    let names = [5, u128::MAX, 1 << 100, 0];
    for n in names {
        write(subject, vec![Write::PutTenant(Box::new(tenant(TenantId(n), 1))), put(DestinationId(n))], NOW);
    }
    let tenants = |after, limit| ask(subject.store().tenants(after, limit));
    let of = |found: Vec<Tenant>| found.iter().map(|t| t.id.0).collect::<Vec<_>>();
    assert_eq!(of(tenants(None, 3)), [0, 5, 1 << 100]);
    assert_eq!(of(tenants(Some(TenantId(1 << 100)), 3)), [u128::MAX]);
    assert_eq!(tenants(None, 2)[1], tenant(TenantId(5), 1));
    let mut renamed = tenant(TenantId(5), 2);
    renamed.name = "Another".to_owned();
    assert_eq!(one(subject, Write::PutTenant(Box::new(renamed.clone()))), Written::Saved);
    assert_eq!(tenants(Some(TenantId(0)), 1), [renamed]);
    let found = ask(subject.store().destinations(Some(DestinationId(0)), 2));
    assert_eq!(found.iter().map(|stored| stored.destination.id.0).collect::<Vec<_>>(), [5, 1 << 100]);
    assert_eq!(found[0].destination, destination(DestinationId(5), 1));
}

pub fn a_tenant_changes_from_the_version_that_was_seen(subject: &mut dyn Subject) {
    let put = |id, version| Write::PutTenant(Box::new(tenant(TenantId(id), version)));
    for (id, version, expected) in [
        (1, 2, Written::Refused(Refusal::NotFound)),
        (1, 1, Written::Saved),
        (1, 1, Written::Refused(Refusal::VersionDiffers)),
        (1, 3, Written::Refused(Refusal::VersionDiffers)),
        (1, 2, Written::Saved),
        (2, 0, Written::Saved),
        (2, 1, Written::Saved),
        (3, u64::MAX, Written::Refused(Refusal::NotFound)),
    ] {
        assert_eq!(one(subject, put(id, version)), expected, "{id} {version}");
    }
    // Of two who saw the same, one is too late.
    assert_eq!(
        write(subject, vec![put(1, 3), put(1, 3)], NOW),
        [Written::Saved, Written::Refused(Refusal::VersionDiffers)]
    );
    let versions: Vec<u64> = ask(subject.store().tenants(None, 9)).iter().map(|tenant| tenant.version).collect();
    assert_eq!(versions, [3, 1]);
}

pub fn a_tenant_has_no_more_destinations_than_it_may(subject: &mut dyn Subject) {
    let add = |id: u128, tenant_id: TenantId| {
        let destination = Box::new(Destination { tenant_id, ..destination(DestinationId(id), 1) });
        Write::AddDestination { destination, of_tenant_max: 2 }
    };
    let too_many = Written::Refused(Refusal::TooManyDestinations { max: 2 });
    // Those of one batch count too.
    let made = write(subject, (1..=3).map(|id| add(id, TENANT)).collect(), NOW);
    assert_eq!(made, [Written::Saved, Written::Saved, too_many.clone()]);
    assert_eq!(one(subject, add(4, TenantId(8))), Written::Saved, "another tenant has its own");
    assert_eq!(one(subject, add(1, TENANT)), Written::Refused(Refusal::VersionDiffers), "it is there already");
    assert_eq!(one(subject, Write::PutDestination(Box::new(destination(DestinationId(2), 2)))), Written::Saved);
    one(subject, Write::RemoveDestination { destination_id: DestinationId(1) });
    assert_eq!(one(subject, add(1, TENANT)), Written::Refused(Refusal::VersionDiffers), "an ID is used once");
    assert_eq!(one(subject, add(3, TENANT)), Written::Saved);
    assert_eq!(one(subject, add(5, TENANT)), too_many);
    assert_eq!(ask(subject.store().destinations(None, 9)).len(), 3);
}
