//! What happens, as it happens (server-sent events).

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::State;
use axum::response::sse::{Event as Line, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use doorstep_core::attempt::Answer;
use doorstep_core::engine::{Attempted, News};
use doorstep_core::gate::{GateChange, SuspensionReason, ThrottleReason};
use doorstep_core::id::{AttemptId, DeliveryId, DestinationId, EventId, TenantId};
use doorstep_core::outcome::{Class, Fault};
use doorstep_core::reach::Reach;
use doorstep_core::retry::{DeadReason, Decision};
use doorstep_core::route::{EventType, TypePatterns};
use doorstep_core::search::read_types;
use serde::{Deserialize, Deserializer, Serialize};
use tokio::sync::broadcast::error::RecvError;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::ask::Query;
use crate::auth::caller::Caller;
use crate::problem::Problem;
use crate::shape;
use crate::when::{self, When};

/// A quiet stream says this often that it is still there.
const HEARTBEAT: std::time::Duration = std::time::Duration::from_secs(15);

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(stream))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Watch {
    #[param(value_type = shape::TenantId, required = false)]
    tenant_id: Option<TenantId>,
    #[param(value_type = shape::DestinationId, required = false)]
    destination_id: Option<DestinationId>,
    /// Requests with events of these types alone. Changes of gates are of no type, and left out.
    #[param(value_type = shape::TypesAsked, required = false)]
    #[serde(default, deserialize_with = "types")]
    r#type: Option<TypePatterns>,
}

fn types<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<TypePatterns>, D::Error> {
    let text = String::deserialize(deserializer)?;
    read_types(&text).map(Some).map_err(serde::de::Error::custom)
}

/// One request to a receiver, and what follows from it: `event: attempt`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AttemptNews {
    at: When,
    #[schema(value_type = shape::TenantId)]
    tenant_id: TenantId,
    #[schema(value_type = shape::DestinationId)]
    destination_id: DestinationId,
    #[schema(value_type = shape::DeliveryId)]
    delivery_id: DeliveryId,
    #[schema(value_type = shape::AttemptId)]
    attempt_id: AttemptId,
    #[schema(value_type = shape::EventId)]
    event_id: EventId,
    #[schema(value_type = shape::EventType)]
    event_type: EventType,
    number: u32,
    #[schema(value_type = shape::ClassName)]
    class: Class,
    status_code: Option<u16>,
    #[schema(value_type = Option<shape::FaultName>)]
    error: Option<Fault>,
    total_ms: u64,
    then: Then,
    /// When it is tried again.
    retry_at: Option<When>,
    #[schema(value_type = Option<shape::DeadReasonName>)]
    reason: Option<DeadReason>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Then {
    Delivered,
    RetryScheduled,
    /// Back to the queue: the receiver is throttled, and it cost nothing.
    Queued,
    Dead,
}

/// A change of a destination's gate: `event: gate`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GateNews {
    at: When,
    #[schema(value_type = shape::TenantId)]
    tenant_id: TenantId,
    #[schema(value_type = shape::DestinationId)]
    destination_id: DestinationId,
    #[serde(flatten)]
    #[schema(inline)]
    change: Change,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "change", rename_all = "snake_case")]
pub(crate) enum Change {
    Throttled {
        until: When,
        #[schema(value_type = shape::ThrottleReasonName)]
        reason: ThrottleReason,
        consecutive: u32,
    },
    Unthrottled,
    Tripped {
        until: When,
        trips: u32,
    },
    Recovered,
    Suspended {
        #[schema(value_type = shape::SuspensionReasonName)]
        reason: SuspensionReason,
    },
}

/// Watch requests and gates as they happen
///
/// Server-sent events: `attempt`, `gate`, and `missed` if this client was too slow to hear everything. How many lines that were is said to whoever
/// is not limited to a tenant, and `null` to whoever is.
#[utoipa::path(get, path = "/v1/stream", tag = "stream", params(Watch),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
async fn stream(State(app): State<Arc<App>>, caller: Caller, Query(watch): Query<Watch>) -> Result<Response, Problem> {
    let place = app.watchers.begin(&caller)?;
    let (heard, ending) = (app.news.subscribe(), app.ending.subscribe());
    let lines = futures_util::stream::unfold((heard, ending, place, app, caller, watch), move |state| async move {
        let (mut heard, mut ending, place, app, caller, watch) = state;
        loop {
            let news = tokio::select! {
                news = heard.recv() => news,
                () = async { drop(ending.wait_for(|ending| *ending).await) } => return None,
            };
            let line = match news {
                // A key may be revoked while its owner watches.
                Ok(_) if !caller.is_still_good(&app) => return None,
                Ok(news) if watch.wants(caller.reach, &news) => when::now_by(app.engine.timeline(), || line(&news)),
                Ok(_) => continue,
                Err(RecvError::Lagged(n)) => missed(caller.reach, n),
                Err(RecvError::Closed) => return None,
            };
            return Some((Ok::<_, Infallible>(line), (heard, ending, place, app, caller, watch)));
        }
    });
    Ok(Sse::new(lines).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response())
}

