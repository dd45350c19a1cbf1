//! Every route, asked by every kind of caller, for their own things and for somebody else's.
//!
//! What is expected is said here in its own words, not taken from the table that decides.

use std::sync::Arc;

use doorstep_core::api_key::Scope;
use http::StatusCode;
use serde_json::{Value, json};

use super::rules::RULES;
use super::world::{ADMIN, REGISTERED, Things, With, World, a_guess};
use crate::router::parts;

/// What anybody may ask.
const OPEN: [(&str, &str); 6] = [
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("POST", "/portal/session"),
    // The link is a key of its own.
    ("GET", "/v1/events/{id}/payload"),
    ("GET", "/v1/destinations/{id}/consent"),
    ("POST", "/v1/destinations/{id}/consent"),
];

/// What each route is for, by its method and path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    Ingest,
    Read,
    Operate,
    Admin,
    /// Administrators that are not limited to a tenant.
    Operator,
    PortalSessions,
    /// Figures about all tenants together: whoever reads, and is not limited to one.
    Metrics,
}

fn meant_for(method: &str, path: &str) -> For {
    let part = path.split('/').nth(2).unwrap_or_default();
    match (method, part) {
        _ if path == "/portal/session" => For::PortalSessions,
        _ if path == "/metrics" => For::Metrics,
        (_, "keys" | "portal-sessions" | "audit") => For::Admin,
        ("GET", _) => For::Read,
        (_, "tenants" | "event-types") => For::Operator,
        ("POST", "events") => For::Ingest,
        (_, "destinations" | "deliveries") => For::Operate,
        _ => panic!("nobody has said who may {method} {path}"),
    }
}

/// Every kind of caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Nobody,
    Nonsense,
    Mistyped,
    WrongSecret,
    Revoked,
    Expired,
    FromElsewhere,
    Holder { scope: Scope, bound: bool },
    Portal,
    PortalFromElsewhere,
    PortalGuess,
    FirstAdministrator,
}

fn everybody() -> Vec<Who> {
    let holders = Scope::ALL.iter().flat_map(|scope| [false, true].map(|bound| Who::Holder { scope: *scope, bound }));
    let mut all = vec![Who::Nobody, Who::Nonsense, Who::Mistyped, Who::WrongSecret, Who::Revoked, Who::Expired];
    all.extend([Who::FromElsewhere, Who::Portal, Who::PortalFromElsewhere, Who::PortalGuess]);
    all.push(Who::FirstAdministrator);
    all.extend(holders);
    all
}

impl Who {
    /// The strongest credential of its kind, so that nothing else can be why it is refused.
    async fn comes(self, world: &mut World) -> With {
        let own = world.own.tenant.clone();
        let admin = &[Scope::Admin][..];
        With::Bearer(match self {
            Self::Nobody => return With::Nothing,
            Self::Nonsense => "nonsense".to_owned(),
            Self::Mistyped => {
                let mut key = world.key(admin, None, |_| {}).await;
                let last = if key.ends_with('0') { '1' } else { '0' };
                key.pop();
                key.push(last);
                key
            }
            Self::WrongSecret => world.key(admin, None, |key| key.hash = super::KeyHash::of("another")).await,
            Self::Revoked => {
                let (_, made) = world.ask("POST", "/v1/keys", json!({ "name": "x", "scopes": ["admin"] })).await;
                let path = format!("/v1/keys/{}", made["id"].as_str().unwrap());
                assert_eq!(world.ask("DELETE", &path, Value::Null).await.0, StatusCode::NO_CONTENT);
                made["key"].as_str().unwrap().to_owned()
            }
            Self::Expired => {
                let now = world.wall();
                world.key(admin, None, |key| key.expires_at = Some(now)).await
            }
            Self::FromElsewhere => {
                world.key(admin, None, |key| key.source_cidrs = vec!["198.51.100.0/24".parse().unwrap()]).await
            }
            Self::Holder { scope, bound } => {
                let near = "192.0.2.0/24".parse().unwrap();
                world.key(&[scope], bound.then_some(own.as_str()), |key| key.source_cidrs = vec![near]).await
            }
            Self::Portal => return With::Cookie(world.portal(&own).await),
            Self::PortalFromElsewhere => return With::CookieFromElsewhere(world.portal(&own).await),
            Self::PortalGuess => return With::Cookie(a_guess()),
            Self::FirstAdministrator => ADMIN.to_owned(),
        })
    }

