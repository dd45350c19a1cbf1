//! The API's own description, OpenAPI 3.1, made from the handlers, and a page to read it with.

mod headers;
mod page;
mod refusals;
mod json_first;
mod shared;
#[cfg(test)]
pub(crate) mod seen;

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use doorstep_core::api_key::Scope;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderValue, Method};
use serde_json::Value;
use utoipa::OpenApi;
use utoipa::openapi::RefOr;
use utoipa::openapi::path::{Operation, Parameter};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};

use json_first::JsonFirst;

use crate::auth::cookie;
use crate::auth::rules::{self, Need};
use crate::shape;

/// Nothing comes from elsewhere, and nothing runs that is not a file of ours.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Doorstep",
        description = "Takes events, keeps them durably, and delivers each one, signed, to every destination that subscribed.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "/", description = "The server that this description comes from")),
    tags(
        (name = "tenants", description = "Customers of the operator"),
        (name = "destinations", description = "URLs that receive events"),
        (name = "events", description = "What happened"),
        (name = "deliveries", description = "One event to one destination, and every attempt at it"),
        (name = "stream", description = "What happens, as it happens"),
        (name = "health", description = "Whether it lives, and how it is doing"),
    )
)]
struct Description;

/// What the document says beside the routes.
pub(crate) fn description() -> utoipa::openapi::OpenApi {
    let mut document = Description::openapi();
    let bearer =
        HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("An API key, or the admin key.")).build();
    let components = document.components.get_or_insert_default();
    components.add_security_scheme(KEY, SecurityScheme::Http(bearer));
    components.add_security_scheme(PORTAL, SecurityScheme::ApiKey(ApiKey::Cookie(cookie())));
    components.schemas.extend(shape::all().into_iter().map(|(name, schema)| (name.to_owned(), schema)));
    document.security = Some(vec![by(KEY)]);
    document
}

const KEY: &str = "key";
const PORTAL: &str = "portal";

fn cookie() -> ApiKeyValue {
    let about = format!(
        "A portal session: what `POST /portal/session` answers a code with. Over http:// it is called `{}`. What changes something has to come from \
         the portal's own pages.",
        cookie::PLAIN_NAME
    );
    ApiKeyValue::with_description(cookie::SECURE_NAME, &about)
}

fn by(scheme: &str) -> SecurityRequirement {
    SecurityRequirement::new(scheme, Vec::<String>::new())
}

/// What may be asked with a portal session too, or with nothing else.
fn let_in(method: &Method, path: &str) -> Option<Vec<SecurityRequirement>> {
    match rules::need(method, path) {
        Need::Has(Scope::Read | Scope::Operate) => Some(vec![by(KEY), by(PORTAL)]),
        Need::PortalSession => Some(vec![by(PORTAL)]),
        Need::Has(Scope::Ingest | Scope::Admin) | Need::Everywhere(_) => None,
    }
}

/// Gives every operation a name that no other has, `deliveries_retry`, since clients are made from it; says what it can refuse, and what
/// headers it sends. A parameter that may be left out is never null. Where a portal session is let in, that is said.
pub(crate) fn polish(document: &mut utoipa::openapi::OpenApi) {
    for (path, item) in &mut document.paths.paths {
        let all = [
            (Method::GET, &mut item.get),
            (Method::PUT, &mut item.put),
            (Method::POST, &mut item.post),
            (Method::DELETE, &mut item.delete),
            (Method::PATCH, &mut item.patch),
        ];
        for (method, operation) in all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
        {
            // Those that anybody may ask say so themselves.
            operation.security = operation.security.take().or_else(|| let_in(&method, path));
            let tag = operation.tags.as_ref().and_then(|tags| tags.first().cloned()).unwrap_or_default();
            let handler = operation.operation_id.take().unwrap_or_default();
            operation.operation_id = Some(name(&tag, &handler));
            describe_success(operation);
            for parameter in operation.parameters.iter_mut().flatten() {
                if let RefOr::T(Parameter { schema: Some(schema), .. }) = parameter {
                    shape::not_null(schema);
                }
            }
            refusals::describe(&method, path, operation);
            headers::describe(&method, path, operation);
        }
    }
}

/// `deliveries_retry`: the plural and the verb, in the words of the API.
fn name(tag: &str, handler: &str) -> String {
    let name = format!("{}_{handler}", tag.replace(['-', ' '], "_"));
    match name.as_str() {
        "events_accept" => "events_send",
        "events_accept_batch" => "events_send_batch",
        "events_fetch" => "events_get_payload",
        "stream_stream" => "stream",
        "health_alive" => "health_live",
        "destinations_rotate" => "destinations_rotate_secret",
        "destinations_agree" => "destinations_consent",
        "destinations_agree_by_visit" => "destinations_consent_by_link",
        "portal_enter" => "portal_session_start",
        "portal_show" => "portal_session_get",
        "portal_leave" => "portal_session_end",
        "portal_create" => "portal_sessions_create",
        "portal_end_all" => "portal_sessions_end_all",
        _ => match name.rsplit_once('_') {
            Some((plural, "change")) => return format!("{plural}_update"),
            Some((plural, "remove")) => return format!("{plural}_delete"),
            _ => return name,
        },
    }
    .to_owned()
}

/// Every answer has a description, and what it is stands in its schema.
fn describe_success(operation: &mut Operation) {
    for (status, answer) in &mut operation.responses.responses {
        if let RefOr::T(answer) = answer
            && answer.description.is_empty()
        {
            answer.description = match status.as_str() {
                "201" => "Created",
                "202" => "Accepted: on disk, and on its way",
                "204" => "Done; the answer has no body",
                _ => "OK",
            }
            .to_owned();
        }
    }
}

/// Routes that need no key: the description, and the page. There are no others beside those that are described.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>(document: &utoipa::openapi::OpenApi) -> Router<S> {
    let document: Arc<str> = serde_json::to_string(&JsonFirst(&written(document))).unwrap_or_default().into();
    let page: Arc<str> = page::html().into();
    Router::new()
        .route("/openapi.json", get(move || async move { file("application/json", document.to_string()) }))
        // Who opens the server's address in a browser wants to know what it is.
        .route("/", get(|| async { Redirect::to("/docs") }))
        .route("/docs", get(move || async move { file("text/html; charset=utf-8", page.to_string()) }))
        .route("/docs/page.css", get(|| async { file("text/css", page::CSS.to_owned()) }))
        .route("/docs/page.js", get(|| async { file("text/javascript", page::JS.to_owned()) }))
}

/// The document as it is committed. It is served without spaces.
pub fn text(document: &utoipa::openapi::OpenApi) -> String {
    let mut text = serde_json::to_string_pretty(&JsonFirst(&written(document))).unwrap_or_default();
    text.push('\n');
    text
}

fn written(document: &utoipa::openapi::OpenApi) -> Value {
    // Plain data always becomes JSON.
    let mut document = serde_json::to_value(document).unwrap_or_default();
    shared::share_problems(&mut document);
    document
}

fn file(kind: &'static str, text: String) -> Response {
    let mut response = text.into_response();
    for (name, value) in [(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache"), (CONTENT_SECURITY_POLICY, POLICY)] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
