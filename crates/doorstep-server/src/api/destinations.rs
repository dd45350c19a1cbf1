//! Destinations: URLs that receive events, and what people do with them.

mod settings;
mod view;
mod certificate;
mod pace;
pub(crate) mod consent;
mod recovering;

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use doorstep_core::audit::Action;
use doorstep_core::destination::{Destination, SigningSecret};
use doorstep_core::event::Event;
use doorstep_core::id::{DestinationId, EventId, TenantId};
use doorstep_core::outcome::Class;
use doorstep_core::output::PayloadMode;
use doorstep_core::reach::Reach;
use doorstep_core::scheduler::Hand;
use doorstep_core::sender::Unsendable;
use doorstep_core::signature::SECRETS_MAX;
use doorstep_core::time::Millis;
use http::header::LOCATION;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use zeroize::Zeroizing;

use super::attempts::AttemptView;
use crate::app::App;
use crate::ask::{Id, Query};
use crate::auth::caller::Caller;
use crate::body::{Json, OptionalJson};
use crate::page::Stretch;
use crate::problem::{Code, Problem};
use crate::shape;
use crate::when::{self, When};
use settings::{DestinationBody, DestinationChange, NewDestination, NewSecret, new_link_key};
use view::{DestinationPage, DestinationView, view, views};

/// How long an old secret signs along after a rotation (S2), unless another time is asked for …
const OVERLAP_DEFAULT: Millis = Millis::from_hours(24);
/// … and at most.
const OVERLAP_MAX: Millis = Millis::from_hours(24 * 7);

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get, change, remove))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(probe))
        .routes(routes!(clear_throttle))
        .routes(routes!(test))
        .routes(routes!(rotate))
        .merge(consent::routes())
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DestinationList {
    #[param(value_type = shape::TenantId, required = false)]
    tenant_id: Option<TenantId>,
    #[param(value_type = shape::Limit, required = false)]
    limit: Option<usize>,
    #[param(value_type = shape::Cursor, required = false)]
    cursor: Option<String>,
}

/// A destination with what its owner is shown once.
#[derive(Serialize, ToSchema)]
pub(crate) struct NewDestinationView {
    #[serde(flatten)]
    destination: DestinationView,
    /// Verifies this destination's signatures. It is shown here and never again.
    #[schema(value_type = String)]
    secret: Zeroizing<String>,
}

#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rotation {
    /// The new secret, of the same kind as the old one; made if it is not given.
    #[schema(value_type = Option<shape::SigningSecret>)]
    secret: Option<Zeroizing<String>>,
    /// How long the old one signs along. 24 hours unless given.
    #[schema(maximum = 604_800_000)]
    overlap_ms: Option<u64>,
    /// Instead: a new key for the links to payloads and to consent. Those that were sent end at once; the signing secret stays.
    links: Option<bool>,
}

/// What the API says of it: a new secret, or a new key for links.
#[derive(Debug)]
enum RotationBody {}

impl PartialSchema for RotationBody {
    fn schema() -> RefOr<Schema> {
        shape::with_rule(
            Rotation::schema(),
            [
                json!({"required": ["links"], "properties": {"links": {"const": true}}}),
                json!({"properties": {"secret": {"type": "null"}, "overlap_ms": {"type": "null"}}}),
                json!({}),
            ],
        )
    }
}

