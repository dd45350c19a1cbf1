//! Producers over their tenant's rate are told when to come back (G12). In memory, each process for itself.

use std::sync::{Mutex, PoisonError};

use doorstep_core::destination::Tenant;
use doorstep_core::id::TenantId;
use doorstep_core::id_map::IdMap;
use doorstep_core::ingest_rate::{Bucket, IngestRate};
use doorstep_core::time::{Millis, Timestamp};
use http::{HeaderMap, HeaderName, HeaderValue};

/// What the rate is called in header fields and problems.
pub(crate) const RATE_POLICY: &str = "ingest";

/// One bucket for each tenant that has a rate and has sent something.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<IdMap<TenantId, Bucket>>);

/// Where a tenant stands, as it is told with each answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    rate: IngestRate,
    left: u64,
    full_in: Millis,
    /// Set if this one was over the rate.
    pub(crate) wait: Option<Millis>,
}

impl Rates {
    /// Counts one event. `None`: the tenant may send as fast as it likes.
    pub(crate) fn take(&self, tenant: &Tenant, default: Option<IngestRate>, now: Timestamp) -> Option<Standing> {
        let rate = tenant.ingest_rate.or(default)?;
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.entry(tenant.id).or_insert_with(|| Bucket::full(rate, now));
        let wait = bucket.take(rate, now).err();
        Some(Standing { rate, left: bucket.left(), full_in: bucket.full_in(rate), wait })
    }
}

impl Standing {
    /// The header fields of draft-ietf-httpapi-ratelimit-headers.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        let Self { rate, left, full_in, wait } = self;
        // The policy in the draft's words: as many as the burst, in the time that the burst takes to come back.
        let window = u64::from(rate.burst).div_ceil(u64::from(rate.per_second.max(1))).max(1);
        let reset = wait.unwrap_or(*full_in).0.div_ceil(1_000);
        for (name, value) in [
            ("ratelimit-policy", format!("\"{RATE_POLICY}\";q={};w={window}", rate.burst)),
            ("ratelimit", format!("\"{RATE_POLICY}\";r={left};t={reset}")),
        ] {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
    }
}
