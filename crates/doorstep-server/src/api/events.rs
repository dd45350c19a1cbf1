//! Events: taking them in (I1, I2, I5, I7), and looking at them.

mod items;
mod new;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use doorstep_core::engine::Accepted;
use doorstep_core::event::{CloudAttributes, Event, Offer};
use doorstep_core::id::{EventId, TenantId};
use doorstep_core::reach::Reach;
use doorstep_core::route::EventType;
use doorstep_core::store::{EventFilter, EventSummary, Refusal};
use doorstep_core::trace::TraceParent;
use http::{Extensions, HeaderMap, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answers::UNCOUNTED_BYTES_MAX;
use crate::app::App;
use crate::ask::{Id, List, Query};
use crate::auth::caller::Caller;
use crate::bodies::Part;
use crate::body;
use crate::object::Object;
use crate::page::Stretch;
use crate::problem::Problem;
use crate::rates::Standing;
use crate::shape;
use crate::when::{Given, When};
use items::Items;
use new::cloud::{self, Form};
use new::{EventBody, IdempotencyKey, NewEvent, SUGGESTED_MAX, check_type, idempotency_key};
pub(crate) use new::{SCHEMA_VERSION_CHARS_MAX, TTL_MAX, TTL_MIN};

/// Events in a batch.
pub(crate) const BATCH_MAX: usize = 1_000;
/// Faults told of all events of a batch; beyond that, one of each.
const BATCH_FAULTS_MAX: usize = 1_000;
/// What an event's body may be longer than its payload: base64, and the other fields.
fn body_max(payload_max: usize) -> usize {
    payload_max / 3 * 4 + 64 * 1024
}

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list, accept)).routes(routes!(accept_batch)).routes(routes!(get))
}

/// An event that is on disk.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AcceptedView {
    #[schema(value_type = shape::EventId)]
    id: EventId,
    /// How many destinations it goes to.
    deliveries: usize,
    /// It was accepted before: no second delivery is made.
    duplicate: bool,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewBatch<'a> {
    /// Each is judged by itself: what is no event (see `NewEvent`) has a problem as its result.
    #[serde(borrow)]
    #[schema(value_type = Vec<Value>, min_items = 1, max_items = 1000)]
    events: Items<'a>,
}

/// CloudEvents in structured mode, each judged by itself: as many as events of our own.
#[derive(Debug)]
enum CloudEventBatch {}

impl PartialSchema for CloudEventBatch {
    fn schema() -> RefOr<Schema> {
        let RefOr::T(Schema::Object(mut batch)) = NewBatch::schema() else { return RefOr::default() };
        let mut events = batch.properties.remove("events").unwrap_or_default();
        if let RefOr::T(Schema::Array(events)) = &mut events {
            events.description = Some("CloudEvents in structured mode, each judged by itself.".to_owned());
        }
        events
    }
}

