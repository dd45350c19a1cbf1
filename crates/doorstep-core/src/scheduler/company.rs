//! Which destinations are refused together with others at the same host: they may share its limit (G6).
//!
//! To each of them refusals then look like chance, because others bring them about. Nothing is shared between them but this warning: one
//! destination's limit is never concluded from another's.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use super::lane::LaneKey;
use crate::id::TenantId;
use crate::time::{Millis, Timestamp};

/// The last refusals by tenant and host.
#[derive(Debug, Default)]
pub(super) struct Company {
    refusals: HashMap<(TenantId, Arc<str>), Refusals, BuildHasherDefault<DefaultHasher>>,
}

#[derive(Clone, Copy, Debug)]
struct Refusals {
    last: (LaneKey, Timestamp),
    /// When another destination than that was last refused.
    another: Option<Timestamp>,
}

/// Refusals this close to each other are in company.
const TOGETHER: Millis = Millis::from_mins(2);
/// With more hosts than this, those without a recent refusal are forgotten, and if that does not help, all are.
const HOSTS_MAX: usize = 4_096;

impl Company {
    /// A destination was refused. Says whether another one of its tenant was, at the same host and not long ago.
    pub(super) fn refused(&mut self, tenant_id: TenantId, host: &Arc<str>, lane: LaneKey, now: Timestamp) -> bool {
        if self.refusals.len() >= HOSTS_MAX {
            self.refusals.retain(|_, refusals| is_recent(refusals.last.1, now));
            if self.refusals.len() >= HOSTS_MAX {
                self.refusals.clear();
            }
        }
        let refusals = self.refusals.entry((tenant_id, Arc::clone(host)));
        let refusals = refusals.or_insert(Refusals { last: (lane, now), another: None });
        if refusals.last.0 != lane {
            refusals.another = Some(refusals.last.1);
        }
        refusals.last = (lane, now);
        refusals.another.is_some_and(|at| is_recent(at, now))
    }
}

fn is_recent(at: Timestamp, now: Timestamp) -> bool {
    now.since(at) < TOGETHER && at.since(now) < TOGETHER
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Timestamp = Timestamp(1_700_000_000_000);

    #[test]
    fn two_destinations_of_a_tenant_that_are_refused_at_one_host_are_in_company() {
        let mut company = Company::default();
        let (host, other): (Arc<str>, Arc<str>) = ("a.example".into(), "b.example".into());
        let [one, two] = [LaneKey::at(1), LaneKey::at(2)];
        assert!(!company.refused(TenantId(1), &host, one, T0));
        assert!(!company.refused(TenantId(1), &host, one, T0), "alone");
        assert!(!company.refused(TenantId(2), &host, two, T0), "another tenant's is none");
        assert!(!company.refused(TenantId(1), &other, two, T0), "nor is one at another host");
        assert!(company.refused(TenantId(1), &host, two, T0 + Millis::from_secs(119)));
        assert!(company.refused(TenantId(1), &host, one, T0 + Millis::from_secs(120)));
        let later = T0 + Millis::from_mins(10);
        assert!(!company.refused(TenantId(1), &host, one, later), "that was long ago");
        assert!(!company.refused(TenantId(1), &host, two, later - Millis::from_hours(5)), "the clock was set back");
    }

    #[test]
    fn only_so_many_hosts_are_remembered() {
        let mut company = Company::default();
        for n in 0..HOSTS_MAX + 10 {
            company.refused(TenantId(1), &n.to_string().into(), LaneKey::at(1), T0);
        }
        assert!(company.refusals.len() <= HOSTS_MAX);
    }
}
