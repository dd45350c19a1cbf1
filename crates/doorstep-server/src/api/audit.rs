//! The audit log: who changed what, when and from where (S7).

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::State;
use doorstep_core::audit::{Action, Actor, AuditEntry, AuditOutcome};
use doorstep_core::id::TenantId;
use doorstep_core::store::AuditFilter;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::ask::Query;
use crate::auth::caller::Caller;
use crate::page::Stretch;
use crate::problem::Problem;
use crate::shape;
use crate::when::When;

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list))
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditView {
    at: When,
    /// `{"kind": "key", "id": …, "name": …}`, `{"kind": "portal", "id": …}`, `{"kind": "bootstrap"}` or, for a
    /// command on the machine itself, `{"kind": "console"}`.
    #[schema(value_type = Object)]
    actor: Actor,
    /// The address that the request came from.
    #[schema(value_type = Option<String>, required)]
    from: Option<IpAddr>,
    #[schema(value_type = Option<shape::TenantId>, required)]
    tenant_id: Option<TenantId>,
    #[schema(value_type = shape::ActionName)]
    action: Action,
    resource: ResourceView,
    #[schema(value_type = shape::AuditOutcomeName)]
    outcome: AuditOutcome,
    /// Field by field, what it was and what it is. Secrets are masked.
    #[schema(value_type = Object, example = json!({"name": {"before": "a", "after": "b"}}))]
    changes: Map<String, Value>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ResourceView {
    #[schema(example = "destination")]
    kind: &'static str,
    id: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditPage {
    data: Vec<AuditView>,
    #[schema(required)]
    next_cursor: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditList {
    #[param(value_type = shape::TenantId, required = false)]
    tenant_id: Option<TenantId>,
    /// A key's or a portal session's ID, `bootstrap` or `console`.
    #[param(value_type = String, required = false, example = "bootstrap")]
    actor: Option<String>,
    #[param(value_type = shape::ActionName, required = false)]
    action: Option<String>,
    /// The ID of what was acted on.
    #[param(value_type = String, required = false)]
    resource: Option<String>,
    #[param(value_type = When, required = false)]
    created_after: Option<When>,
    #[param(value_type = When, required = false)]
    created_before: Option<When>,
    #[param(value_type = shape::Limit, required = false)]
    limit: Option<usize>,
    #[param(value_type = shape::Cursor, required = false)]
    cursor: Option<String>,
}

/// Who changed what, newest first
#[utoipa::path(get, path = "/v1/audit", tag = "audit", params(AuditList),
    responses((status = 200, body = AuditPage)))]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(asked): Query<AuditList>,
) -> Result<axum::Json<AuditPage>, Problem> {
    let stretch = Stretch::asked("aud", asked.limit, asked.cursor.as_deref())?;
    let action = asked.action.map(|action| action.parse()).transpose();
    let filter = AuditFilter {
        tenant_id: asked.tenant_id,
        actor: asked.actor,
        action: action.map_err(|fault: String| Problem::invalid_at("?action", fault))?,
        resource: asked.resource,
        after: asked.created_after.map(|at| at.0),
        before: asked.created_before.map(|at| at.0),
    };
    let mut found = app.find(caller.reach, |store, reach| store.audit(reach, filter, stretch.page())).await?;
    let places = stretch.cut(&mut found, |(n, _)| *n);
    let (data, next_cursor) = places.fit(found.into_iter().map(|(_, entry)| AuditView::of(entry)).collect());
    Ok(axum::Json(AuditPage { data, next_cursor }))
}

impl AuditView {
    fn of(entry: AuditEntry) -> Self {
        let AuditEntry { at, actor, from, tenant_id, action, resource, outcome, changes } = entry;
        let resource = ResourceView { kind: action.kind(), id: resource };
        Self { at: When(at), actor, from, tenant_id, action, resource, outcome, changes }
    }
}