impl ToSchema for CloudEventBatch {}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchResult {
    /// In the order of the events.
    results: Vec<ItemResult>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum ItemResult {
    Accepted(AcceptedView),
    Refused { error: Problem },
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventView {
    #[schema(value_type = shape::EventId)]
    id: EventId,
    #[schema(value_type = shape::TenantId)]
    tenant_id: TenantId,
    #[schema(value_type = shape::EventType)]
    r#type: EventType,
    #[schema(value_type = shape::ContentType)]
    content_type: Arc<str>,
    payload_bytes: u64,
    #[schema(value_type = Option<shape::OrderingKey>, required)]
    ordering_key: Option<Arc<str>>,
    #[schema(required)]
    produced_at: Option<Given>,
    #[schema(value_type = Option<shape::SchemaVersion>, required)]
    schema_version: Option<Arc<str>>,
    accepted_at: When,
    /// How many deliveries were made of it.
    deliveries: u64,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventDetail {
    #[serde(flatten)]
    event: EventView,
    #[schema(required)]
    ttl_ms: Option<u64>,
    /// What it said of itself, if it came as a CloudEvent.
    #[serde(skip_serializing_if = "Option::is_none")]
    cloud_event: Option<CloudAttributesView>,
    /// In hexadecimal.
    payload_sha256: String,
    /// The payload as it came, if it is JSON …
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value, required = false)]
    payload: Option<Box<RawValue>>,
    /// … and otherwise in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

/// The attributes of a CloudEvent that other events do not have.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CloudAttributesView {
    /// As its producer gave it. The event's own `id` is the same, unless another source had that first or it cannot be one.
    #[schema(value_type = shape::CloudEventId)]
    id: Arc<str>,
    #[schema(value_type = shape::CloudEventSource)]
    source: Arc<str>,
    #[schema(value_type = Option<shape::CloudEventSubject>, required)]
    subject: Option<Arc<str>>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventPage {
    data: Vec<EventView>,
    #[schema(required)]
    next_cursor: Option<String>,
}

/// What [`EventFilter`] reads, as the API's description has it.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is never made")]
pub(crate) struct EventList {
    #[param(required = false)]
    r#type: shape::TypesAsked,
    #[param(required = false)]
    tenant_id: shape::TenantId,
    #[param(required = false)]
    ordering_key: shape::OrderingKey,
    /// Accepted at this time or later.
    #[param(required = false)]
    created_after: When,
    #[param(required = false)]
    created_before: When,
    #[param(required = false)]
    limit: shape::Limit,
    #[param(required = false)]
    cursor: shape::Cursor,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventOf {
    /// Needed only where two tenants have an event with the same ID.
    #[param(value_type = shape::TenantId, required = false)]
    tenant_id: Option<TenantId>,
}

/// Take an event in
///
/// The answer comes once it is on disk. The same event again (by `id`, or by the header `Idempotency-Key`) is answered as
/// before, and makes no second delivery.
///
/// It may also be a CloudEvent 1.0: structured, as the body, or binary, in `ce-*` headers with its data as the body.
#[utoipa::path(post, path = "/v1/events", tag = "events",
    request_body(content((EventBody = "application/json"), (cloud::CloudEventBody = "application/cloudevents+json"))),
    params(("idempotency-key" = Option<shape::IdempotencyKey>, Header), ("traceparent" = Option<shape::TraceParent>, Header),
        ("ce-specversion" = Option<shape::CeSpecVersion>, Header), ("ce-id" = Option<shape::CeId>, Header),
        ("ce-source" = Option<shape::CeSource>, Header), ("ce-type" = Option<shape::CeType>, Header),
        ("ce-subject" = Option<shape::CeSubject>, Header), ("ce-time" = Option<shape::CeTime>, Header),
        ("ce-tenantid" = Option<shape::CeTenantId>, Header)),
    responses((status = 202, body = AcceptedView)))]
async fn accept(State(app): State<Arc<App>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let taken = take_one(&app, caller.reach, request).await;
    count(&app, taken.iter().map(|(view, _)| view.duplicate), u64::from(taken.is_err()));
    let (view, headers) = taken?;
    Ok((StatusCode::ACCEPTED, headers, axum::Json(view)).into_response())
}

async fn take_one(app: &App, reach: Reach, request: Request) -> Result<(AcceptedView, HeaderMap), Problem> {
    let (head, sent) = request.into_parts();
    let form = Form::of(&head);
    if form == Form::Own {
        body::check_is_json(&head.headers)?;
    }
    let key = idempotency_key(&head.headers)?;
    let bytes = body::read(app, &head.extensions, sent, body_max(app.limits.payload_max)).await?;
    let new = match form {
        Form::Own => body::parse::<Object<_>>(&bytes)?.0,
        Form::Structured => cloud::structured(&bytes, &head.uri)?,
        Form::Binary => cloud::binary(&head, &bytes)?,
    };
    let mut intake =
        Intake { app, reach, form, trace: trace(&head.headers), suggest_max: SUGGESTED_MAX, standing: None };
    let offer = intake.read(new, key.as_ref()).await?;
    let _waits = waits_to_be_written(app, &head.extensions, bytes.len())?;
    // The offer has its own copy of the payload: the body need not wait for the disk.
    drop(bytes);
    let accepted = app.engine.accept(reach, vec![offer]).await?.pop().unwrap_or(Err(Refusal::NotFound))?;
    let replayed = key.is_some() && accepted.duplicate;
    Ok((AcceptedView::of(accepted), told(intake.standing, replayed)))
}

/// Counts a large request among what its credential has waiting, until this is dropped: the engine has room for so much, and one producer must not take it all.
fn waits_to_be_written(app: &App, of: &Extensions, bytes: usize) -> Result<Option<Part>, Problem> {
    if bytes <= UNCOUNTED_BYTES_MAX {
        return Ok(None);
    }
    let mut part = app.writing.begin(of.get::<Caller>().map(|caller| &caller.actor));
    part.take(bytes).map(|()| Some(part))
}

/// What the events of one request have in common.
struct Intake<'a> {
    app: &'a App,
    reach: Reach,
    form: Form,
    trace: Option<TraceParent>,
    /// How many unknown types are answered with what may have been meant.
    suggest_max: usize,
    /// What is left of the rate of the last one's tenant.
    standing: Option<Standing>,
}

