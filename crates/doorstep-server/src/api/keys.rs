//! API keys (S7).

mod change;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use doorstep_core::api_key::{ApiKey, KeyText, SECRET_LEN, Scope};
use doorstep_core::audit::{Action, Actor};
use doorstep_core::clock::Now;
use doorstep_core::id::{KeyId, TenantId};
use doorstep_core::store::{ByHand, Refusal, Write, Written};
use doorstep_core::time::Timestamp;
use http::StatusCode;
use http::header::LOCATION;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::tenants::check_name;
use crate::app::App;
use crate::ask::{Id, Query};
use crate::auth::caller::Caller;
use crate::body::Json;
use crate::etag::etag;
use crate::page::Stretch;
use crate::problem::{Code, FieldFault, Problem};
use crate::shape;
use crate::when::{Given, When};

/// Ranges that a key may be used from.
const CIDRS_MAX: usize = 50;

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get, change::change, revoke))
        .routes(routes!(change::rotate))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewKey {
    #[schema(value_type = shape::Name)]
    name: String,
    #[schema(value_type = Vec<shape::ScopeName>, min_items = 1, example = json!(["ingest"]))]
    scopes: BTreeSet<Scope>,
    /// Limits it to this tenant's things.
    #[schema(value_type = Option<shape::TenantId>)]
    tenant_id: Option<TenantId>,
    /// Where it may be used from, such as `10.0.0.0/8`; anywhere if none is given.
    #[serde(default)]
    #[schema(value_type = Vec<shape::Cidr>, max_items = 50)]
    source_cidrs: Vec<String>,
    #[serde(default)]
    expires_at: Option<Given>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeyView {
    #[schema(value_type = shape::KeyId)]
    id: KeyId,
    name: String,
    #[schema(value_type = Vec<shape::ScopeName>)]
    scopes: BTreeSet<Scope>,
    #[schema(value_type = Option<shape::TenantId>, required)]
    tenant_id: Option<TenantId>,
    source_cidrs: Vec<String>,
    created_at: When,
    #[schema(required)]
    expires_at: Option<Given>,
    /// To the minute, about.
    #[schema(required)]
    last_used_at: Option<When>,
    #[schema(required)]
    revoked_at: Option<When>,
    /// Until when the secret before the last rotation works, or worked.
    #[schema(required)]
    old_secret_until: Option<Given>,
    /// One more with every change; it is also the `ETag`.
    version: u64,
}

/// A key with what its owner is shown once.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NewKeyView {
    #[serde(flatten)]
    view: KeyView,
    /// The key itself. It is shown here and never again.
    key: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeyPage {
    data: Vec<KeyView>,
    #[schema(required)]
    next_cursor: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyList {
    #[param(value_type = shape::Limit, required = false)]
    limit: Option<usize>,
    #[param(value_type = shape::Cursor, required = false)]
    cursor: Option<String>,
}

/// Make an API key
///
/// Whoever is limited to a tenant makes keys for that tenant alone.
#[utoipa::path(post, path = "/v1/keys", tag = "keys", request_body = NewKey,
    responses((status = 201, body = NewKeyView)))]
async fn create(State(app): State<Arc<App>>, caller: Caller, Json(new): Json<NewKey>) -> Result<Response, Problem> {
    let (text, key) = new.read(&app, &caller)?;
    if let Some(max) = app.keys.limit_reached(caller.reach, app.engine.look().wall) {
        let detail = format!("{max} keys are in use at most: revoke one that is not needed any more");
        return Err(Problem::new(Code::TooManyKeys, detail));
    }
    let after = told(&key);
    let mandate = caller.mandate(&app, Action::KeyCreate, key.tenant_id, key.id, (&Value::Null, &after));
    let change = Write::PutApiKey(Box::new(key.clone()));
    // Nobody has its text yet. Put there first, it cannot come back behind a revocation that follows at once.
    app.keys.put(key.clone());
    let saved = super::save(&app, ByHand { mandate, change }).await;
    if !matches!(saved, Ok(Ok(_))) {
        app.keys.remove(key.id);
    }
    saved??;
    let (at, tag) = ([(LOCATION, format!("/v1/keys/{}", key.id))], etag(key.version));
    let body = NewKeyView { view: KeyView::of(key), key: text.reveal().to_owned() };
    Ok((StatusCode::CREATED, at, tag, axum::Json(body)).into_response())
}

