//! Every route, and what stands before it.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use doorstep_core::id::TenantId;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use crate::answers::{self, HeldBy};
use crate::api;
use crate::app::App;
use crate::auth::{leave, source};
use crate::bodies::Part;
use crate::openapi;
use crate::problem::{Code, Problem};
use crate::searches::share;
use crate::shares::Share;
use crate::when;

pub fn router(app: Arc<App>) -> Router {
    parts(app).0
}

/// What the operator's monitoring asks, on a listener of its own: no key is needed, so it is for a network that is not everybody's.
pub fn metrics_router(app: Arc<App>) -> Router {
    let routes = OpenApiRouter::new().merge(api::health::routes()).merge(api::health::guarded_routes());
    let (router, _) = routes.route_layer(from_fn_with_state(Arc::clone(&app), finish)).split_for_parts();
    router.fallback(no_metrics).method_not_allowed_fallback(no_method).with_state(app)
}

/// The routes, and the document that describes them.
pub(crate) fn parts(app: Arc<App>) -> (Router, OpenApi) {
    let guarded = guarded().route_layer(from_fn_with_state(Arc::clone(&app), guard));
    let open = open().route_layer(from_fn_with_state(Arc::clone(&app), finish));
    let (router, mut document) = described(guarded, open).split_for_parts();
    openapi::polish(&mut document);
    let router = router.merge(openapi::routes(&document));
    let router = router.fallback(no_route).method_not_allowed_fallback(no_method);
    let router = router.layer(from_fn_with_state(Arc::clone(&app), around)).with_state(app);
    (router, document)
}

/// What the API says of itself.
pub fn document() -> OpenApi {
    let mut document = described(guarded(), open()).into_openapi();
    openapi::polish(&mut document);
    document
}

fn described(guarded: OpenApiRouter<Arc<App>>, open: OpenApiRouter<Arc<App>>) -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(openapi::description()).merge(guarded).merge(open)
}

/// Routes that need none.
fn open() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .merge(api::health::routes())
        .merge(api::portal_sessions::open_routes())
        .merge(api::payloads::routes())
        .merge(api::destinations::consent::open_routes())
}

/// Routes that need a key.
fn guarded() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .merge(api::tenants::routes())
        .merge(api::destinations::routes())
        .merge(api::events::routes())
        .merge(api::deliveries::routes())
        .merge(api::stream::routes())
        .merge(api::event_types::routes())
        .merge(api::keys::routes())
        .merge(api::audit::routes())
        .merge(api::health::guarded_routes())
        .merge(api::portal_sessions::routes())
}

/// All that stands before a guarded route, in one layer: each costs every event that comes in.
async fn guard(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Result<Response, Problem> {
    let caller = leave(&app, &request)?;
    let share = share(&app, &caller, &request)?;
    let part = app.bodies.begin(Some(&caller.actor));
    let may_refuse = request.method().is_safe();
    request.extensions_mut().insert(caller);
    let answered = async move { send_slowly(next.run(request).await, share, part, may_refuse) };
    Ok(to_its_end(answered).await)
}

/// The answer, with what its request took until all of it is sent. A stream has bounds of its own, and takes nothing here.
fn send_slowly(response: Response, share: Option<Share<TenantId>>, part: Part, may_refuse: bool) -> Response {
    let part = match answers::count(&response, part) {
        Ok(part) => part,
        Err(busy) if may_refuse => return busy.into_response(),
        // What was done has to be told.
        Err(_) => None,
    };
    let takes_nothing = share.is_none() && part.is_none();
    if takes_nothing || answers::length(&response).is_none() {
        return response;
    }
    answers::keep_until_sent(response, (share, part))
}

/// What stands before the others: a code that was spent, or consent that was given, has its consequences although the client has gone.
async fn finish(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let may_refuse = request.method().is_safe();
    let response = to_its_end(next.run(request)).await;
    let holder = response.extensions().get::<HeldBy>().map(|HeldBy(name)| name.clone());
    send_slowly(response, None, app.bodies.begin_for(holder), may_refuse)
}

/// A client that hangs up must not leave its request half done: on disk, with nobody told of it. The same event again
/// would be answered as a duplicate, and never delivered.
///
/// A task for each request also costs less than none: the connection, which looks for more to read whenever it is woken, is woken once.
async fn to_its_end(answered: impl Future<Output = Response> + Send + 'static) -> Response {
    tokio::spawn(when::by(when::timeline(), answered)).await.unwrap_or_else(|_| {
        // The panic itself has been logged where it happened.
        let detail =
            "this is a fault of ours, and the operator finds it in the log; whether anything was changed is not known";
        Problem::new(Code::Internal, detail).into_response()
    })
}

/// What all requests and answers have in common, in one layer too. Where a request comes from is found out once for all that ask.
///
/// What `/v1` and `/portal` answer is for whoever asked: no cache on the way keeps it. And what an answer is, its type says, not its bytes.
async fn around(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    source::find(&app, &mut request);
    let path = request.uri().path();
    let is_private = ["/v1", "/portal"].iter().any(|part| path.strip_prefix(part).is_some_and(is_below));
    let mut response = when::by(app.engine.timeline(), next.run(request)).await;
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_private {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

fn is_below(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

async fn no_route() -> Problem {
    Problem::not_found("there is nothing at this path: the API is under /v1, see /docs")
}

async fn no_metrics() -> Problem {
    Problem::not_found("this listener has /metrics, /healthz and /readyz; the API has another address")
}

async fn no_method() -> Problem {
    let detail = "this path is there, but not for this method: see the `Allow` header";
    Problem::new(Code::MethodNotAllowed, detail)
}
