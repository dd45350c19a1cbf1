//! Whoever asks, once they are known.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use doorstep_core::api_key::{ApiKey, KeyHash, Scope};
use doorstep_core::audit::{Action, Actor, AuditEntry, AuditOutcome, Mandate, changes};
use doorstep_core::clock::Now;
use doorstep_core::id::TenantId;
use doorstep_core::reach::Reach;
use doorstep_core::time::Timestamp;
use http::request::Parts;
use serde_json::Value;

use crate::app::App;
use crate::problem::Problem;

#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) actor: Actor,
    pub(crate) scopes: BTreeSet<Scope>,
    pub(crate) reach: Reach,
    pub(crate) from: Option<IpAddr>,
    /// Of the secret, if it came with a key.
    pub(crate) shown: Option<KeyHash>,
}

impl Caller {
    /// Leave to do this, and what will be noted of it.
    pub(crate) fn mandate(
        &self,
        app: &App,
        action: Action,
        tenant_id: Option<TenantId>,
        resource: impl Display,
        (before, after): (&Value, &Value),
    ) -> Mandate {
        let mut entry = self.entry(app.engine.now(), action, tenant_id, resource, AuditOutcome::Done);
        entry.changes = changes(before, after);
        Mandate { reach: self.reach, entry }
    }

    pub(super) fn entry(
        &self,
        at: Timestamp,
        action: Action,
        tenant_id: Option<TenantId>,
        resource: impl Display,
        outcome: AuditOutcome,
    ) -> AuditEntry {
        AuditEntry {
            at,
            actor: self.actor.clone(),
            from: self.from,
            tenant_id,
            action,
            resource: resource.to_string(),
            outcome,
            changes: serde_json::Map::new(),
        }
    }

    /// The key may have been changed since.
    fn is_let_in_by(&self, key: &ApiKey, wall: Timestamp) -> bool {
        let knows = self.shown.as_ref().is_some_and(|shown| key.recognises(shown, wall));
        knows && !key.is_over(wall) && key.may_come_from(self.from)
    }

    /// Whether the credential is still good: for what goes on after its request was let in.
    pub(crate) fn is_still_good(&self, app: &App) -> bool {
        let Now { at: now, wall } = app.engine.look();
        match &self.actor {
            Actor::Bootstrap => true,
            Actor::Console => false,
            Actor::Key { id, .. } => app.keys.get(*id).is_some_and(|held| self.is_let_in_by(&held.key, wall)),
            Actor::Portal { id } => app.sessions.is_open(*id, now),
        }
    }
}

/// Without one, the request did not come by the guard: a mistake of ours, and nobody is let in.
impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| Problem::unauthorized("nobody has let this request in"))
    }
}