/// API keys, oldest first; also those that were revoked or have expired
#[utoipa::path(get, path = "/v1/keys", tag = "keys", params(KeyList),
    responses((status = 200, body = KeyPage)))]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(asked): Query<KeyList>,
) -> Result<axum::Json<KeyPage>, Problem> {
    let stretch = Stretch::asked("key", asked.limit, asked.cursor.as_deref())?;
    let mut found =
        app.find(caller.reach, |store, reach| store.api_keys(reach, stretch.behind, stretch.and_one())).await?;
    let places = stretch.cut(&mut found, |last| last.id);
    let (data, next_cursor) = places.fit(found.into_iter().map(KeyView::of).collect());
    Ok(axum::Json(KeyPage { data, next_cursor }))
}

/// One API key
#[utoipa::path(get, path = "/v1/keys/{id}", tag = "keys", params(("id" = shape::KeyId, Path)),
    responses((status = 200, body = KeyView)))]
async fn get(State(app): State<Arc<App>>, caller: Caller, Id(id): Id<KeyId>) -> Result<Response, Problem> {
    known(&app, &caller, id).await.map(shown)
}

/// Revoke an API key, at once and for ever
#[utoipa::path(delete, path = "/v1/keys/{id}", tag = "keys", params(("id" = shape::KeyId, Path)),
    responses((status = 204)))]
async fn revoke(State(app): State<Arc<App>>, caller: Caller, Id(id): Id<KeyId>) -> Result<StatusCode, Problem> {
    let key = known(&app, &caller, id).await?;
    let mandate = caller.mandate(&app, Action::KeyRevoke, key.tenant_id, id, (&told(&key), &Value::Null));
    match super::save(&app, ByHand { mandate, change: Write::RevokeApiKey { key_id: id } }).await? {
        // It was revoked before: it stays so.
        Ok(Written::Saved) | Err(Refusal::NotFound) => {}
        Ok(_) => return Err(nothing(id)),
        Err(refusal) => return Err(refusal.into()),
    }
    app.keys.remove(id);
    Ok(StatusCode::NO_CONTENT)
}

/// IDs are in the order of the list, so the one before leads to it.
async fn known(app: &App, caller: &Caller, id: KeyId) -> Result<ApiKey, Problem> {
    let before = id.0.checked_sub(1).map(KeyId);
    let found = app.find(caller.reach, |store, reach| store.api_keys(reach, before, 1)).await?.pop();
    found.filter(|key| key.id == id).ok_or_else(|| nothing(id))
}

fn nothing(id: KeyId) -> Problem {
    Problem::not_found(format!("there is no key {id}"))
}

fn shown(key: ApiKey) -> Response {
    (etag(key.version), axum::Json(KeyView::of(key))).into_response()
}

/// What the audit log tells of it.
fn told(key: &ApiKey) -> Value {
    let cidrs: Vec<String> = key.source_cidrs.iter().map(ToString::to_string).collect();
    json!({ "name": key.name, "scopes": key.scopes, "source_cidrs": cidrs, "expires_at": key.expires_at.map(Given) })
}

