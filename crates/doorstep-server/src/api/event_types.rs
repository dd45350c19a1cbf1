//! Event types: what they are for, and what their payloads look like (I4).

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use doorstep_core::audit::{Action, Mandate};
use doorstep_core::engine::TypeRefusal;
use doorstep_core::event_type::{Misfit, RegisteredType, pointer_step};
use doorstep_core::route::EventType;
use doorstep_core::store::Refusal;
use doorstep_core::time::Millis;
use http::header::LOCATION;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::events::{SCHEMA_VERSION_CHARS_MAX, TTL_MAX, TTL_MIN};
use crate::app::App;
use crate::ask::{Id, Query};
use crate::auth::caller::Caller;
use crate::body::Json;
use crate::etag::{check_match, etag};
use crate::field::Field;
use crate::page::Stretch;
use crate::problem::{Code, FieldFault, Problem};
use crate::shape;
use crate::when::When;

const DESCRIPTION_CHARS_MAX: usize = 2_000;
const EXAMPLE_BYTES_MAX: usize = 64 * 1024;

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(get, change, remove))
}

/// A new type, or what is to change of one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventTypeBody {
    /// Needed for a new one; it does not change.
    #[schema(value_type = Option<shape::EventType>)]
    name: Option<EventType>,
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 2000)]
    description: Field<String>,
    /// JSON Schemas by their version. In a change, those that are added: one that is there stays as it is.
    #[serde(default)]
    #[schema(value_type = shape::JsonSchemas, required = false)]
    schemas: BTreeMap<String, Value>,
    /// Counts for events that name no `schema_version`: the one that was added last, unless given.
    #[schema(value_type = Option<shape::SchemaVersion>)]
    default_version: Option<String>,
    /// A payload as it might be.
    #[serde(default)]
    #[schema(value_type = Value, required = false)]
    example: Field<Value>,
    /// For events that bring none of their own.
    #[serde(default)]
    #[schema(value_type = Option<u64>, minimum = 1000, maximum = 7_776_000_000_u64)]
    ttl_ms: Field<u64>,
    /// No more events of it are taken.
    archived: Option<bool>,
}

/// The body of a new one.
#[derive(Debug)]
pub(crate) enum NewEventType {}

impl PartialSchema for NewEventType {
    fn schema() -> RefOr<Schema> {
        shape::needing(EventTypeBody::schema(), &["name"])
    }
}

impl ToSchema for NewEventType {
    fn schemas(all: &mut Vec<(String, RefOr<Schema>)>) {
        EventTypeBody::schemas(all);
    }
}

/// The body of a change.
#[derive(Debug)]
pub(crate) enum EventTypeChange {}

impl PartialSchema for EventTypeChange {
    fn schema() -> RefOr<Schema> {
        shape::without(EventTypeBody::schema(), &["name"])
    }
}

impl ToSchema for EventTypeChange {
    fn schemas(all: &mut Vec<(String, RefOr<Schema>)>) {
        EventTypeBody::schemas(all);
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventTypeView {
    #[schema(value_type = shape::EventType)]
    name: EventType,
    #[schema(required)]
    description: Option<String>,
    #[schema(value_type = shape::JsonSchemas)]
    schemas: BTreeMap<String, Value>,
    #[schema(value_type = Option<shape::SchemaVersion>, required)]
    default_version: Option<String>,
    #[schema(value_type = Value, required)]
    example: Option<Value>,
    #[schema(required)]
    ttl_ms: Option<u64>,
    archived: bool,
    created_at: When,
    updated_at: When,
    /// One more with every change; it is also the `ETag`.
    version: u64,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventTypePage {
    data: Vec<EventTypeView>,
    #[schema(required)]
    next_cursor: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventTypeList {
    #[param(value_type = shape::Limit, required = false)]
    limit: Option<usize>,
    #[param(value_type = shape::Cursor, required = false)]
    cursor: Option<String>,
}

/// Register an event type
#[utoipa::path(post, path = "/v1/event-types", tag = "event types", request_body = NewEventType,
    responses((status = 201, body = EventTypeView)))]
async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(new): Json<EventTypeBody>,
) -> Result<Response, Problem> {
    let name =
        new.name.clone().ok_or_else(|| Problem::invalid_at("/name", "is missing: name it like `invoice.paid`"))?;
    if app.engine.event_type(&name).is_some() {
        return Err(is_there(&name));
    }
    let now = app.engine.now();
    let mut registered = RegisteredType {
        name,
        description: None,
        schemas: BTreeMap::new(),
        default_version: None,
        example: None,
        ttl: None,
        archived: false,
        created_at: now,
        updated_at: now,
        version: 1,
    };
    new.apply(&mut registered)?;
    let mandate = mandate(&app, &caller, Action::EventTypeCreate, None, Some(&registered));
    let registered = put(&app, mandate, registered).await?;
    let at = [(LOCATION, format!("/v1/event-types/{}", registered.name))];
    let body = axum::Json(EventTypeView::of(&registered));
    Ok((StatusCode::CREATED, etag(registered.version), at, body).into_response())
}

/// Event types, by their names
#[utoipa::path(get, path = "/v1/event-types", tag = "event types", params(EventTypeList),
    responses((status = 200, body = EventTypePage)))]
