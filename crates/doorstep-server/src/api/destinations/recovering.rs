//! How far a destination has come on the ramp after an outage, a pause or a suspension (G8).

use doorstep_core::engine::GateView;
use doorstep_core::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use crate::when::When;

/// What gathered while nothing could be sent follows at a pace that climbs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RecoveringView {
    /// Requests per second now.
    per_second: f64,
    /// What the pace climbs to, in requests per second.
    target_per_second: f64,
    /// When sending went on.
    #[schema(required)]
    since: Option<When>,
}

impl RecoveringView {
    pub(super) fn of(gate: &GateView, now: Timestamp) -> Option<Self> {
        let recovering = gate.state.pace.recovering(now)?;
        Some(Self {
            per_second: recovering.pace.as_per_second(),
            target_per_second: recovering.target.as_per_second(),
            since: recovering.since.map(When),
        })
    }
}