impl Watch {
    fn wants(&self, reach: Reach, news: &News) -> bool {
        let (tenant_id, destination_id, event_type) = match news {
            News::Attempted(attempted) => (attempted.tenant_id, attempted.destination_id, Some(&attempted.event_type)),
            News::GateChanged { tenant_id, destination_id, .. } => (*tenant_id, *destination_id, None),
        };
        reach.covers(tenant_id)
            && self.tenant_id.is_none_or(|wanted| wanted == tenant_id)
            && self.destination_id.is_none_or(|wanted| wanted == destination_id)
            && self.r#type.as_ref().is_none_or(|wanted| event_type.is_some_and(|one| wanted.matches(one)))
    }
}

/// The number counts everybody's news: how much happens elsewhere is nobody's business who is limited to a tenant.
fn missed(reach: Reach, n: u64) -> Line {
    let counted = match reach {
        Reach::All => Some(n),
        Reach::Tenant(_) => None,
    };
    Line::default().event("missed").data(counted.map_or_else(|| "null".to_owned(), |n| n.to_string()))
}

fn line(news: &News) -> Line {
    let (kind, data) = match news {
        News::Attempted(attempted) => ("attempt", serde_json::to_string(&AttemptNews::of(attempted))),
        News::GateChanged { at, tenant_id, destination_id, change } => {
            let (at, tenant_id, destination_id) = (When(*at), *tenant_id, *destination_id);
            let change = Change::of(*change);
            ("gate", serde_json::to_string(&GateNews { at, tenant_id, destination_id, change }))
        }
    };
    // Plain fields always become JSON.
    Line::default().event(kind).data(data.unwrap_or_default())
}

impl AttemptNews {
    fn of(attempted: &Attempted) -> Self {
        let (status_code, error) = match attempted.answer {
            Answer::Status(status) => (Some(status), None),
            Answer::Fault(fault) => (None, Some(fault)),
        };
        let (then, retry_at, reason) = match attempted.decision {
            Decision::Delivered => (Then::Delivered, None, None),
            Decision::RetryAt(at) => (Then::RetryScheduled, Some(When(at)), None),
            Decision::Requeue => (Then::Queued, None, None),
            Decision::Dead(reason) => (Then::Dead, None, Some(reason)),
        };
        Self {
            at: When(attempted.at),
            tenant_id: attempted.tenant_id,
            destination_id: attempted.destination_id,
            delivery_id: attempted.delivery_id,
            attempt_id: attempted.attempt_id,
            event_id: attempted.event_id.clone(),
            event_type: attempted.event_type.clone(),
            number: attempted.number,
            class: attempted.outcome.class(),
            status_code,
            error,
            total_ms: attempted.took.0,
            then,
            retry_at,
            reason,
        }
    }
}

impl Change {
    fn of(change: GateChange) -> Self {
        match change {
            GateChange::Throttled { until, reason, consecutive } => {
                Self::Throttled { until: When(until), reason, consecutive }
            }
            GateChange::Unthrottled => Self::Unthrottled,
            GateChange::Tripped { until, trips } => Self::Tripped { until: When(until), trips },
            GateChange::Recovered => Self::Recovered,
            GateChange::Suspended(reason) => Self::Suspended { reason },
        }
    }
}

#[cfg(test)]
mod tests {
    use doorstep_core::outcome::Outcome;
    use doorstep_core::time::{Millis, Timestamp};

    use super::*;

    fn attempted(kind: &str) -> News {
        News::Attempted(Box::new(Attempted {
            at: Timestamp(0),
            tenant_id: TenantId(1),
            destination_id: DestinationId(1),
            delivery_id: DeliveryId(1),
            event_id: EventId::generated(1),
            event_type: kind.parse().unwrap(),
            attempt_id: AttemptId(1),
            number: 1,
            answer: Answer::Status(200),
            took: Millis(1),
            outcome: Outcome::Accepted { quota: None },
            decision: Decision::Delivered,
        }))
    }

    #[test]
    fn who_asks_for_types_hears_of_these_alone() {
        let (tenant_id, destination_id) = (TenantId(1), DestinationId(1));
        let gate = News::GateChanged { at: Timestamp(0), tenant_id, destination_id, change: GateChange::Recovered };
        let all = [attempted("invoice.paid"), attempted("order.made"), gate];
        let heard = |types: Option<&str>, reach| {
            let r#type = types.map(|types| read_types(types).unwrap());
            let watch = Watch { tenant_id: None, destination_id: None, r#type };
            all.iter().map(|news| watch.wants(reach, news)).collect::<Vec<_>>()
        };
        assert_eq!(heard(None, Reach::All), [true, true, true]);
        assert_eq!(heard(Some("invoice.*"), Reach::All), [true, false, false]);
        assert_eq!(heard(Some("*.made,*.paid"), Reach::All), [true, true, false]);
        assert_eq!(heard(Some("*"), Reach::Tenant(TenantId(2))), [false, false, false]);
    }
}