async fn list(
    State(app): State<Arc<App>>,
    Query(asked): Query<EventTypeList>,
) -> Result<axum::Json<EventTypePage>, Problem> {
    let stretch = Stretch::<EventType>::asked("typ", asked.limit, asked.cursor.as_deref())?;
    let mut found = app.engine.event_types(stretch.behind.as_ref(), stretch.and_one());
    let places = stretch.cut(&mut found, |last| last.name.clone());
    let (data, next_cursor) = places.fit(found.iter().map(|one| EventTypeView::of(one)).collect());
    Ok(axum::Json(EventTypePage { data, next_cursor }))
}

/// One event type
#[utoipa::path(get, path = "/v1/event-types/{name}", tag = "event types", params(("name" = shape::EventType, Path)),
    responses((status = 200, body = EventTypeView)))]
async fn get(State(app): State<Arc<App>>, Id(name): Id<EventType>) -> Result<Response, Problem> {
    Ok(shown(&*known(&app, &name)?))
}

/// Change an event type
///
/// Versions of its schema are added, never changed or taken away: events that were taken by one may be on their way still.
#[utoipa::path(patch, path = "/v1/event-types/{name}", tag = "event types",
    params(("name" = shape::EventType, Path), ("if-match" = Option<shape::IfMatch>, Header)), request_body = EventTypeChange,
    responses((status = 200, body = EventTypeView)))]
async fn change(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(name): Id<EventType>,
    headers: HeaderMap,
    Json(change): Json<EventTypeBody>,
) -> Result<Response, Problem> {
    let before = known(&app, &name)?;
    let mut registered = RegisteredType::clone(&before);
    check_match(&headers, registered.version)?;
    change.apply(&mut registered)?;
    registered.version += 1;
    registered.updated_at = app.engine.now();
    let mandate = mandate(&app, &caller, Action::EventTypeUpdate, Some(&before), Some(&registered));
    Ok(shown(&*put(&app, mandate, registered).await?))
}

/// Remove an event type
///
/// It has to be archived first. Events that were taken stay as they are.
#[utoipa::path(delete, path = "/v1/event-types/{name}", tag = "event types",
    params(("name" = shape::EventType, Path), ("if-match" = Option<shape::IfMatch>, Header)),
    responses((status = 204)))]
async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(name): Id<EventType>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let registered = known(&app, &name)?;
    check_match(&headers, registered.version)?;
    if !registered.archived {
        let detail = format!("`{name}` is in use: archive it first, with `{{\"archived\": true}}`");
        return Err(Problem::new(Code::NotArchived, detail));
    }
    let mandate = mandate(&app, &caller, Action::EventTypeDelete, Some(&registered), None);
    app.engine.remove_event_type(mandate, name).await??;
    Ok(StatusCode::NO_CONTENT)
}

