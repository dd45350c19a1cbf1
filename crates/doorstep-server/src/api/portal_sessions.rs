//! Portal sessions: a tenant's person comes in, for a short time (S7, P3).
//!
//! The operator's back end asks for a session and sends the browser to its address. There the code, which stands behind the `#` and so
//! in no log, is exchanged once for a cookie.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use doorstep_core::api_key::KeyHash;
use doorstep_core::audit::{Action, Actor};
use doorstep_core::id::{SessionId, TenantId};
use doorstep_core::portal::{PortalKey, PortalSession, SECRET_LEN, secret_text, session_of};
use doorstep_core::reach::Reach;
use doorstep_core::store::{ByHand, Write};
use doorstep_core::time::Millis;
use http::header::SET_COOKIE;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::ask::Query;
use crate::auth::caller::Caller;
use crate::auth::cookie;
use crate::auth::slowed_down;
use crate::auth::source::Source;
use crate::body::Json;
use crate::problem::{Code, Problem};
use crate::shape;
use crate::when::When;

/// How long a session lasts, from when it was asked for.
const LASTS_MIN: Millis = Millis::from_mins(1);
const LASTS_MAX: Millis = Millis::from_hours(1);
/// A code that was not exchanged by then is worth nothing.
const CODE_LASTS: Millis = Millis::from_mins(5);

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(create, end_all)).routes(routes!(show, leave))
}

/// The way in: whoever comes has a code and nothing else.
pub(crate) fn open_routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(enter))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSession {
    #[schema(value_type = shape::TenantId)]
    tenant_id: TenantId,
    /// How long it lasts. An hour unless given, and at most.
    #[schema(minimum = 60_000, maximum = 3_600_000)]
    expires_in_ms: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NewSessionView {
    #[schema(value_type = shape::SessionId)]
    id: SessionId,
    /// Where to send the browser: a path behind this server's address, or a whole URL where `public_url` is set.
    #[schema(example = "https://hooks.example.com/portal/#code=pss_…")]
    url: String,
    /// Good once, within five minutes. It is shown here and never again.
    code: String,
    expires_at: When,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    #[schema(value_type = shape::PortalCode)]
    code: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionView {
    #[schema(value_type = shape::SessionId)]
    id: SessionId,
    #[schema(value_type = shape::TenantId)]
    tenant_id: TenantId,
    expires_at: When,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionsOf {
    #[param(value_type = shape::TenantId)]
    tenant_id: TenantId,
}

/// Ask for a portal session
#[utoipa::path(post, path = "/v1/portal-sessions", tag = "portal", request_body = NewSession,
    responses((status = 201, body = NewSessionView)))]
async fn create(State(app): State<Arc<App>>, caller: Caller, Json(new): Json<NewSession>) -> Result<Response, Problem> {
    let tenant_id = new.tenant_id;
    if app.engine.tenant(caller.reach, tenant_id).is_none() {
        return Err(Problem::names_nothing("/tenant_id", format!("there is no tenant {tenant_id}")));
    }
    let lasts = Millis(new.expires_in_ms.unwrap_or(LASTS_MAX.0));
    if !(LASTS_MIN..=LASTS_MAX).contains(&lasts) {
        let detail = format!("must be between {} and {}, but is {}", LASTS_MIN.0, LASTS_MAX.0, lasts.0);
        return Err(Problem::invalid_at("/expires_in_ms", detail));
    }
    let now = app.engine.now();
    if let Some(max) = app.sessions.limit_reached(caller.reach, now) {
        let detail = format!("{max} portal sessions are open at most: some are over within the hour");
        return Err(Problem::new(Code::TooManyPortalSessions, detail));
    }
    let id = SessionId(app.engine.new_id());
    let code = secret_text(id, &super::chance::<SECRET_LEN>()?);
    let expires_at = now + lasts;
    let key = PortalKey::Code { hash: KeyHash::of(&code), until: (now + CODE_LASTS).min(expires_at) };
    let session = PortalSession { id, tenant_id, key, created_at: now, expires_at };
    let after = json!({ "expires_at": When(expires_at) });
    let mandate = caller.mandate(&app, Action::PortalSessionCreate, Some(tenant_id), id, (&Value::Null, &after));
    app.sessions.put(session.clone());
    let saved = super::save(&app, ByHand { mandate, change: Write::PutPortalSession(Box::new(session)) }).await;
    if !matches!(saved, Ok(Ok(_))) {
        app.sessions.remove(id);
    }
    saved??;
    let url = format!("{}/portal/#code={code}", app.place.public_url.as_deref().unwrap_or_default());
    let body = NewSessionView { id, url, code, expires_at: When(expires_at) };
    Ok((StatusCode::CREATED, axum::Json(body)).into_response())
}

/// End all portal sessions of a tenant, at once
#[utoipa::path(delete, path = "/v1/portal-sessions", tag = "portal", params(SessionsOf),
    responses((status = 204)))]