impl Intake<'_> {
    /// An event that may be accepted, as far as can be said without writing it.
    async fn read(&mut self, new: NewEvent<'_>, key: Option<&IdempotencyKey>) -> Result<Offer, Problem> {
        let form = self.form;
        let elsewhere = |problem: Problem| problem.elsewhere(|pointer| form.pointer(pointer));
        // A copy: an event that waits must keep neither what its connection reads into nor a whole batch.
        let is_named = new.is_named() || key.is_some();
        let offer = new.read(self.app, self.reach, key, bytes::Bytes::copy_from_slice).map_err(elsewhere)?;
        let Offer { mut event, key, other_id } = offer;
        // First of all: what comes next may have to read.
        self.standing = keep_rate(self.app, self.reach, &event)?.or(self.standing);
        let names = if is_named { [Some(&event.id), other_id.as_ref()] } else { [None, None] };
        check_type(self.app, self.reach, (&event, names), &mut self.suggest_max).await.map_err(elsewhere)?;
        event.trace = self.trace;
        Ok(Offer { event, key, other_id })
    }
}

/// Counts the event against its tenant's rate (G12).
fn keep_rate(app: &App, reach: Reach, event: &Event) -> Result<Option<Standing>, Problem> {
    let Some(tenant) = app.engine.tenant(reach, event.tenant_id) else { return Ok(None) };
    let standing = app.rates.take(&tenant, app.limits.ingest_rate, event.accepted_at);
    match standing.and_then(|standing| Some((standing, standing.wait?))) {
        Some((standing, wait)) => Err(Problem::over_rate(standing, wait)),
        None => Ok(standing),
    }
}

/// What is said beside the answer.
fn told(standing: Option<Standing>, replayed: bool) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(standing) = standing {
        standing.tell(&mut headers);
    }
    if replayed {
        headers.insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    headers
}

/// Take many events in at once
///
/// Each has its own result: one that is refused does not keep the others out. An `Idempotency-Key` covers the whole batch.
#[utoipa::path(post, path = "/v1/events/batch", tag = "events",
    request_body(content((NewBatch = "application/json"), (CloudEventBatch = "application/cloudevents-batch+json"))),
    params(("idempotency-key" = Option<shape::IdempotencyKey>, Header), ("traceparent" = Option<shape::TraceParent>, Header)),
    responses((status = 200, body = BatchResult)))]