impl EventTypeBody {
    fn apply(self, registered: &mut RegisteredType) -> Result<(), Problem> {
        let mut faults = Vec::new();
        let mut fault = |pointer: String, detail: String| faults.push(FieldFault::new(pointer, detail));
        if self.name.is_some_and(|name| name != registered.name) {
            fault("/name".to_owned(), "does not change: register another type".to_owned());
        }
        match self.description {
            Field::Absent => {}
            Field::Null => registered.description = None,
            Field::Given(text) if text.chars().count() <= DESCRIPTION_CHARS_MAX => registered.description = Some(text),
            Field::Given(_) => {
                fault("/description".to_owned(), format!("has at most {DESCRIPTION_CHARS_MAX} characters"));
            }
        }
        match self.example {
            Field::Absent => {}
            Field::Null => registered.example = None,
            Field::Given(example) if example.to_string().len() <= EXAMPLE_BYTES_MAX => {
                registered.example = Some(example);
            }
            Field::Given(_) => fault("/example".to_owned(), format!("has at most {EXAMPLE_BYTES_MAX} bytes")),
        }
        match self.ttl_ms {
            Field::Absent => {}
            Field::Null => registered.ttl = None,
            Field::Given(ttl) if (TTL_MIN..=TTL_MAX).contains(&ttl) => registered.ttl = Some(Millis(ttl)),
            Field::Given(ttl) => {
                fault("/ttl_ms".to_owned(), format!("must be between {TTL_MIN} and {TTL_MAX}, but is {ttl}"));
            }
        }
        registered.archived = self.archived.unwrap_or(registered.archived);
        let mut added = Vec::new();
        for (version, schema) in self.schemas {
            let at = format!("/schemas/{}", pointer_step(&version));
            if !(1..=SCHEMA_VERSION_CHARS_MAX).contains(&version.chars().count())
                || version.chars().any(char::is_control)
            {
                fault(at, format!("a version has 1 to {SCHEMA_VERSION_CHARS_MAX} characters, such as 1 or 2026-11"));
            } else if registered.schemas.get(&version).is_some_and(|before| *before != schema) {
                fault(at, "is there already and stays as it is: add another version".to_owned());
            } else if registered.schemas.insert(version.clone(), schema).is_none() {
                added.push(version);
            }
        }
        match (self.default_version, added.as_slice()) {
            (Some(version), _) if registered.schemas.contains_key(&version) => {
                registered.default_version = Some(version);
            }
            (Some(version), _) => fault("/default_version".to_owned(), format!("there is no version {version:?}")),
            (None, []) => {}
            (None, [one]) => registered.default_version = Some(one.clone()),
            (None, [_, ..]) => fault(
                "/default_version".to_owned(),
                "is missing: say which of these versions counts for events that name none".to_owned(),
            ),
        }
        if faults.is_empty() { Ok(()) } else { Err(Problem::invalid(faults)) }
    }
}

/// What the audit log tells of a change.
fn mandate(
    app: &App,
    caller: &Caller,
    action: Action,
    before: Option<&RegisteredType>,
    after: Option<&RegisteredType>,
) -> Mandate {
    let told = |one: Option<&RegisteredType>| {
        one.and_then(|one| serde_json::to_value(EventTypeView::of(one)).ok()).unwrap_or_default()
    };
    let name = before.or(after).map_or("", |one| one.name.as_str());
    caller.mandate(app, action, None, name, (&told(before), &told(after)))
}

async fn put(app: &App, mandate: Mandate, registered: RegisteredType) -> Result<Arc<RegisteredType>, Problem> {
    let (name, is_new) = (registered.name.clone(), registered.version == 1);
    app.engine.put_event_type(mandate, registered).await?.map_err(|refusal| match refusal {
        TypeRefusal::Misfits(misfits) => Problem::invalid(misfits.into_iter().map(FieldFault::from).collect()),
        TypeRefusal::Refused(Refusal::VersionDiffers) if is_new => is_there(&name),
        TypeRefusal::Refused(refusal) => refusal.into(),
    })
}

impl From<Misfit> for FieldFault {
    fn from(misfit: Misfit) -> Self {
        Self::new(misfit.pointer, misfit.detail)
    }
}

fn is_there(name: &EventType) -> Problem {
    Problem::new(Code::AlreadyExists, format!("`{name}` is registered already: change it with PATCH"))
}

fn known(app: &App, name: &EventType) -> Result<Arc<RegisteredType>, Problem> {
    app.engine.event_type(name).ok_or_else(|| Problem::not_found(format!("no event type is registered as `{name}`")))
}

fn shown(registered: &RegisteredType) -> Response {
    (etag(registered.version), axum::Json(EventTypeView::of(registered))).into_response()
}

impl EventTypeView {
    fn of(registered: &RegisteredType) -> Self {
        let RegisteredType { name, description, schemas, default_version, example, ttl, archived, version, .. } =
            registered.clone();
        Self {
            name,
            description,
            schemas,
            default_version,
            example,
            ttl_ms: ttl.map(|ttl| ttl.0),
            archived,
            created_at: When(registered.created_at),
            updated_at: When(registered.updated_at),
            version,
        }
    }
}