/// Nobody makes a key that is good where, or when, their own is not.
fn beyond(
    app: &App,
    caller: &Caller,
    ranges: &[IpNet],
    expires_at: Option<Timestamp>,
) -> Result<Vec<FieldFault>, Problem> {
    let Actor::Key { id, .. } = &caller.actor else { return Ok(Vec::new()) };
    let revoked = || Problem::unauthorized("this key was revoked meanwhile: ask for a new one");
    let held = app.keys.get(*id).ok_or_else(revoked)?;
    let (own, mut faults) = (&held.key, Vec::new());
    if !own.bounds_source(ranges) {
        let own: Vec<String> = own.source_cidrs.iter().map(ToString::to_string).collect();
        let detail = format!("goes beyond where your own key may be used from: name ranges within {}", own.join(", "));
        faults.push(FieldFault::new("/source_cidrs", detail));
    }
    if !own.bounds_end(expires_at)
        && let Some(end) = own.expires_at
    {
        let detail = format!("goes beyond the end of your own key: name a time up to {}", Given(end));
        faults.push(FieldFault::new("/expires_at", detail));
    }
    Ok(faults)
}

impl NewKey {
    fn read(self, app: &App, caller: &Caller) -> Result<(KeyText, ApiKey), Problem> {
        let mut faults = Vec::new();
        let Now { at: now, wall } = app.engine.look();
        if let Err(fault) = check_name(&self.name) {
            faults.push(FieldFault::new("/name", fault));
        }
        if self.scopes.is_empty() {
            faults.push(FieldFault::new("/scopes", "is empty: name one or more of ingest, read, operate, admin"));
        }
        let tenant_id = self.tenant_id.or(caller.reach.tenant_id());
        if let Some(tenant_id) = tenant_id
            && app.engine.tenant(caller.reach, tenant_id).is_none()
        {
            return Err(Problem::names_nothing("/tenant_id", format!("there is no tenant {tenant_id}")));
        }
        let source_cidrs = read_ranges(&self.source_cidrs, &mut faults);
        check_end(self.expires_at, wall, &mut faults);
        faults.extend(beyond(app, caller, &source_cidrs, self.expires_at.map(|at| at.0))?);
        if !faults.is_empty() {
            return Err(Problem::invalid(faults));
        }
        let text = KeyText::new(KeyId(app.engine.new_id()), &super::chance::<SECRET_LEN>()?);
        let key = ApiKey {
            id: text.id,
            name: self.name,
            scopes: self.scopes,
            tenant_id,
            source_cidrs,
            created_at: now,
            expires_at: self.expires_at.map(|at| at.0),
            last_used_at: None,
            revoked_at: None,
            hash: text.hash(),
            old: None,
            version: 1,
        };
        Ok((text, key))
    }
}

fn read_ranges(texts: &[String], faults: &mut Vec<FieldFault>) -> Vec<IpNet> {
    if texts.len() > CIDRS_MAX {
        faults.push(FieldFault::new("/source_cidrs", format!("has at most {CIDRS_MAX} ranges")));
    }
    let mut ranges = Vec::new();
    for (at, text) in texts.iter().take(CIDRS_MAX).enumerate() {
        match text.parse::<IpNet>() {
            Ok(range) => ranges.push(range.trunc()),
            Err(_) => faults.push(FieldFault::new(
                format!("/source_cidrs/{at}"),
                "is not a range of addresses: it looks like 10.0.0.0/8, or 192.0.2.7/32 for one address",
            )),
        }
    }
    ranges
}

fn check_end(expires_at: Option<Given>, wall: Timestamp, faults: &mut Vec<FieldFault>) {
    if expires_at.is_some_and(|at| at.0 <= wall) {
        faults.push(FieldFault::new("/expires_at", "lies in the past"));
    }
}

impl KeyView {
    fn of(key: ApiKey) -> Self {
        Self {
            id: key.id,
            name: key.name,
            scopes: key.scopes,
            tenant_id: key.tenant_id,
            source_cidrs: key.source_cidrs.iter().map(ToString::to_string).collect(),
            created_at: When(key.created_at),
            expires_at: key.expires_at.map(Given),
            last_used_at: key.last_used_at.map(When),
            revoked_at: key.revoked_at.map(When),
            old_secret_until: key.old.map(|old| Given(old.until)),
            version: key.version,
        }
    }
}