async fn accept_batch(State(app): State<Arc<App>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let (head, sent) = request.into_parts();
    body::check_is_json(&head.headers)?;
    let key = idempotency_key(&head.headers)?;
    let bytes = body::read(&app, &head.extensions, sent, app.limits.batch_bytes_max).await?;
    let (form, batch, prefix) = match Form::of(&head) {
        Form::Structured => (Form::Structured, NewBatch { events: body::parse(&bytes)? }, ""),
        Form::Own | Form::Binary => (Form::Own, body::parse::<Object<_>>(&bytes)?.0, "/events"),
    };
    let Items(items) = batch.events;
    let n = items.len();
    if n == 0 {
        return Err(Problem::invalid_at(prefix, format!("a batch has 1 to {BATCH_MAX} events, but this has none")));
    }
    let trace = trace(&head.headers);
    let mut intake = Intake { app: &app, reach: caller.reach, form, trace, suggest_max: SUGGESTED_MAX, standing: None };
    let (mut results, mut faults_left) = (Vec::with_capacity(n), BATCH_FAULTS_MAX);
    let mut offers = Vec::with_capacity(n);
    for (at, raw) in items.into_iter().enumerate() {
        // A long batch lets others have their turn.
        tokio::task::consume_budget().await;
        let key = key.as_ref().map(|key| key.of_item(at));
        let new: Result<NewEvent<'_>, Problem> = match form {
            Form::Structured => cloud::structured(raw.get().as_bytes(), &head.uri),
            Form::Own | Form::Binary => body::parse(raw.get().as_bytes()).map(|Object(new)| new),
        };
        let read = match new {
            Ok(new) => intake.read(new, key.as_ref()).await,
            Err(problem) => Err(problem),
        };
        results.push(match read {
            Ok(offer) => {
                offers.push(offer);
                Ok(())
            }
            Err(problem) => Err(problem.within(&format!("{prefix}/{at}")).within_room(&mut faults_left)),
        });
    }
    let standing = intake.standing;
    let _waits = waits_to_be_written(&app, &head.extensions, bytes.len())?;
    drop(bytes);
    let mut answers = app.engine.accept(caller.reach, offers).await?.into_iter();
    let mut replayed = key.is_some();
    let mut result = |read: Result<(), Problem>| -> Result<AcceptedView, Problem> {
        read?;
        let accepted = answers.next().unwrap_or(Err(Refusal::NotFound))?;
        replayed &= accepted.duplicate;
        Ok(AcceptedView::of(accepted))
    };
    let results: Vec<ItemResult> = results
        .into_iter()
        .map(|read| result(read).map_or_else(|error| ItemResult::Refused { error }, ItemResult::Accepted))
        .collect();
    let refused = results.iter().filter(|result| matches!(result, ItemResult::Refused { .. })).count();
    let accepted = results.iter().filter_map(|result| match result {
        ItemResult::Accepted(view) => Some(view.duplicate),
        ItemResult::Refused { .. } => None,
    });
    count(&app, accepted, refused as u64);
    let headers = told(standing, replayed && refused < n);
    Ok((headers, axum::Json(BatchResult { results })).into_response())
}

/// Events, newest first
#[utoipa::path(get, path = "/v1/events", tag = "events", params(EventList),
    responses((status = 200, body = EventPage)))]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    List { filter, limit, cursor }: List<EventFilter>,
) -> Result<axum::Json<EventPage>, Problem> {
    let stretch = Stretch::asked("evt", limit, cursor.as_deref())?;
    let mut found = app.find(caller.reach, |store, reach| store.event_list(reach, filter, stretch.page())).await?;
    let places = stretch.cut(&mut found, |last| last.seq);
    let (data, next_cursor) = places.fit(found.into_iter().map(EventView::of).collect());
    Ok(axum::Json(EventPage { data, next_cursor }))
}

/// One event, with its payload
#[utoipa::path(get, path = "/v1/events/{id}", tag = "events", params(("id" = shape::EventId, Path), EventOf),
    responses((status = 200, body = EventDetail)))]
async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<EventId>,
    Query(of): Query<EventOf>,
) -> Result<axum::Json<EventDetail>, Problem> {
    let mut found = app.find(caller.reach, |store, reach| store.event(reach, of.tenant_id, id.clone())).await?;
    if found.len() > 1 {
        let detail = "several tenants have an event with this ID: say whose with `?tenant_id=`";
        return Err(Problem::invalid_at("?tenant_id", detail));
    }
    let (summary, event) =
        found.pop().ok_or_else(|| Problem::not_found(format!("there is no event {id} (any more)")))?;
    Ok(axum::Json(EventDetail::of(summary, &event)))
}

impl AcceptedView {
    fn of(Accepted { id, deliveries, duplicate }: Accepted) -> Self {
        Self { id, deliveries, duplicate }
    }
}