impl ToSchema for RotationBody {
    fn name() -> std::borrow::Cow<'static, str> {
        "Rotation".into()
    }

    fn schemas(all: &mut Vec<(String, RefOr<Schema>)>) {
        Rotation::schemas(all);
    }
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Rotated {
    /// The new secret. It is shown here and never again.
    #[schema(value_type = String)]
    secret: Zeroizing<String>,
    /// The old ones sign along until then.
    old_until: When,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClearThrottle {
    /// Also forget the learned pace: until the receiver refuses again, it is sent to at `rate_limit`. It is kept unless asked for.
    forget_learned: Option<bool>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TestEvent {
    /// `doorstep.test` unless given.
    #[schema(value_type = Option<shape::EventType>)]
    r#type: Option<doorstep_core::route::EventType>,
    /// Any JSON value.
    #[schema(value_type = Value, required = false)]
    payload: Option<Box<serde_json::value::RawValue>>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TestResult {
    /// Whether the receiver took it.
    success: bool,
    #[schema(value_type = shape::ClassName)]
    class: Class,
    attempt: AttemptView,
}

/// Make a destination
#[utoipa::path(post, path = "/v1/destinations", tag = "destinations", request_body = NewDestination,
    responses((status = 201, body = NewDestinationView)))]
async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(mut new): Json<DestinationBody>,
) -> Result<Response, Problem> {
    let tenant_id = new.tenant_id.ok_or_else(|| Problem::invalid_at("/tenant_id", "is missing: say whose it is"))?;
    if app.engine.tenant(caller.reach, tenant_id).is_none() {
        return Err(Problem::names_nothing("/tenant_id", format!("there is no tenant {tenant_id}")));
    }
    if app.limits.require_verification {
        new.require_verification(None, app.engine.rules())?;
    }
    let (mut settings, secrets, secret) = new.read(app.engine.rules(), app.engine.defaults())?;
    app.engine.resolve(tenant_id, &mut settings);
    let now = app.engine.now();
    let shown = secret.verifying_key().reveal();
    let destination = Destination {
        id: DestinationId(app.engine.new_id()),
        tenant_id,
        settings,
        secrets,
        created_at: now,
        updated_at: now,
        version: 1,
        consent: None,
    };
    check(&app, &destination)?;
    check_links(&app, None, &destination)?;
    let changes = (&Value::Null, &told(&destination));
    let mandate = caller.mandate(&app, Action::DestinationCreate, Some(tenant_id), destination.id, changes);
    let destination = app.engine.put_destination(mandate, destination).await??;
    let at = [(LOCATION, format!("/v1/destinations/{}", destination.id))];
    let body = NewDestinationView { destination: view(&app, caller.reach, &destination).await?, secret: shown };
    Ok((StatusCode::CREATED, etag(&destination), at, axum::Json(body)).into_response())
}

/// Destinations, oldest first
#[utoipa::path(get, path = "/v1/destinations", tag = "destinations", params(DestinationList),
    responses((status = 200, body = DestinationPage)))]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(asked): Query<DestinationList>,
) -> Result<axum::Json<DestinationPage>, Problem> {
    let stretch = Stretch::asked("dst", asked.limit, asked.cursor.as_deref())?;
    let mut found = app.engine.destinations(caller.reach, asked.tenant_id, stretch.behind, stretch.and_one());
    let places = stretch.cut(&mut found, |last| last.id);
    let (data, next_cursor) = places.fit(views(&app, caller.reach, &found).await?);
    Ok(axum::Json(DestinationPage { data, next_cursor }))
}

/// One destination, with its state at a glance
#[utoipa::path(get, path = "/v1/destinations/{id}", tag = "destinations", params(("id" = shape::DestinationId, Path)),
    responses((status = 200, body = DestinationView)))]
async fn get(State(app): State<Arc<App>>, caller: Caller, Id(id): Id<DestinationId>) -> Result<Response, Problem> {
    shown(&app, caller.reach, &*known(&app, &caller, id)?).await
}

/// Change a destination
#[utoipa::path(patch, path = "/v1/destinations/{id}", tag = "destinations",
    params(("id" = shape::DestinationId, Path), ("if-match" = Option<shape::IfMatch>, Header)), request_body = DestinationChange,
    responses((status = 200, body = DestinationView)))]
