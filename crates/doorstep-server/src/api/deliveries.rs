//! Deliveries: one event to one destination, with what has come of it so far.

use std::sync::Arc;

use axum::extract::State;
use doorstep_core::attempt::Attempt;
use doorstep_core::audit::Action;
use doorstep_core::gate::{Hold, Why};
use doorstep_core::id::{DeliveryId, DestinationId, EventId, TenantId};
use doorstep_core::reach::Reach;
use doorstep_core::retry::DeadReason;
use doorstep_core::route::EventType;
use doorstep_core::store::{CAPTURED_TOLD_MAX, DeliveryFilter, DeliveryStatus, DeliverySummary};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::attempts::AttemptView;
use crate::app::App;
use crate::ask::{Id, Ids, List};
use crate::auth::caller::Caller;
use crate::body::OptionalJson;
use crate::page::Stretch;
use crate::problem::{Code, Problem};
use crate::shape;
use crate::when::When;

/// A note on why a delivery was abandoned is at most this many characters.
const NOTE_CHARS_MAX: usize = 1_000;

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(get))
        .routes(routes!(get_attempt))
        .routes(routes!(retry))
        .routes(routes!(abandon))
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeliveryView {
    #[schema(value_type = shape::DeliveryId)]
    id: DeliveryId,
    #[schema(value_type = shape::EventId)]
    event_id: EventId,
    #[schema(value_type = shape::EventType)]
    event_type: EventType,
    #[schema(value_type = shape::TenantId)]
    tenant_id: TenantId,
    #[schema(value_type = shape::DestinationId)]
    destination_id: DestinationId,
    status: StatusName,
    /// Why it is dead.
    #[schema(value_type = Option<shape::DeadReasonName>, required)]
    reason: Option<DeadReason>,
    /// Why it does not go now.
    #[schema(value_type = Option<shape::WaitName>, required)]
    waiting_for: Option<Why>,
    /// Until when, where that is known.
    #[schema(required)]
    until: Option<When>,
    /// Attempts that its budget paid for.
    attempt_count: u32,
    /// Requests that were made, those included that cost nothing (throttled ones).
    request_count: u32,
    #[schema(required)]
    last_status_code: Option<u16>,
    created_at: When,
    #[schema(required)]
    next_attempt_at: Option<When>,
    give_up_at: When,
    #[schema(required)]
    ended_at: Option<When>,
    #[schema(value_type = Option<shape::OrderingKey>, required)]
    ordering_key: Option<Arc<str>>,
    #[schema(required)]
    sequence: Option<u64>,
    /// Why a person ended it.
    #[schema(required)]
    note: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeliveryDetail {
    #[serde(flatten)]
    delivery: DeliveryView,
    /// The last 100 at most, in the order in which they were made; `request_count` says how many there were. What was sent and what came back is shown
    /// of the last five; of others with GET …/attempts/{number}.
    #[schema(max_items = 100)]
    attempts: Vec<AttemptView>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StatusName {
    Queued,
    InFlight,
    RetryScheduled,
    Delivered,
    Dead,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeliveryPage {
    data: Vec<DeliveryView>,
    #[schema(required)]
    next_cursor: Option<String>,
}

/// What [`DeliveryFilter`] reads, as the API's description has it.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is never made")]
pub(crate) struct DeliveryList {
    /// Deliveries on their way are listed as `queued` or `retry_scheduled`, whichever they were before, and shown as `in_flight`. That alone cannot
    /// be asked for: it is not written down.
    #[param(required = false)]
    status: shape::StatusesAsked,
    #[param(required = false)]
    r#type: shape::TypesAsked,
    /// Deliveries of one event; of each tenant's, if several have one with this ID.
    #[param(required = false)]
    event_id: shape::EventId,
    #[param(required = false)]
    destination_id: shape::DestinationId,
    #[param(required = false)]
    tenant_id: shape::TenantId,
    #[param(required = false)]
    reason: shape::DeadReasonName,
    /// The last status code.
    #[param(required = false)]
    code: shape::CodesAsked,
    /// At this time or later.
    #[param(required = false)]
    created_after: When,
    #[param(required = false)]
    created_before: When,
    #[param(required = false)]
    limit: shape::Limit,
    #[param(required = false)]
    cursor: shape::Cursor,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Abandonment {
    /// Why, for whoever looks at it later.
    #[schema(max_length = 1000)]
    note: Option<String>,
}

/// Deliveries, newest first
#[utoipa::path(get, path = "/v1/deliveries", tag = "deliveries", params(DeliveryList),
    responses((status = 200, body = DeliveryPage)))]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    List { filter, limit, cursor }: List<DeliveryFilter>,
) -> Result<axum::Json<DeliveryPage>, Problem> {
    let stretch = Stretch::asked("dlv", limit, cursor.as_deref())?;
    let mut found = app.find(caller.reach, |store, reach| store.deliveries(reach, filter, stretch.page())).await?;
    let places = stretch.cut(&mut found, |last| last.delivery.seq);
    let (data, next_cursor) = places.fit(views(&app, caller.reach, found).await?);
    Ok(axum::Json(DeliveryPage { data, next_cursor }))
}

/// One delivery, with all its attempts
#[utoipa::path(get, path = "/v1/deliveries/{id}", tag = "deliveries", params(("id" = shape::DeliveryId, Path)),
    responses((status = 200, body = DeliveryDetail)))]
