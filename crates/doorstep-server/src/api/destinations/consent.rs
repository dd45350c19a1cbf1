//! A receiver's consent to be sent to: what people see of it, and how it is asked for and given.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use doorstep_core::audit::Action;
use doorstep_core::consent::{ConsentLink, Leave, Verification};
use doorstep_core::destination::Destination;
use doorstep_core::engine::Asking;
use doorstep_core::id::DestinationId;
use doorstep_core::output::link::LinkFault;
use doorstep_core::reach::Reach;
use doorstep_core::time::Timestamp;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{known, shown};
use crate::app::App;
use crate::ask::{Id, Query};
use crate::auth::caller::Caller;
use crate::problem::{Code, Problem};
use crate::shape;
use crate::when::When;

/// What a receiver has agreed to, or how far asking it has got.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConsentView {
    /// Null until it has agreed. Nothing is sent before.
    #[schema(required)]
    given_at: Option<When>,
    /// In whose name it was asked: requests carry it as `WebHook-Request-Origin`.
    #[schema(required)]
    origin: Option<String>,
    /// How many requests per minute it agreed to; null for as many as we like.
    #[schema(value_type = Option<u32>, required)]
    per_minute: Option<NonZeroU32>,
    /// How often it was asked, since this server was started, without agreeing.
    asked: u32,
    /// When it is asked again by itself.
    #[schema(required)]
    next_ask_at: Option<When>,
    /// Why the last answer was no consent.
    #[schema(required)]
    last_answer: Option<String>,
}

impl ConsentView {
    /// `None` where nobody has to agree.
    pub(super) fn of(destination: &Destination, asking: Option<Asking>) -> Option<Self> {
        if destination.settings.verification == Verification::None {
            return None;
        }
        let given = destination.consent_in_force();
        let asking = asking.filter(|_| given.is_none());
        Some(Self {
            given_at: given.map(|given| When(given.given_at)),
            origin: given.map(|given| given.origin.clone()),
            per_minute: given.and_then(|given| given.leave.per_minute),
            asked: asking.as_ref().map_or(0, |asking| asking.asked),
            next_ask_at: asking.as_ref().and_then(|asking| asking.next_ask_at).map(When),
            last_answer: asking.and_then(|asking| asking.last_answer),
        })
    }
}

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(verify))
}

/// These need no key: the link is one.
pub(crate) fn open_routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(agree, agree_by_visit))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignedConsent {
    /// In seconds since the epoch.
    expires: i64,
    signature: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Agreed {
    /// Events are sent here from now on.
    url: String,
    /// At most this many requests per minute; null for no limit of the receiver's own.
    #[schema(value_type = Option<u32>, required)]
    per_minute: Option<NonZeroU32>,
}

/// Ask the receiver for its consent now, and see what comes of it
///
/// For destinations whose `verification` asks for it. The receiver is asked by itself too, when the destination is made
/// or its URL changes, and then ever more seldom: this is for those who do not want to wait.
#[utoipa::path(post, path = "/v1/destinations/{id}/verify", tag = "destinations", params(("id" = shape::DestinationId, Path)),
    responses((status = 200, body = super::view::DestinationView)))]
async fn verify(State(app): State<Arc<App>>, caller: Caller, Id(id): Id<DestinationId>) -> Result<Response, Problem> {
    let before = known(&app, &caller, id)?;
    if before.settings.verification == Verification::None {
        let detail = "nobody has to agree: its `verification` is `none`. Set it to `cloudevents_options` first";
        return Err(Problem::new(Code::NeedsNoConsent, detail));
    }
    let nothing = (&Value::Null, &Value::Null);
    let mandate = caller.mandate(&app, Action::DestinationVerify, Some(before.tenant_id), id, nothing);
    let gone = || Problem::not_found(format!("there is no destination {id}"));
    let destination = app.engine.ask_consent(mandate, id).await?.ok_or_else(gone)?;
    shown(&app, caller.reach, &destination).await
}

/// Agree to be sent to
///
/// The URL is the `WebHook-Request-Callback` of the question, and no key is needed. A `WebHook-Allowed-Rate` header limits
/// how many requests per minute are sent.
#[utoipa::path(post, path = "/v1/destinations/{id}/consent", tag = "destinations", security(()),
    params(("id" = shape::DestinationId, Path), SignedConsent, ("webhook-allowed-rate" = Option<shape::AllowedRate>, Header)),
    responses((status = 200, body = Agreed)))]
async fn agree(
    State(app): State<Arc<App>>,
    Id(id): Id<DestinationId>,
    Query(asked): Query<SignedConsent>,
    headers: HeaderMap,
) -> Result<axum::Json<Agreed>, Problem> {
    // Whether there is such a destination is nobody's business who cannot sign for it.
    let destination = app.engine.destination(Reach::All, id).ok_or_else(forbidden)?;
    let url = destination.settings.url.clone();
    let link = ConsentLink { destination_id: id, url: &url, expires_at: Timestamp::from_secs(asked.expires) };
    let key = destination.secrets.link_key.as_ref().ok_or_else(forbidden)?;
    link.check(key, &asked.signature, app.engine.now()).map_err(|fault| match fault {
        LinkFault::Forged => forbidden(),
        LinkFault::Expired => {
            let detail = "this link has expired: have the destination ask again";
            Problem::new(Code::Gone, detail)
        }
    })?;
    let lines: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let wrong_rate = |_| {
        Problem::invalid_at("webhook-allowed-rate:", "is neither `*` nor a whole number of requests per minute from 1")
    };
    let leave = Leave::read_rate(&lines).map_err(wrong_rate)?.unwrap_or_default();
    // It was changed or removed since it was looked at.
    app.engine.consent(id, url.clone(), leave).await?.map_err(|_| forbidden())?;
    Ok(axum::Json(Agreed { url, per_minute: leave.per_minute }))
}

/// Agree to be sent to, by visiting the link
///
/// As with POST; for people who find the link in a log and follow it.
#[utoipa::path(get, path = "/v1/destinations/{id}/consent", tag = "destinations", security(()),
    params(("id" = shape::DestinationId, Path), SignedConsent, ("webhook-allowed-rate" = Option<shape::AllowedRate>, Header)),
    responses((status = 200, body = Agreed)))]
async fn agree_by_visit(
    state: State<Arc<App>>,
    id: Id<DestinationId>,
    asked: Query<SignedConsent>,
    headers: HeaderMap,
) -> Result<axum::Json<Agreed>, Problem> {
    agree(state, id, asked, headers).await
}

fn forbidden() -> Problem {
    let detail = "the link was not made here, was changed, or its destination has another URL by now or is gone: use \
        `WebHook-Request-Callback` exactly as it came";
    Problem::new(Code::BadLink, detail)
}