impl EventView {
    fn of(summary: EventSummary) -> Self {
        Self {
            id: summary.id,
            tenant_id: summary.tenant_id,
            r#type: summary.event_type,
            content_type: summary.content_type,
            payload_bytes: summary.payload_bytes,
            ordering_key: summary.ordering_key,
            produced_at: summary.produced_at.map(Given),
            schema_version: summary.schema_version,
            accepted_at: When(summary.accepted_at),
            deliveries: summary.deliveries,
        }
    }
}

impl EventDetail {
    fn of(summary: EventSummary, event: &Event) -> Self {
        let is_json = event.content_type.starts_with("application/json") || event.content_type.contains("+json");
        let json = std::str::from_utf8(&event.payload).ok().filter(|_| is_json);
        let payload = json.and_then(|text| RawValue::from_string(text.to_owned()).ok());
        let payload_base64 = payload.is_none().then(|| STANDARD.encode(&event.payload));
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &event.payload);
        let payload_sha256 = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let ttl_ms = event.ttl.map(|ttl| ttl.0);
        let cloud_event = event.cloud.as_deref().map(|CloudAttributes { id, source, subject }| CloudAttributesView {
            id: Arc::clone(id),
            source: Arc::clone(source),
            subject: subject.clone(),
        });
        Self { event: EventView::of(summary), ttl_ms, cloud_event, payload_sha256, payload, payload_base64 }
    }
}

/// The trace that the request belongs to. What cannot be read is left alone, as W3C Trace Context asks.
fn trace(headers: &HeaderMap) -> Option<TraceParent> {
    headers.get("traceparent")?.to_str().ok()?.trim().parse().ok()
}

fn count(app: &App, accepted: impl Iterator<Item = bool>, refused: u64) {
    let (mut new, mut repeated) = (0, 0);
    accepted.for_each(|duplicate| if duplicate { repeated += 1 } else { new += 1 });
    app.counts.events_accepted.fetch_add(new, Ordering::Relaxed);
    app.counts.events_repeated.fetch_add(repeated, Ordering::Relaxed);
    app.counts.events_refused.fetch_add(refused, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use doorstep_core::api_key::Scope;
    use serde_json::json;

    use super::*;
    use crate::auth::world::{ADMIN, With, World};
    use crate::bodies::WRITING_BYTES_MAX;

    /// A disk that does not keep up: what one producer has waiting must not shut out the others.
    #[tokio::test]
    async fn a_producer_with_much_waiting_leaves_room_for_the_others() {
        let mut world = World::new().await;
        let app = Arc::clone(&world.app);
        let other = With::Bearer(world.key(&[Scope::Ingest], None, |_| {}).await);
        let first = With::Bearer(ADMIN.to_owned());
        let event = |n: usize| json!({ "tenant_id": world.own.tenant, "type": "a.b", "payload": "x".repeat(n) });
        let batch = json!({ "events": [event(UNCOUNTED_BYTES_MAX)] });
        let mut waiting = app.writing.begin(Some(&doorstep_core::audit::Actor::Bootstrap));
        waiting.take(WRITING_BYTES_MAX / 2 - UNCOUNTED_BYTES_MAX).unwrap();
        for (with, path, body, expected) in [
            (&first, "/v1/events", event(UNCOUNTED_BYTES_MAX), StatusCode::SERVICE_UNAVAILABLE),
            (&first, "/v1/events/batch", batch, StatusCode::SERVICE_UNAVAILABLE),
            (&first, "/v1/events", event(1), StatusCode::ACCEPTED),
            (&other, "/v1/events", event(UNCOUNTED_BYTES_MAX), StatusCode::ACCEPTED),
        ] {
            let (status, answer) = world.ask_with(with, "POST", path, body).await;
            assert_eq!(status, expected, "{path}: {answer}");
        }
        drop(waiting);
        let (status, _) = world.ask_with(&first, "POST", "/v1/events", event(UNCOUNTED_BYTES_MAX)).await;
        assert_eq!((status, app.writing.held()), (StatusCode::ACCEPTED, (0, 0)));
    }
}