async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<DeliveryId>,
) -> Result<axum::Json<DeliveryDetail>, Problem> {
    detail(&app, caller.reach, id).await.map(axum::Json)
}

/// One attempt of a delivery, with what was sent and what came back
#[utoipa::path(get, path = "/v1/deliveries/{id}/attempts/{number}", tag = "deliveries",
    params(("id" = shape::DeliveryId, Path), ("number" = u32, Path, description = "Counts the delivery's requests from 1.")),
    responses((status = 200, body = AttemptView)))]
async fn get_attempt(
    State(app): State<Arc<App>>,
    caller: Caller,
    Ids(id, number): Ids<DeliveryId, u32>,
) -> Result<axum::Json<AttemptView>, Problem> {
    let found = app.find(caller.reach, |store, reach| store.attempt(reach, id, number)).await?;
    let none = || Problem::not_found(format!("there is no attempt {number} of a delivery {id} (any more)"));
    found.map(|attempt| axum::Json(AttemptView::of(attempt))).ok_or_else(none)
}

/// Send a dead letter again, with a fresh budget
#[utoipa::path(post, path = "/v1/deliveries/{id}/retry", tag = "deliveries", params(("id" = shape::DeliveryId, Path)),
    responses((status = 200, body = DeliveryDetail)))]
async fn retry(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<DeliveryId>,
) -> Result<axum::Json<DeliveryDetail>, Problem> {
    let summary = known(&app, caller.reach, id).await?;
    let destination_id = summary.delivery.destination_id;
    let destination = app.engine.destination(caller.reach, destination_id).ok_or_else(|| {
        Problem::new(Code::DestinationGone, format!("its destination {destination_id} has been deleted"))
    })?;
    let (of, event_id) = (Some(summary.tenant_id), summary.event_id);
    let event = app.find(caller.reach, |store, reach| store.event(reach, of, event_id)).await?.pop();
    let ttl = event.and_then(|(_, event)| app.engine.ttl_of(&event));
    let give_up_at = destination.settings.policy.give_up_at(app.engine.now(), ttl);
    let nothing = (&Value::Null, &Value::Null);
    let mandate = caller.mandate(&app, Action::DeliveryRetry, Some(summary.tenant_id), id, nothing);
    app.engine.retry(mandate, id, give_up_at).await??;
    detail(&app, caller.reach, id).await.map(axum::Json)
}

/// End a delivery for good
#[utoipa::path(post, path = "/v1/deliveries/{id}/abandon", tag = "deliveries", params(("id" = shape::DeliveryId, Path)),
    request_body = Option<Abandonment>,
    responses((status = 200, body = DeliveryDetail)))]
async fn abandon(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<DeliveryId>,
    OptionalJson(abandonment): OptionalJson<Abandonment>,
) -> Result<axum::Json<DeliveryDetail>, Problem> {
    let note = abandonment.note.unwrap_or_default();
    let chars = note.chars().count();
    if chars > NOTE_CHARS_MAX {
        let detail = format!("a note has at most {NOTE_CHARS_MAX} characters, but this has {chars}");
        return Err(Problem::invalid_at("/note", detail));
    }
    let tenant_id = known(&app, caller.reach, id).await?.tenant_id;
    let changes = (&Value::Null, &json!({ "note": note }));
    let mandate = caller.mandate(&app, Action::DeliveryAbandon, Some(tenant_id), id, changes);
    app.engine.abandon(mandate, id, note).await?.map_err(|refusal| no_such(id, refusal))?;
    detail(&app, caller.reach, id).await.map(axum::Json)
}

async fn detail(app: &App, reach: Reach, id: DeliveryId) -> Result<DeliveryDetail, Problem> {
    let history = app.find(reach, |store, reach| store.delivery(reach, id)).await?.ok_or_else(|| nothing(id))?;
    let mut views = views(app, reach, vec![history.summary]).await?;
    let delivery = views.pop().ok_or_else(|| nothing(id))?;
    let n_without = history.attempts.len().saturating_sub(CAPTURED_TOLD_MAX);
    let view = |(nth, attempt): (usize, Attempt)| {
        if nth < n_without { AttemptView::without_captured(attempt) } else { AttemptView::of(attempt) }
    };
    Ok(DeliveryDetail { delivery, attempts: history.attempts.into_iter().enumerate().map(view).collect() })
}