async fn change(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<DestinationId>,
    headers: HeaderMap,
    Json(mut change): Json<DestinationBody>,
) -> Result<Response, Problem> {
    let before = known(&app, &caller, id)?;
    check_match(&headers, &before)?;
    if app.limits.require_verification {
        change.require_verification(Some(&before.settings), app.engine.rules())?;
    }
    let mut changed = Destination::clone(&before);
    change.apply(&mut changed, app.engine.rules(), app.engine.defaults())?;
    app.engine.resolve(changed.tenant_id, &mut changed.settings);
    check(&app, &changed)?;
    check_links(&app, Some(&before), &changed)?;
    let changed = put(&app, &caller, Action::DestinationUpdate, &before, changed).await?;
    shown(&app, caller.reach, &changed).await
}

/// Delete a destination and everything that is queued for it
#[utoipa::path(delete, path = "/v1/destinations/{id}", tag = "destinations",
    params(("id" = shape::DestinationId, Path), ("if-match" = Option<shape::IfMatch>, Header)),
    responses((status = 204)))]
async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<DestinationId>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let before = known(&app, &caller, id)?;
    check_match(&headers, &before)?;
    let changes = (&told(&before), &Value::Null);
    let mandate = caller.mandate(&app, Action::DestinationDelete, Some(before.tenant_id), id, changes);
    app.engine.remove_destination(mandate, id).await??;
    Ok(StatusCode::NO_CONTENT)
}

/// Hold everything for this destination
#[utoipa::path(post, path = "/v1/destinations/{id}/pause", tag = "destinations", params(("id" = shape::DestinationId, Path)),
    responses((status = 200, body = DestinationView)))]
async fn pause(State(app): State<Arc<App>>, caller: Caller, Id(id): Id<DestinationId>) -> Result<Response, Problem> {
    handle(&app, &caller, id, Hand::Pause).await
}

/// End a pause or a suspension; what has queued up drains slowly at first
#[utoipa::path(post, path = "/v1/destinations/{id}/resume", tag = "destinations", params(("id" = shape::DestinationId, Path)),
    responses((status = 200, body = DestinationView)))]
async fn resume(State(app): State<Arc<App>>, caller: Caller, Id(id): Id<DestinationId>) -> Result<Response, Problem> {
    handle(&app, &caller, id, Hand::Resume).await
}

/// Let one probe through an open breaker now
#[utoipa::path(post, path = "/v1/destinations/{id}/probe", tag = "destinations", params(("id" = shape::DestinationId, Path)),
    responses((status = 200, body = DestinationView)))]
async fn probe(State(app): State<Arc<App>>, caller: Caller, Id(id): Id<DestinationId>) -> Result<Response, Problem> {
    handle(&app, &caller, id, Hand::Probe).await
}

/// End a throttle now, and forget how many there were
///
/// With `forget_learned`, also the pace that the receiver has taught.
#[utoipa::path(post, path = "/v1/destinations/{id}/clear-throttle", tag = "destinations", params(("id" = shape::DestinationId, Path)),
    request_body = Option<ClearThrottle>,
    responses((status = 200, body = DestinationView)))]
async fn clear_throttle(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<DestinationId>,
    OptionalJson(asked): OptionalJson<ClearThrottle>,
) -> Result<Response, Problem> {
    let forget_learned = asked.forget_learned.unwrap_or_default();
    handle(&app, &caller, id, Hand::ClearThrottle { forget_learned }).await
}

/// Send a test event now, and see what comes back
///
/// It goes the way of every request, signed and to a vetted address, but past the gate, and no record is kept.
#[utoipa::path(post, path = "/v1/destinations/{id}/test", tag = "destinations", params(("id" = shape::DestinationId, Path)),
    request_body = Option<TestEvent>,
    responses((status = 200, body = TestResult)))]
