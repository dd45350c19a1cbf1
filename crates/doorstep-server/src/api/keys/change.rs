//! What may change about a key: what it is called, when it ends, where it may be used from, and its secret.
//!
//! Never what it is good for or whose it is: whoever gave it away would not know.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use doorstep_core::api_key::{ApiKey, KeyText, SECRET_LEN};
use doorstep_core::audit::Action;
use doorstep_core::id::KeyId;
use doorstep_core::store::{ByHand, Refusal, Write};
use doorstep_core::time::{Millis, Timestamp};
use http::HeaderMap;
use http::header::CACHE_CONTROL;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{KeyView, NewKeyView, beyond, check_end, known, read_ranges, shown, told};
use crate::api::tenants::check_name;
use crate::app::App;
use crate::ask::Id;
use crate::auth::caller::Caller;
use crate::body::{Json, OptionalJson};
use crate::etag::{check_match, etag};
use crate::field::Field;
use crate::problem::{Code, FieldFault, Problem};
use crate::shape;
use crate::when::Given;

/// How long an old secret may be good beside its successor.
const OVERLAP_MAX: Millis = Millis::from_hours(24 * 7);

/// What is not given stays as it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyChange {
    #[schema(value_type = Option<shape::Name>)]
    name: Option<String>,
    /// Where it may be used from; null or empty for anywhere.
    #[serde(default)]
    #[schema(value_type = Option<Vec<shape::Cidr>>, max_items = 50)]
    source_cidrs: Field<Vec<String>>,
    /// When it ends; null for never.
    #[serde(default)]
    #[schema(value_type = Option<Given>)]
    expires_at: Field<Given>,
    /// Known, so that the answer can say why it is refused.
    #[serde(default)]
    #[schema(ignore)]
    scopes: Field<Value>,
    #[serde(default)]
    #[schema(ignore)]
    tenant_id: Field<Value>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyRotation {
    /// How long the old secret is good beside the new one. It is refused at once unless given.
    #[schema(maximum = 604_800_000)]
    overlap_ms: Option<u64>,
}

/// Change a key's name, end or source ranges
///
/// Its scopes and its tenant never change: make another key for that.
#[utoipa::path(patch, path = "/v1/keys/{id}", tag = "keys", request_body = KeyChange,
    params(("id" = shape::KeyId, Path), ("if-match" = Option<shape::IfMatch>, Header)),
    responses((status = 200, body = KeyView)))]
pub(crate) async fn change(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<KeyId>,
    headers: HeaderMap,
    Json(change): Json<KeyChange>,
) -> Result<Response, Problem> {
    let before = good(&app, &caller, id).await?;
    check_match(&headers, before.version)?;
    let mut changed = before.clone();
    change.apply(&mut changed, app.engine.look().wall)?;
    let faults = beyond(&app, &caller, &changed.source_cidrs, changed.expires_at)?;
    if !faults.is_empty() {
        return Err(Problem::invalid(faults));
    }
    put(&app, &caller, Action::KeyUpdate, &before, changed).await.map(shown)
}

/// Give a key a new secret
///
/// The key stays the same, with its ID, its name and its limits. The new text is shown in this answer and never again. The one before works for `overlap_ms` more; one
/// from an earlier rotation does not any more.
#[utoipa::path(post, path = "/v1/keys/{id}/rotate", tag = "keys", request_body = Option<KeyRotation>,
    params(("id" = shape::KeyId, Path), ("if-match" = Option<shape::IfMatch>, Header)),
    responses((status = 200, body = NewKeyView)))]
pub(crate) async fn rotate(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<KeyId>,
    headers: HeaderMap,
    OptionalJson(asked): OptionalJson<KeyRotation>,
) -> Result<Response, Problem> {
    let overlap = Millis(asked.overlap_ms.unwrap_or(0));
    if overlap > OVERLAP_MAX {
        return Err(Problem::invalid_at("/overlap_ms", format!("must be at most {}, a week", OVERLAP_MAX.0)));
    }
    let before = good(&app, &caller, id).await?;
    check_match(&headers, before.version)?;
    // Whoever has its new secret can do what it can.
    if !beyond(&app, &caller, &before.source_cidrs, before.expires_at)?.is_empty() {
        let detail = "this key is limited less than your own, in its ranges or its end: use one that is not limited";
        return Err(Problem::new(Code::LessLimited, detail));
    }
    let text = KeyText::new(id, &crate::api::chance::<SECRET_LEN>()?);
    let rotated = before.rotated(text.hash(), app.engine.look().wall + overlap);
    let rotated = put(&app, &caller, Action::KeyRotate, &before, rotated).await?;
    let tag = etag(rotated.version);
    let body = NewKeyView { view: KeyView::of(rotated), key: text.reveal().to_owned() };
    Ok((tag, [(CACHE_CONTROL, "no-store")], axum::Json(body)).into_response())
}

/// A key that is good for something: of one that has ended, nothing changes any more.
async fn good(app: &App, caller: &Caller, id: KeyId) -> Result<ApiKey, Problem> {
    let key = known(app, caller, id).await?;
    if key.has_ended(app.engine.look().wall) { Err(ended()) } else { Ok(key) }
}

fn ended() -> Problem {
    Problem::new(Code::KeyEnded, "this key was revoked or has expired, for ever: make another one")
}

async fn put(app: &App, caller: &Caller, action: Action, before: &ApiKey, mut key: ApiKey) -> Result<ApiKey, Problem> {
    key.version += 1;
    let (mut was, mut is) = (told(before), told(&key));
    if before.hash != key.hash {
        (was["secret"], is["secret"]) = ("***".into(), "*** (changed)".into());
        is["old_secret_until"] = key.old.as_ref().map(|old| old.until.to_rfc3339()).into();
    }
    let mandate = caller.mandate(app, action, key.tenant_id, key.id, (&was, &is));
    let change = Write::ChangeApiKey(Box::new(key.clone()));
    crate::api::save(app, ByHand { mandate, change }).await?.map_err(|refusal| match refusal {
        Refusal::NotFound => ended(),
        other => other.into(),
    })?;
    app.keys.replace(key.clone());
    Ok(key)
}

impl KeyChange {
    fn apply(self, key: &mut ApiKey, wall: Timestamp) -> Result<(), Problem> {
        let mut faults = Vec::new();
        for (pointer, given) in [("/scopes", self.scopes), ("/tenant_id", self.tenant_id)] {
            if given != Field::Absent {
                let fault = "never changes: make another key, and revoke this one";
                faults.push(FieldFault::new(pointer, fault));
            }
        }
        if let Some(name) = self.name {
            if let Err(fault) = check_name(&name) {
                faults.push(FieldFault::new("/name", fault));
            }
            key.name = name;
        }
        if let Some(texts) = self.source_cidrs.or_default(Vec::new) {
            key.source_cidrs = read_ranges(&texts, &mut faults);
        }
        match self.expires_at {
            Field::Absent => {}
            Field::Null => key.expires_at = None,
            Field::Given(at) => {
                check_end(Some(at), wall, &mut faults);
                key.expires_at = Some(at.0);
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(Problem::invalid(faults)) }
    }
}
