//! How often destinations are tried out, or asked for consent by a person. A trial goes past the gate, so it has bounds of its own:
//! whoever may ask for one could aim at anybody, and nobody's trials should keep others from theirs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use doorstep_core::engine::EngineFault;
use doorstep_core::id::TenantId;
use doorstep_core::ingest_rate::{Bucket, IngestRate};
use doorstep_core::time::{Millis, Timestamp};

/// Destinations that are tried out at the same time …
pub const TRIALS_MAX: usize = 16;
/// … and of one tenant.
pub const TRIALS_PER_TENANT_MAX: usize = 4;
/// How often a tenant's are.
pub const TRIAL_RATE: IngestRate = IngestRate { per_second: 1, burst: 10 };
/// A trial takes no longer, whatever its destination allows: somebody waits for it.
pub const TRIAL_TIMEOUT_MAX: Millis = Millis::from_secs(30);

#[derive(Clone, Debug, Default)]
pub(crate) struct Trials(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    under_way: usize,
    tenants: HashMap<TenantId, Tenant>,
}

#[derive(Debug)]
struct Tenant {
    under_way: usize,
    bucket: Bucket,
}

/// Leave for one. It ends with it.
#[derive(Debug)]
pub(crate) struct Turn {
    trials: Trials,
    tenant_id: TenantId,
}

impl Trials {
    pub(crate) fn begin(&self, tenant_id: TenantId, now: Timestamp) -> Result<Turn, EngineFault> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Who has rested for long enough is as if they had never been here.
        inner.tenants.retain(|_, tenant| tenant.under_way > 0 || !tenant.bucket.is_full(TRIAL_RATE, now));
        let fresh = || Tenant { under_way: 0, bucket: Bucket::full(TRIAL_RATE, now) };
        let under_way = inner.under_way;
        let tenant = inner.tenants.entry(tenant_id).or_insert_with(fresh);
        if under_way >= TRIALS_MAX || tenant.under_way >= TRIALS_PER_TENANT_MAX {
            return Err(EngineFault::Busy);
        }
        tenant.bucket.take(TRIAL_RATE, now).map_err(EngineFault::TooOften)?;
        tenant.under_way += 1;
        inner.under_way += 1;
        Ok(Turn { trials: self.clone(), tenant_id })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut inner = self.trials.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.under_way -= 1;
        if let Some(tenant) = inner.tenants.get_mut(&self.tenant_id) {
            tenant.under_way -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    #[test]
    fn one_tenants_trials_leave_room_for_the_others() {
        let trials = Trials::default();
        let begin = |tenant| trials.begin(TenantId(tenant), NOW);
        let mut under_way: Vec<Turn> = (0..TRIALS_PER_TENANT_MAX).map(|_| begin(1).unwrap()).collect();
        assert!(matches!(begin(1), Err(EngineFault::Busy)));
        let more = (TRIALS_PER_TENANT_MAX..TRIALS_MAX).map(|n| begin(2 + n as u128).unwrap());
        under_way.extend(more);
        assert!(matches!(begin(999), Err(EngineFault::Busy)), "all slots are taken");
        under_way.remove(0);
        assert!(begin(999).is_ok());
        assert!(begin(1).is_ok());
    }

    #[test]
    fn trials_in_a_row_are_too_often_after_a_while_and_rests_are_forgotten() {
        let trials = Trials::default();
        let begin = |tenant, at| trials.begin(TenantId(tenant), at).map(drop);
        for _ in 0..TRIAL_RATE.burst {
            assert!(begin(1, NOW).is_ok());
        }
        assert!(matches!(begin(1, NOW), Err(EngineFault::TooOften(Millis(1_000)))));
        assert!(begin(2, NOW).is_ok(), "the others have their own");
        assert!(begin(1, NOW + Millis(1_000)).is_ok());
        assert!(begin(3, NOW + Millis::from_mins(1)).is_ok());
        assert_eq!(trials.0.lock().unwrap().tenants.len(), 1, "who rested is kept no longer");
    }
}