    fn is_bound(self) -> bool {
        matches!(self, Self::Portal | Self::PortalFromElsewhere | Self::Holder { bound: true, .. })
    }

    /// Refused before it matters whose things are asked for.
    fn is_refused(self, method: &str, wanted: For) -> Option<StatusCode> {
        let forbidden = Some(StatusCode::FORBIDDEN);
        match (self, wanted) {
            (
                Self::Nobody
                | Self::Nonsense
                | Self::Mistyped
                | Self::WrongSecret
                | Self::Revoked
                | Self::Expired
                | Self::PortalGuess,
                _,
            ) => Some(StatusCode::UNAUTHORIZED),
            (Self::FromElsewhere, _) => forbidden,
            (Self::PortalFromElsewhere, _) if method != "GET" => forbidden,
            (Self::Portal | Self::PortalFromElsewhere, For::Read | For::Operate | For::PortalSessions) => None,
            (Self::Portal | Self::PortalFromElsewhere, For::Ingest | For::Admin | For::Operator | For::Metrics) => {
                forbidden
            }
            (Self::FirstAdministrator | Self::Holder { .. }, For::PortalSessions) => forbidden,
            (Self::FirstAdministrator, _) => None,
            (Self::Holder { scope, bound }, wanted) => {
                let fits = match scope {
                    Scope::Ingest => wanted == For::Ingest,
                    Scope::Read => wanted == For::Read || wanted == For::Metrics && !bound,
                    Scope::Operate => wanted == For::Operate,
                    Scope::Admin => !matches!(wanted, For::Operator | For::Metrics) || !bound,
                };
                if fits { None } else { forbidden }
            }
        }
    }
}

/// The route's request for these things.
pub(super) fn request(method: &str, path: &str, of: &Things) -> (String, Value) {
    let part = path.split('/').nth(2).unwrap_or_default();
    let id = match part {
        "tenants" => &of.tenant,
        "destinations" => &of.destination,
        "events" => &of.event,
        "deliveries" => &of.delivery,
        "keys" => &of.key,
        _ => "",
    };
    let filled = path.replace("{id}", id).replace("{name}", REGISTERED).replace("{number}", "1");
    let tenant_id = &of.tenant;
    let event = json!({ "tenant_id": tenant_id, "type": "a.b", "payload": {} });
    let body = match (method, path) {
        ("POST", "/v1/tenants") => json!({ "name": "new" }),
        ("POST", "/v1/destinations") => json!({ "tenant_id": tenant_id, "url": "https://example.com/new" }),
        ("POST", "/v1/events") => event,
        ("POST", "/v1/events/batch") => json!({ "events": [event] }),
        ("POST", "/v1/keys") => {
            // Whoever is limited to ranges makes keys within them alone.
            json!({ "name": "new", "scopes": ["read"], "tenant_id": tenant_id, "source_cidrs": ["192.0.2.0/24"] })
        }
        ("POST", "/v1/portal-sessions") => json!({ "tenant_id": tenant_id }),
        ("POST", "/v1/event-types") => json!({ "name": "another.type" }),
        ("PATCH", "/v1/event-types/{name}") => json!({ "description": "changed" }),
        ("PATCH", _) => json!({ "name": "changed" }),
        _ => Value::Null,
    };
    let asks_by_tenant = ["/v1/destinations", "/v1/events", "/v1/deliveries", "/v1/audit", "/v1/stream"];
    let by_tenant =
        method == "GET" && asks_by_tenant.contains(&path) || (method, path) == ("DELETE", "/v1/portal-sessions");
    (if by_tenant { format!("{filled}?tenant_id={tenant_id}") } else { filled }, body)
}

