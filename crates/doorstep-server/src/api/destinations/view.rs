//! A destination at a glance (M1).

use std::collections::BTreeMap;

use doorstep_core::consent::Verification;
use doorstep_core::delivery::{BehindDead, Ordering};
use doorstep_core::destination::Destination;
use doorstep_core::engine::{Asking, GateView};
use doorstep_core::filter::Filter;
use doorstep_core::gate::{GateStatus, SuspensionReason, ThrottleReason};
use doorstep_core::id::{DestinationId, TenantId};
use doorstep_core::outcome::StatusOverrides;
use doorstep_core::output::{Format, PayloadMode};
use doorstep_core::reach::Reach;
use doorstep_core::retry::PolicySpec;
use doorstep_core::route::TypePatterns;
use doorstep_core::store::{ActivityQuery, Backlog, Tally};
use doorstep_core::time::Millis;
use serde::Serialize;
use utoipa::ToSchema;

use super::certificate::CertificateView;
use super::consent::ConsentView;
use super::pace::{AdvertisedQuotaView, LearnedPaceView, PinnedPace};
use super::recovering::RecoveringView;
use super::settings::{OrderingName, RateLimit, Signing, algorithm};
use crate::app::App;
use crate::problem::Problem;
use crate::shape;
use crate::when::When;

/// What counts for the success rate: the last hour.
const SUCCESS_RATE_OVER: Millis = Millis::from_hours(1);

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DestinationView {
    #[schema(value_type = shape::DestinationId)]
    id: DestinationId,
    #[schema(value_type = shape::TenantId)]
    tenant_id: TenantId,
    #[schema(value_type = Option<shape::Name>, required)]
    name: Option<String>,
    #[schema(value_type = shape::TargetUrl)]
    url: String,
    #[schema(value_type = shape::TypePatterns)]
    event_types: TypePatterns,
    #[schema(value_type = Option<shape::Filter>, required)]
    filter: Option<Filter>,
    #[schema(value_type = shape::Policy)]
    policy: PolicySpec,
    #[schema(value_type = shape::StatusOverrides)]
    status_overrides: StatusOverrides,
    concurrency: u32,
    rate_limit: RateLimit,
    #[schema(required)]
    pinned_pace: Option<PinnedPace>,
    ordering: OrderingName,
    #[schema(value_type = Option<shape::BehindDeadName>, required)]
    behind_dead: Option<BehindDead>,
    timeout_ms: u64,
    /// The names of the headers that are sent along; their values are not shown.
    #[schema(value_type = Object, example = json!({"authorization": "***"}))]
    headers: BTreeMap<String, &'static str>,
    signing: Signing,
    #[schema(value_type = shape::PayloadModeName)]
    payload_mode: PayloadMode,
    #[schema(value_type = shape::FormatName)]
    format: Format,
    send_traceparent: bool,
    #[schema(value_type = shape::VerificationName)]
    verification: Verification,
    /// Null where nobody has to agree.
    #[schema(required)]
    consent: Option<ConsentView>,
    tls: TlsView,
    created_at: When,
    updated_at: When,
    /// One more with every change of its settings; it is also the `ETag`.
    version: u64,

    #[schema(value_type = shape::GateStatusName)]
    status: GateStatus,
    #[schema(required)]
    throttled_until: Option<When>,
    #[schema(value_type = Option<shape::ThrottleReasonName>, required)]
    throttle_reason: Option<ThrottleReason>,
    /// Throttles in a row.
    throttle_count: u32,
    breaker: BreakerState,
    /// The ramp after an outage, a pause or a suspension, while `status` is `recovering`.
    #[schema(required)]
    recovering: Option<RecoveringView>,
    /// When an open breaker lets a probe through.
    #[schema(required)]
    next_probe_at: Option<When>,
    #[schema(required)]
    suspension_reason: Option<SuspensionName>,
    /// What throttling has taught about this receiver, in requests per second.
    #[schema(required)]
    learned_pace: Option<f64>,
    /// The learned pace with its reason; null while nothing has been learned.
    #[schema(required)]
    learned: Option<LearnedPaceView>,
    /// What the receiver says of its own quota (`RateLimit`), while that fits what it does; null if it says nothing.
    #[schema(required)]
    advertised_quota: Option<AdvertisedQuotaView>,
    /// Requests under way now.
    in_flight: u32,
    queued_events: u64,
    /// How long the oldest of them has been waiting.
    #[schema(required)]
    oldest_age_ms: Option<u64>,
    /// The share of requests that succeeded in the last hour; null without any, and in lists.
    #[schema(required)]
    success_rate: Option<f64>,
}

/// What TLS proves to this receiver, and whom it believes there.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TlsView {
    #[schema(required)]
    client_certificate: Option<CertificateView>,
    #[schema(required)]
    ca_pem: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BreakerState {
    Closed,
    Open,
    HalfOpen,
}

/// Why nothing is sent: the receiver says that it is gone, says no to everything, or has not agreed to be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SuspensionName {
    Gone,
    OnlyRejections,
    NoConsent,
}

