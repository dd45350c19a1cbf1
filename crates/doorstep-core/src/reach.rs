//! Whose things somebody may see and touch.

use crate::id::TenantId;

/// How far a credential reaches. What is out of reach is as if it were not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    All,
    Tenant(TenantId),
}

impl Reach {
    pub fn covers(self, tenant_id: TenantId) -> bool {
        match self {
            Self::All => true,
            Self::Tenant(own) => own == tenant_id,
        }
    }

    /// The same of what may be nobody's in particular: then only those see it who see everything.
    pub fn covers_owner(self, tenant_id: Option<TenantId>) -> bool {
        tenant_id.map_or(self == Self::All, |tenant_id| self.covers(tenant_id))
    }

    /// What is left when one tenant's things are asked for, or everybody's. `None`: nothing is.
    pub fn narrowed_to(self, asked: Option<TenantId>) -> Option<Self> {
        match asked {
            None => Some(self),
            Some(tenant_id) => self.covers(tenant_id).then_some(Self::Tenant(tenant_id)),
        }
    }

    pub fn tenant_id(self) -> Option<TenantId> {
        match self {
            Self::All => None,
            Self::Tenant(tenant_id) => Some(tenant_id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: TenantId = TenantId(1);
    const FOREIGN: TenantId = TenantId(2);

    #[test]
    fn a_tenants_reach_ends_at_its_own_things() {
        let reach = Reach::Tenant(OWN);
        assert!(reach.covers(OWN) && !reach.covers(FOREIGN));
        assert!(reach.covers_owner(Some(OWN)) && !reach.covers_owner(Some(FOREIGN)) && !reach.covers_owner(None));
        assert!(Reach::All.covers(FOREIGN) && Reach::All.covers_owner(None));
    }

    #[test]
    fn asking_for_less_narrows_and_asking_for_more_gives_nothing() {
        for (reach, asked, left) in [
            (Reach::All, None, Some(Reach::All)),
            (Reach::All, Some(OWN), Some(Reach::Tenant(OWN))),
            (Reach::Tenant(OWN), None, Some(Reach::Tenant(OWN))),
            (Reach::Tenant(OWN), Some(OWN), Some(Reach::Tenant(OWN))),
            (Reach::Tenant(OWN), Some(FOREIGN), None),
        ] {
            assert_eq!(reach.narrowed_to(asked), left, "{reach:?} {asked:?}");
        }
    }
}