fn documented() -> Vec<(String, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let world = runtime.block_on(World::new());
    let (_, document) = parts(Arc::clone(&world.app));
    let paths = serde_json::to_value(&document.paths).unwrap();
    let paths = paths.as_object().unwrap().iter();
    paths
        .flat_map(|(path, item)| {
            let methods =
                item.as_object().unwrap().keys().filter(|key| !["parameters", "summary"].contains(&key.as_str()));
            methods.map(|method| (method.to_uppercase(), path.clone())).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn every_route_has_its_rule_and_every_rule_its_route() {
    let routes = documented();
    assert!(routes.len() > 30, "{routes:?}");
    let ruled = |method: &str, path: &str| RULES.iter().any(|(of, route, _)| of.as_str() == method && *route == path);
    for (method, path) in &routes {
        let is_open = OPEN.contains(&(method.as_str(), path.as_str()));
        assert_ne!(is_open, ruled(method, path), "{method} {path}: one line in RULES, or in OPEN, not both");
    }
    for (method, path, _) in RULES {
        assert!(routes.contains(&(method.to_string(), (*path).to_owned())), "{method} {path} is no route");
    }
}

#[test]
fn everybody_gets_what_is_theirs_and_nothing_else() {
    let routes: Vec<_> = documented().into_iter().filter(|(m, p)| !OPEN.contains(&(m.as_str(), p.as_str()))).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (method, path) in &routes {
        for who in everybody() {
            for foreign in [false, true] {
                runtime.block_on(asks(method, path, who, foreign));
            }
        }
    }
}

/// By nobody and by somebody who may: the headers are on what is refused too.
#[test]
fn no_answer_is_kept_on_its_way_or_taken_for_something_else() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut routes = documented();
    routes.extend(
        [
            ("GET", "/v1"),
            ("GET", "/v1/nothing"),
            ("PUT", "/v1/tenants"),
            ("GET", "/openapi.json"),
            ("GET", "/docs"),
            ("GET", "/"),
        ]
        .map(|(m, p)| (m.to_owned(), p.to_owned())),
    );
    for (method, path) in &routes {
        runtime.block_on(async {
            let world = World::new().await;
            let (asked, body) = request(method, path, &world.own);
            for key in ["nonsense", ADMIN] {
                let headers = [("authorization", &*format!("Bearer {key}"))];
                let answer = world.answer(method, &asked, &headers, body.clone()).await;
                let told = format!("{method} {asked}: {} {:?}", answer.status(), answer.headers());
                assert_eq!(answer.headers().get("x-content-type-options").unwrap(), "nosniff", "{told}");
                let kept = answer.headers().get("cache-control").map(|kept| kept.to_str().unwrap());
                let is_private = path.starts_with("/v1") || path.starts_with("/portal");
                assert_eq!(kept == Some("no-store"), is_private, "{told}");
            }
        });
    }
}

async fn asks(method: &str, path: &str, who: Who, foreign: bool) {
    let mut world = World::new().await;
    if path.ends_with("/retry") {
        world.end(&world.own.delivery).await;
        world.end(&world.foreign.delivery).await;
    }
    let with = who.comes(&mut world).await;
    let (asked, body) = request(method, path, if foreign { &world.foreign } else { &world.own });
    let (status, answer) = world.ask_with(&with, method, &asked, body).await;
    let told = format!("{method} {asked} by {who:?}, foreign: {foreign}: {status} {answer}");
    if let Some(expected) = who.is_refused(method, meant_for(method, path)) {
        assert_eq!(status, expected, "{told}");
        assert!(answer["code"].is_string(), "{told}");
        return;
    }
    if foreign && who.is_bound() {
        let expected = match (method, path) {
            // There is nothing to say whose.
            (_, "/portal/session") | ("GET", "/v1/tenants" | "/v1/keys") => StatusCode::OK,
            // Types are everybody's.
            ("GET", "/v1/event-types/{name}") => StatusCode::OK,
            // A list of what fits: nothing does.
            ("GET", path) if !path.contains('{') => StatusCode::OK,
            // Each event has its own answer.
            ("POST", "/v1/events/batch") => StatusCode::OK,
            _ => StatusCode::NOT_FOUND,
        };
        let left = (method, path) == ("DELETE", "/portal/session") && status == StatusCode::NO_CONTENT;
        assert!(status == expected || left, "{told}");
        let refused = answer["results"][0]["error"]["code"].as_str();
        assert!(path != "/v1/events/batch" || refused == Some("not_found"), "{told}");
    } else {
        // Nothing is sent in this test, so a trial says that it cannot be.
        let untried = path.ends_with("/test") && status == StatusCode::CONFLICT;
        // Nor does anybody have to agree.
        let unasked = path.ends_with("/verify") && status == StatusCode::CONFLICT;
        // And no payload is encrypted.
        let unerased = path.ends_with("/payloads") && status == StatusCode::CONFLICT;
        assert!(status.is_success() || untried || unasked || unerased, "{told}");
    }
    let is_shown = status.is_success() && method == "GET" && who.is_bound();
    for id in world.foreign.all().into_iter().filter(|_| is_shown) {
        assert!(!answer.to_string().contains(id), "it shows {id}: {told}");
    }
    let found = answer["data"].as_array().map_or(1, Vec::len);
    assert!(foreign || method != "GET" || found > 0, "there is something to see: {told}");
}