impl From<SuspensionReason> for SuspensionName {
    fn from(reason: SuspensionReason) -> Self {
        match reason {
            SuspensionReason::Gone => Self::Gone,
            SuspensionReason::OnlyRejections => Self::OnlyRejections,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DestinationPage {
    pub(super) data: Vec<DestinationView>,
    #[schema(required)]
    pub(super) next_cursor: Option<String>,
}

pub(super) async fn view(app: &App, reach: Reach, destination: &Destination) -> Result<DestinationView, Problem> {
    let id = destination.id;
    let gate = app.engine.gates(reach, vec![id]).await?.pop().flatten();
    let backlog = app.find(reach, |store, reach| store.backlogs(reach, vec![id])).await?.pop().unwrap_or_default();
    let now = app.engine.now();
    let (from, limit) = (now - SUCCESS_RATE_OVER, 100);
    let until = now + Millis::from_mins(1);
    let query = ActivityQuery { destination_id: Some(id), from, until, limit };
    let minutes = app.find(reach, |store, reach| store.activity(reach, query)).await?;
    let mut tally = Tally::default();
    for minute in minutes {
        tally.add(&minute.tally);
    }
    let asking = app.engine.asking(reach, &[id]).pop().flatten();
    let mut view = DestinationView::of(app, destination, gate.as_ref(), backlog, asking);
    view.success_rate = success_rate(&tally);
    Ok(view)
}

pub(super) async fn views(
    app: &App,
    reach: Reach,
    found: &[std::sync::Arc<Destination>],
) -> Result<Vec<DestinationView>, Problem> {
    let ids: Vec<DestinationId> = found.iter().map(|destination| destination.id).collect();
    let gates = app.engine.gates(reach, ids.clone()).await?;
    let asking = app.engine.asking(reach, &ids);
    let backlogs = app.find(reach, |store, reach| store.backlogs(reach, ids)).await?;
    let lines = found.iter().zip(gates).zip(backlogs).zip(asking);
    Ok(lines
        .map(|(((destination, gate), backlog), asking)| {
            DestinationView::of(app, destination, gate.as_ref(), backlog, asking)
        })
        .collect())
}

fn success_rate(tally: &Tally) -> Option<f64> {
    // A throttled request is neither: it costs nothing and says nothing about the receiver's health.
    let answered = tally.succeeded + tally.transient + tally.ambiguous + tally.permanent;
    (answered > 0).then(|| tally.succeeded as f64 / answered as f64)
}

impl DestinationView {
    fn of(
        app: &App,
        destination: &Destination,
        gate: Option<&GateView>,
        backlog: Backlog,
        asking: Option<Asking>,
    ) -> Self {
        let Destination { id, tenant_id, settings, secrets, created_at, updated_at, .. } = destination;
        let now = app.engine.now();
        let learned = gate.and_then(|gate| gate.state.pace.learned_pace(&destination.limits()));
        let (ordering, behind_dead) = match settings.ordering {
            Ordering::Unordered => (OrderingName::Unordered, None),
            Ordering::ByKey { behind_dead } => (OrderingName::ByKey, Some(behind_dead)),
        };
        let state = gate.map(|gate| &gate.state);
        let throttled_until = state.and_then(|state| state.throttle.until()).filter(|until| *until > now);
        let probe_at = state.and_then(|state| state.breaker.probe_at());
        let status = gate.map_or(GateStatus::Active, |gate| gate.status);
        let reason = state.and_then(|state| state.suspension.reason()).map(SuspensionName::from);
        let (status, suspension_reason) = match status {
            GateStatus::Paused => (status, reason),
            _ if destination.awaits_consent() => (GateStatus::Suspended, Some(SuspensionName::NoConsent)),
            _ => (status, reason),
        };
        Self {
            id: *id,
            tenant_id: *tenant_id,
            name: settings.name.clone(),
            url: settings.url.clone(),
            event_types: settings.subscription.event_types.clone(),
            filter: settings.subscription.filter.clone(),
            policy: match &settings.preset {
                Some(name) => PolicySpec::Preset(name.clone()),
                None => settings.policy.clone().into(),
            },
            status_overrides: settings.status_overrides.clone(),
            concurrency: settings.limits.concurrency,
            rate_limit: RateLimit {
                per_second: settings.limits.rate.as_per_second(),
                burst: Some(settings.limits.burst),
            },
            pinned_pace: settings.limits.pinned.map(PinnedPace::of),
            ordering,
            behind_dead,
            timeout_ms: settings.timeout.0,
            headers: secrets.headers.iter().map(|(name, _)| (name.clone(), "***")).collect(),
            signing: Signing { algorithm: algorithm(secrets), also: settings.extra_signatures.clone() },
            payload_mode: settings.payload_mode,
            format: settings.format,
            send_traceparent: settings.send_traceparent,
            verification: settings.verification,
            consent: ConsentView::of(destination, asking),
            tls: TlsView {
                client_certificate: settings.tls.client_certificate_pem.as_deref().and_then(CertificateView::of),
                ca_pem: settings.tls.ca_pem.clone(),
            },
            created_at: When(*created_at),
            updated_at: When(*updated_at),
            version: destination.version,
            status,
            throttled_until: throttled_until.map(When),
            throttle_reason: state.and_then(|state| state.throttle.reason()).filter(|_| throttled_until.is_some()),
            throttle_count: state.map_or(0, |state| state.throttle.consecutive()),
            breaker: match probe_at {
                None => BreakerState::Closed,
                Some(probe_at) if now < probe_at => BreakerState::Open,
                Some(_) => BreakerState::HalfOpen,
            },
            recovering: gate
                .filter(|_| status == GateStatus::Recovering)
                .and_then(|gate| RecoveringView::of(gate, now)),
            next_probe_at: probe_at.map(When),
            suspension_reason,
            learned_pace: state.and_then(|state| state.pace.learned()).map(|rate| rate.as_per_second()),
            learned: learned.map(|learned| LearnedPaceView::of(learned, now)),
            advertised_quota: gate.and_then(|gate| gate.advertised_quota).map(AdvertisedQuotaView::of),
            in_flight: gate.map_or(0, |gate| gate.in_flight),
            queued_events: backlog.queued,
            oldest_age_ms: backlog.oldest_created_at.map(|at| now.since(at).0),
            success_rate: None,
        }
    }
}