async fn end_all(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(SessionsOf { tenant_id }): Query<SessionsOf>,
) -> Result<StatusCode, Problem> {
    super::tenants::known(&app, &caller, tenant_id)?;
    let nothing = (&Value::Null, &Value::Null);
    let mandate = caller.mandate(&app, Action::PortalSessionEndAll, Some(tenant_id), tenant_id, nothing);
    super::save(&app, ByHand { mandate, change: Write::EndPortalSessions { tenant_id } }).await??;
    app.sessions.remove_all(tenant_id);
    Ok(StatusCode::NO_CONTENT)
}

/// Exchange a code for a session's cookie
///
/// The cookie opens this tenant's things under `/v1`, to look at and to operate, until the session is over.
#[utoipa::path(post, path = "/portal/session", tag = "portal", request_body = Entry, security(()),
    responses((status = 200, body = SessionView)))]
async fn enter(
    State(app): State<Arc<App>>,
    source: Option<Extension<Source>>,
    headers: HeaderMap,
    Json(entry): Json<Entry>,
) -> Result<Response, Problem> {
    if cookie::is_from_elsewhere(&headers) {
        return Err(Problem::new(Code::CrossSite, "a portal session is opened from its own pages alone"));
    }
    let from = source.and_then(|source| source.0.0);
    let named = session_of(&entry.code);
    let wrong = || {
        let detail = "this code is not good (any more): it works once, within five minutes. Open the portal again";
        let problem = Problem::unauthorized(detail);
        app.strangers.wrong_code(named, from, &problem);
        slowed_down(&app, from, problem)
    };
    let id = named.ok_or_else(wrong)?;
    let session = app.sessions.get(id).ok_or_else(wrong)?;
    let token = secret_text(id, &super::chance::<SECRET_LEN>()?);
    let (code, hash, now) = (KeyHash::of(&entry.code), KeyHash::of(&token), app.engine.now());
    let opened = session.opened(&code, hash.clone(), now).ok_or_else(wrong)?;
    let tenant_id = session.tenant_id;
    let (actor, reach) = (Actor::Portal { id }, Reach::Tenant(tenant_id));
    let caller = Caller { actor, scopes: [].into(), reach, from, shown: None };
    let nothing = (&Value::Null, &Value::Null);
    let mandate = caller.mandate(&app, Action::PortalSessionOpen, Some(tenant_id), id, nothing);
    // The store decides, in one step, who came first with this code.
    let change = Write::OpenPortalSession { session_id: id, code, token: hash };
    super::save(&app, ByHand { mandate, change }).await?.map_err(|_| wrong())?;
    let expires_at = opened.expires_at;
    app.sessions.replace(opened);
    let lasts = expires_at.since(now).0 / 1_000;
    let cookie = cookie::set(&token, lasts, cookie::is_secure(&headers));
    let body = SessionView { id, tenant_id, expires_at: When(expires_at) };
    Ok(([(SET_COOKIE, cookie)], axum::Json(body)).into_response())
}

/// The portal session that this is
#[utoipa::path(get, path = "/portal/session", tag = "portal",
    responses((status = 200, body = SessionView)))]
async fn show(State(app): State<Arc<App>>, caller: Caller) -> Result<axum::Json<SessionView>, Problem> {
    let session = own(&app, &caller)?;
    let PortalSession { id, tenant_id, expires_at, .. } = session;
    Ok(axum::Json(SessionView { id, tenant_id, expires_at: When(expires_at) }))
}

/// Leave the portal
#[utoipa::path(delete, path = "/portal/session", tag = "portal",
    responses((status = 204)))]
async fn leave(State(app): State<Arc<App>>, caller: Caller, headers: HeaderMap) -> Result<Response, Problem> {
    let PortalSession { id, tenant_id, .. } = own(&app, &caller)?;
    let nothing = (&Value::Null, &Value::Null);
    let mandate = caller.mandate(&app, Action::PortalSessionEnd, Some(tenant_id), id, nothing);
    super::save(&app, ByHand { mandate, change: Write::EndPortalSession { session_id: id } }).await??;
    app.sessions.remove(id);
    let cookie = cookie::set("", 0, cookie::is_secure(&headers));
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)]).into_response())
}

fn own(app: &App, caller: &Caller) -> Result<PortalSession, Problem> {
    let id = match &caller.actor {
        Actor::Portal { id } => Some(*id),
        Actor::Bootstrap | Actor::Console | Actor::Key { .. } => None,
    };
    id.and_then(|id| app.sessions.get(id)).ok_or_else(|| Problem::not_found("this portal session is over"))
}