async fn known(app: &App, reach: Reach, id: DeliveryId) -> Result<DeliverySummary, Problem> {
    Ok(app.find(reach, |store, reach| store.delivery(reach, id)).await?.ok_or_else(|| nothing(id))?.summary)
}

fn nothing(id: DeliveryId) -> Problem {
    Problem::not_found(format!("there is no delivery {id} (any more)"))
}

fn no_such(id: DeliveryId, refusal: doorstep_core::store::Refusal) -> Problem {
    if refusal == doorstep_core::store::Refusal::NotFound { nothing(id) } else { refusal.into() }
}

/// What is stored, with what the scheduler knows of those that wait.
async fn views(app: &App, reach: Reach, found: Vec<DeliverySummary>) -> Result<Vec<DeliveryView>, Problem> {
    let waits = |line: &DeliverySummary| line.ended_at.is_none() && !line.behind;
    let waiting = found.iter().filter(|line| waits(line)).map(|line| line.delivery.clone()).collect();
    let mut holds = app.engine.holds(reach, waiting).await?.into_iter();
    let views = found.into_iter().map(|line| {
        let hold = match (line.ended_at, line.behind) {
            (Some(_), _) => Holding::Ended,
            (None, true) => Holding::Waits(Hold::for_event(Why::Ordering)),
            (None, false) => holds.next().flatten().map_or(Holding::OnItsWay, Holding::Waits),
        };
        DeliveryView::of(line, hold)
    });
    Ok(views.collect())
}

enum Holding {
    Ended,
    OnItsWay,
    Waits(Hold),
}

impl DeliveryView {
    fn of(line: DeliverySummary, holding: Holding) -> Self {
        let DeliverySummary { delivery, event_id, event_type, tenant_id, status, created_at, ended_at, .. } = line;
        let (name, reason) = match (status, &holding) {
            (_, Holding::OnItsWay) => (StatusName::InFlight, None),
            (DeliveryStatus::Queued, _) => (StatusName::Queued, None),
            (DeliveryStatus::RetryScheduled, _) => (StatusName::RetryScheduled, None),
            (DeliveryStatus::Delivered, _) => (StatusName::Delivered, None),
            (DeliveryStatus::Dead(reason), _) => (StatusName::Dead, Some(reason)),
        };
        let hold = match holding {
            Holding::Waits(hold) => Some(hold),
            Holding::Ended | Holding::OnItsWay => None,
        };
        Self {
            id: delivery.id,
            event_id,
            event_type,
            tenant_id,
            destination_id: delivery.destination_id,
            status: name,
            reason,
            waiting_for: hold.map(|hold| hold.why),
            until: hold.and_then(|hold| hold.until).map(When),
            attempt_count: delivery.progress.attempts,
            request_count: delivery.requests,
            last_status_code: line.last_status,
            created_at: When(created_at),
            next_attempt_at: hold.map(|_| When(delivery.due_at)),
            give_up_at: When(delivery.progress.give_up_at),
            ended_at: ended_at.map(When),
            sequence: delivery.ordering.as_ref().map(|slot| slot.sequence),
            ordering_key: delivery.ordering.map(|slot| slot.key),
            note: line.note,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::auth::world::World;

    #[tokio::test]
    async fn of_many_attempts_the_last_ones_are_shown_whole_and_each_by_its_number() {
        let world = World::new().await;
        let path = format!("/v1/deliveries/{}", world.own.delivery);
        for _ in 1..CAPTURED_TOLD_MAX + 2 {
            world.attempted(world.own.tenant.parse().unwrap()).await;
        }
        let (status, shown) = world.ask("GET", &path, Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{shown}");
        let attempts = shown["attempts"].as_array().unwrap();
        assert_eq!(attempts.len(), CAPTURED_TOLD_MAX + 2);
        for (nth, attempt) in attempts.iter().enumerate() {
            let is_whole = nth >= 2;
            assert_eq!(
                (attempt["request"].is_object(), attempt["response"].is_object()),
                (is_whole, is_whole),
                "{attempt}"
            );
            assert_eq!(attempt["status_code"], 429, "what came of it is always there");
            let (status, one) = world.ask("GET", &format!("{path}/attempts/{}", nth + 1), Value::Null).await;
            assert_eq!(status, StatusCode::OK, "{one}");
            assert_eq!((&one["id"], one["response"]["body"].is_string()), (&attempt["id"], true), "{one}");
        }
        for wrong in ["0", "8", "x", "-1", "99999999999"] {
            let (status, problem) = world.ask("GET", &format!("{path}/attempts/{wrong}"), Value::Null).await;
            assert_eq!((status, &problem["code"]), (StatusCode::NOT_FOUND, &json!("not_found")), "{wrong}: {problem}");
        }
    }
}
