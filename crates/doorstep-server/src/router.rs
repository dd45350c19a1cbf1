//! Every route, and what stands before it.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use http::StatusCode;
use utoipa_axum::router::OpenApiRouter;

use crate::api;
use crate::app::App;
use crate::auth::require_key;
use crate::openapi;
use crate::problem::Problem;

pub fn router(app: Arc<App>) -> Router {
    let guarded = guarded().route_layer(from_fn_with_state(Arc::clone(&app), require_key));
    let (router, mut document) = described(guarded).split_for_parts();
    openapi::polish(&mut document);
    let router = router.merge(openapi::routes(&document));
    router.fallback(no_route).method_not_allowed_fallback(no_method).with_state(app)
}

/// What the API says of itself.
pub fn document() -> utoipa::openapi::OpenApi {
    let mut document = described(guarded()).into_openapi();
    openapi::polish(&mut document);
    document
}

fn described(guarded: OpenApiRouter<Arc<App>>) -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(openapi::description()).merge(guarded).merge(api::health::routes())
}

/// Routes that need a key.
fn guarded() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .merge(api::tenants::routes())
        .merge(api::destinations::routes())
        .merge(api::events::routes())
        .merge(api::deliveries::routes())
        .merge(api::stream::routes())
}

async fn no_route() -> Problem {
    Problem::not_found("there is nothing at this path: the API is under /v1, see /docs")
}

async fn no_method() -> Problem {
    let detail = "this path is there, but not for this method: see the `Allow` header";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "This method is not allowed here", detail)
}