async fn test(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<DestinationId>,
    OptionalJson(asked): OptionalJson<TestEvent>,
) -> Result<axum::Json<TestResult>, Problem> {
    let destination = known(&app, &caller, id)?;
    let payload = match asked.payload {
        Some(payload) => Bytes::from(Box::<str>::from(payload).into_string()),
        None => Bytes::from_static(br#"{"test":true,"message":"Hello from Doorstep"}"#),
    };
    let event_type = match asked.r#type {
        Some(event_type) => event_type,
        None => "doorstep.test".parse().map_err(|fault| Problem::invalid_at("/type", fault))?,
    };
    let now = app.engine.now();
    let event = Event {
        id: EventId::generated(app.engine.new_id()),
        tenant_id: destination.tenant_id,
        event_type,
        content_type: "application/json".into(),
        payload,
        ordering_key: None,
        produced_at: None,
        schema_version: None,
        headers: Vec::new(),
        ttl: None,
        accepted_at: now,
        wall_offset_ms: when::offset(now),
        trace: None,
        cloud: None,
    };
    let nothing = (&Value::Null, &Value::Null);
    let mandate = caller.mandate(&app, Action::DestinationTest, Some(destination.tenant_id), id, nothing);
    let trial = app.engine.try_out(mandate, id, event).await?.ok_or_else(|| no_such(id))?;
    let class = trial.outcome.class();
    let success = class == Class::Success;
    Ok(axum::Json(TestResult { success, class, attempt: AttemptView::of(trial.attempt) }))
}

/// Sign with a new secret; the old one signs along for a while
///
/// With `links`, the links that were sent end instead, and nothing has to be shown.
#[utoipa::path(post, path = "/v1/destinations/{id}/secrets/rotate", tag = "destinations", params(("id" = shape::DestinationId, Path)),
    request_body = Option<RotationBody>,
    responses((status = 200, body = Rotated), (status = 204, description = "The links have a new key.")))]
async fn rotate(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<DestinationId>,
    OptionalJson(asked): OptionalJson<Rotation>,
) -> Result<Response, Problem> {
    if asked.links == Some(true) {
        return rotate_links(&app, &caller, id, &asked).await.map(IntoResponse::into_response);
    }
    let overlap = Millis(asked.overlap_ms.unwrap_or(OVERLAP_DEFAULT.0));
    if overlap > OVERLAP_MAX {
        return Err(Problem::invalid_at("/overlap_ms", format!("must be at most {}, a week", OVERLAP_MAX.0)));
    }
    let before = known(&app, &caller, id)?;
    let secret = NewSecret::like(&before.secrets).read(asked.secret)?;
    let now = app.engine.now();
    let old_until = now + overlap;
    let mut changed = Destination::clone(&before);
    let signing = &mut changed.secrets.signing;
    signing.retain(|old| old.retires_at.is_none_or(|at| at > now));
    for old in signing.iter_mut() {
        old.retires_at = Some(old.retires_at.map_or(old_until, |at| at.min(old_until)));
    }
    signing.retain(|old| old.retires_at.is_none_or(|at| at > now));
    if signing.len() + 1 > SECRETS_MAX {
        let detail = format!("{SECRETS_MAX} secrets are in use at most: wait until an old one has retired");
        return Err(Problem::new(Code::TooManySecrets, detail));
    }
    signing.insert(0, SigningSecret { text: secret.reveal(), retires_at: None });
    put(&app, &caller, Action::DestinationRotateSecret, &before, changed).await?;
    let rotated = Rotated { secret: secret.verifying_key().reveal(), old_until: When(old_until) };
    Ok(axum::Json(rotated).into_response())
}

