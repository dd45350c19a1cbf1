//! What each route asks of whoever comes: one line each. A route without a line is the administrators' alone, and a test
//! fails until it has one.

use doorstep_core::api_key::Scope;
use http::Method;

/// What a route asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A scope. Whoever is limited to a tenant finds that tenant's things alone.
    Has(Scope),
    /// A scope, and no limit to a tenant.
    Everywhere(Scope),
    /// A portal session, and no key.
    PortalSession,
}

const READ: Need = Need::Has(Scope::Read);
const OPERATE: Need = Need::Has(Scope::Operate);
const INGEST: Need = Need::Has(Scope::Ingest);
const ADMIN: Need = Need::Has(Scope::Admin);
const READ_ALL: Need = Need::Everywhere(Scope::Read);
const OPERATOR: Need = Need::Everywhere(Scope::Admin);

pub(crate) const RULES: &[(Method, &str, Need)] = &[
    (Method::GET, "/v1/tenants", READ),
    (Method::POST, "/v1/tenants", OPERATOR),
    (Method::GET, "/v1/tenants/{id}", READ),
    (Method::PATCH, "/v1/tenants/{id}", OPERATOR),
    (Method::GET, "/v1/tenants/{id}/usage", READ),
    (Method::DELETE, "/v1/tenants/{id}/payloads", OPERATOR),
    (Method::GET, "/v1/destinations", READ),
    (Method::POST, "/v1/destinations", OPERATE),
    (Method::GET, "/v1/destinations/{id}", READ),
    (Method::PATCH, "/v1/destinations/{id}", OPERATE),
    (Method::DELETE, "/v1/destinations/{id}", OPERATE),
    (Method::POST, "/v1/destinations/{id}/pause", OPERATE),
    (Method::POST, "/v1/destinations/{id}/resume", OPERATE),
    (Method::POST, "/v1/destinations/{id}/probe", OPERATE),
    (Method::POST, "/v1/destinations/{id}/clear-throttle", OPERATE),
    (Method::POST, "/v1/destinations/{id}/test", OPERATE),
    (Method::POST, "/v1/destinations/{id}/verify", OPERATE),
    (Method::POST, "/v1/destinations/{id}/secrets/rotate", OPERATE),
    (Method::POST, "/v1/events", INGEST),
    (Method::POST, "/v1/events/batch", INGEST),
    (Method::GET, "/v1/events", READ),
    (Method::GET, "/v1/events/{id}", READ),
    (Method::GET, "/v1/deliveries", READ),
    (Method::GET, "/v1/deliveries/{id}", READ),
    (Method::GET, "/v1/deliveries/{id}/attempts/{number}", READ),
    (Method::POST, "/v1/deliveries/{id}/retry", OPERATE),
    (Method::POST, "/v1/deliveries/{id}/abandon", OPERATE),
    (Method::GET, "/v1/event-types", READ),
    (Method::POST, "/v1/event-types", OPERATOR),
    (Method::GET, "/v1/event-types/{name}", READ),
    (Method::PATCH, "/v1/event-types/{name}", OPERATOR),
    (Method::DELETE, "/v1/event-types/{name}", OPERATOR),
    (Method::GET, "/v1/stream", READ),
    (Method::GET, "/v1/keys", ADMIN),
    (Method::POST, "/v1/keys", ADMIN),
    (Method::GET, "/v1/keys/{id}", ADMIN),
    (Method::PATCH, "/v1/keys/{id}", ADMIN),
    (Method::DELETE, "/v1/keys/{id}", ADMIN),
    (Method::POST, "/v1/keys/{id}/rotate", ADMIN),
    (Method::GET, "/v1/audit", ADMIN),
    (Method::POST, "/v1/portal-sessions", ADMIN),
    (Method::DELETE, "/v1/portal-sessions", ADMIN),
    (Method::GET, "/metrics", READ_ALL),
    (Method::GET, "/portal/session", Need::PortalSession),
    (Method::DELETE, "/portal/session", Need::PortalSession),
];

/// What this route asks for. `HEAD` is `GET` without a body.
pub(crate) fn need(method: &Method, path: &str) -> Need {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let rule = RULES.iter().find(|(of, route, _)| of == method && *route == path);
    rule.map_or(OPERATOR, |(_, _, need)| *need)
}

/// Whether events are sent in there.
pub(crate) fn is_for_producers(method: &Method, path: &str) -> bool {
    need(method, path) == INGEST
}
