//! Tenants and destinations: how they change, and how many there may be.

use doorstep_core::destination::Destination;
use doorstep_core::id::{DestinationId, TenantId};
use doorstep_core::store::{Refusal, Write, Written};

use super::*;

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