async fn rotate_links(app: &App, caller: &Caller, id: DestinationId, asked: &Rotation) -> Result<StatusCode, Problem> {
    for (pointer, given) in [("/secret", asked.secret.is_some()), ("/overlap_ms", asked.overlap_ms.is_some())] {
        if given {
            return Err(Problem::invalid_at(pointer, "stands beside links: change one after the other"));
        }
    }
    let before = known(app, caller, id)?;
    if before.secrets.link_key.is_none() {
        let detail = "it has never been thin, nor asked for consent: there are no links that could end";
        return Err(Problem::new(Code::NoLinks, detail));
    }
    let mut changed = Destination::clone(&before);
    changed.secrets.link_key = Some(new_link_key().map_err(|wrong| Problem::invalid_at("", wrong))?);
    put(app, caller, Action::DestinationRotateSecret, &before, changed).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn handle(app: &App, caller: &Caller, id: DestinationId, hand: Hand) -> Result<Response, Problem> {
    let destination = known(app, caller, id)?;
    let action = match hand {
        Hand::Pause => Action::DestinationPause,
        Hand::Resume => Action::DestinationResume,
        Hand::Probe => Action::DestinationProbe,
        Hand::ClearThrottle { .. } => Action::DestinationClearThrottle,
    };
    let asked = match hand {
        Hand::ClearThrottle { forget_learned: true } => json!({ "forget_learned": true }),
        Hand::ClearThrottle { forget_learned: false } | Hand::Pause | Hand::Resume | Hand::Probe => Value::Null,
    };
    let mandate = caller.mandate(app, action, Some(destination.tenant_id), id, (&Value::Null, &asked));
    app.engine.handle(mandate, id, hand).await?;
    shown(app, caller.reach, &destination).await
}

/// What can only be told where requests are made: whether a certificate fits its key, for one.
fn check(app: &App, destination: &Destination) -> Result<(), Problem> {
    let unsendable = |fault: Unsendable| Problem::invalid_at(format!("/{}", fault.field), fault.detail);
    app.engine.check(destination).map_err(unsendable)
}

/// A destination that is thin already may be changed in everything else.
fn check_links(app: &App, before: Option<&Destination>, destination: &Destination) -> Result<(), Problem> {
    let is_thin = |destination: &Destination| destination.settings.payload_mode == PayloadMode::Thin;
    if !app.place.links_lead_nowhere || !is_thin(destination) || before.is_some_and(is_thin) {
        return Ok(());
    }
    let detail = "the links would lead nowhere: this server listens on every address and does not know under which URL \
                  receivers reach it; set public_url in its configuration (DOORSTEP_PUBLIC_URL)";
    Err(Problem::invalid_at("/payload_mode", detail))
}

async fn put(
    app: &App,
    caller: &Caller,
    action: Action,
    before: &Destination,
    mut destination: Destination,
) -> Result<Arc<Destination>, Problem> {
    destination.version += 1;
    destination.updated_at = app.engine.now();
    let mut after = told(&destination);
    if before.secrets != destination.secrets {
        after["secrets"] = "*** (changed)".into();
    }
    let mandate = caller.mandate(app, action, Some(before.tenant_id), before.id, (&told(before), &after));
    Ok(app.engine.put_destination(mandate, destination).await??)
}

/// What the audit log tells of it: everything that may be shown, and the names of what may not.
fn told(destination: &Destination) -> Value {
    let mut told = serde_json::to_value(&destination.settings).unwrap_or_default();
    let headers = destination.secrets.headers.iter().map(|(name, _)| (name.clone(), Value::from("***")));
    told["headers"] = Value::Object(headers.collect());
    told["secrets"] = "***".into();
    told
}

async fn shown(app: &App, reach: Reach, destination: &Destination) -> Result<Response, Problem> {
    Ok((etag(destination), axum::Json(view(app, reach, destination).await?)).into_response())
}

pub(crate) fn known(app: &App, caller: &Caller, id: DestinationId) -> Result<Arc<Destination>, Problem> {
    app.engine.destination(caller.reach, id).ok_or_else(|| no_such(id))
}

fn no_such(id: DestinationId) -> Problem {
    Problem::not_found(format!("there is no destination {id}"))
}

fn etag(destination: &Destination) -> [(http::HeaderName, String); 1] {
    crate::etag::etag(destination.version)
}

fn check_match(headers: &HeaderMap, destination: &Destination) -> Result<(), Problem> {
    crate::etag::check_match(headers, destination.version)
}
