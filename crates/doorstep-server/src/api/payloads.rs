//! Payloads for whoever has a link to them (I5): no key is needed, the link is one.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use doorstep_core::id::{DestinationId, EventId};
use doorstep_core::output::link::{LinkFault, PayloadLink};
use doorstep_core::reach::Reach;
use doorstep_core::time::Timestamp;
use http::HeaderValue;
use http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answers::HeldBy;
use crate::app::App;
use crate::ask::{Id, Query};
use crate::problem::{Code, Problem};
use crate::shape;

/// These need no key.
pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(fetch))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Signed {
    #[param(value_type = shape::DestinationId)]
    destination_id: DestinationId,
    /// In seconds since the epoch.
    expires: i64,
    signature: String,
}

/// The payload that a thin delivery refers to
///
/// The URL is the `payload_url` of the delivery, and no key is needed.
#[utoipa::path(get, path = "/v1/events/{id}/payload", tag = "events", params(("id" = shape::EventId, Path), Signed), security(()),
    responses((status = 200, description = "The payload as it came, with its own content type")))]
async fn fetch(
    State(app): State<Arc<App>>,
    Id(event_id): Id<EventId>,
    Query(asked): Query<Signed>,
) -> Result<Response, Problem> {
    let expires_at = Timestamp::from_secs(asked.expires);
    let link = PayloadLink { destination_id: asked.destination_id, event_id: &event_id, expires_at };
    // Whether there is such a destination is nobody's business who cannot sign for it.
    let destination = app.engine.destination(Reach::All, asked.destination_id).ok_or_else(forbidden)?;
    let key = destination.secrets.link_key.as_ref().ok_or_else(forbidden)?;
    link.check(key, &asked.signature, app.engine.now()).map_err(|fault| match fault {
        LinkFault::Forged => forbidden(),
        LinkFault::Expired => gone("this link has expired: ask for the event to be sent again"),
    })?;
    let mut found =
        app.fetch(|store| store.event(Reach::Tenant(destination.tenant_id), None, event_id.clone())).await?;
    let (_, event) = found.pop().ok_or_else(|| gone("the event is not kept any more"))?;
    let content_type = HeaderValue::from_str(&event.content_type)
        .unwrap_or_else(|_| HeaderValue::from_static("application/octet-stream"));
    // Somebody else's bytes at our address: a browser must save them, and never show or run them.
    let headers = [
        (CONTENT_TYPE, content_type),
        (CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox")),
    ];
    // Whoever reads it slowly takes from the receivers of this destination, and of no other.
    let held_by = Extension(HeldBy(asked.destination_id.to_string()));
    Ok((headers, held_by, event.payload.clone()).into_response())
}

fn forbidden() -> Problem {
    let detail =
        "the link was not made here, was changed, or its destination is gone: use `payload_url` exactly as it was sent";
    Problem::new(Code::BadLink, detail)
}

fn gone(detail: &str) -> Problem {
    Problem::new(Code::Gone, detail)
}
