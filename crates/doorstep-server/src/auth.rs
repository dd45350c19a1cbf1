//! Who may ask: whoever has a key or a portal session, for what it is good for, as far as it reaches.
//!
//! A request is judged before any handler sees it: its credential here, what it asks for by the table in `rules`. How far
//! the credential [reaches](doorstep_core::reach::Reach) goes along to the store's own verbs.

pub(crate) mod source;
pub(crate) mod caller;
pub(crate) mod ring;
pub(crate) mod rules;
pub(crate) mod cookie;
pub(crate) mod notes;
pub(crate) mod guesses;
pub(crate) mod strangers;
#[cfg(test)]
pub(crate) mod world;
#[cfg(test)]
mod matrix;
#[cfg(test)]
mod sent;
#[cfg(test)]
mod refused;
#[cfg(test)]
mod stories;
#[cfg(test)]
mod changed_keys;
#[cfg(test)]
mod reach;

use std::net::IpAddr;

use axum::extract::{MatchedPath, Request};
use doorstep_core::api_key::{KeyText, Scope};
use doorstep_core::audit::Actor;
use doorstep_core::clock::Now;
use doorstep_core::portal::session_of;
use doorstep_core::reach::Reach;
use http::StatusCode;
use http::header::AUTHORIZATION;

pub use doorstep_core::api_key::{KEY_BYTES_MAX, KeyHash, NotAHash};
pub use source::{Peer, Proxies};

use crate::app::App;
use crate::problem::{Code, Problem};
use caller::Caller;
use rules::Need;
use source::Source;

/// Who asks, if they carry a credential which is good for it.
pub(crate) fn leave(app: &App, request: &Request) -> Result<Caller, Problem> {
    let caller = recognise(app, request).map_err(|problem| {
        app.strangers.refused(request.headers(), source_of(request), &problem);
        let is_guess = problem.status() == StatusCode::UNAUTHORIZED && shows_a_credential(request);
        if is_guess { slowed_down(app, source_of(request), problem) } else { problem }
    })?;
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    if let Err(problem) = judge(rules::need(request.method(), path), &caller) {
        app.notes.denied(&caller, app.engine.now(), format!("{} {path}", request.method()));
        return Err(problem);
    }
    Ok(caller)
}

fn shows_a_credential(request: &Request) -> bool {
    request.headers().contains_key(AUTHORIZATION) || cookie::read(request.headers()).is_some()
}

/// A credential was refused; after too many of them, why is not told any more.
pub(crate) fn slowed_down(app: &App, from: Option<IpAddr>, problem: Problem) -> Problem {
    app.guesses.refused(from, app.engine.now()).map_or_else(Problem::too_many_refused, |()| problem)
}

fn source_of(request: &Request) -> Option<IpAddr> {
    request.extensions().get::<Source>().and_then(|source| source.0)
}

/// Who it is.
fn recognise(app: &App, request: &Request) -> Result<Caller, Problem> {
    let from = source_of(request);
    match request.headers().get(AUTHORIZATION) {
        Some(given) => {
            let key = given.to_str().ok().and_then(bearer);
            let key =
                key.ok_or_else(|| Problem::unauthorized("the Authorization header is not of the form `Bearer KEY`"))?;
            by_key(app, key, from)
        }
        None => match cookie::read(request.headers()) {
            Some(token) => by_token(app, request, token, from),
            None => Err(Problem::unauthorized("there is no key: send the header `Authorization: Bearer KEY`")),
        },
    }
}

fn by_key(app: &App, text: &str, from: Option<IpAddr>) -> Result<Caller, Problem> {
    if app.admin_key.is_of(text) && app.guesses.admits_admin(from, app.engine.now()) {
        let (actor, scopes) = (Actor::Bootstrap, [Scope::Admin].into());
        return Ok(Caller { actor, scopes, reach: Reach::All, from, shown: None });
    }
    let unknown = || {
        Problem::unauthorized("this key is not known (any more): check that it is the right one, or ask for a new one")
    };
    let given = KeyText::parse(text).map_err(|fault| Problem::unauthorized(&fault.to_string()))?;
    let held = app.keys.get(given.id).ok_or_else(unknown)?;
    let (Now { at: now, wall }, shown) = (app.engine.look(), given.hash());
    if !held.key.recognises(&shown, wall) {
        return Err(unknown());
    }
    let key = &held.key;
    let actor = Actor::Key { id: key.id, name: key.name.clone() };
    let caller = Caller { actor, scopes: key.scopes.clone(), reach: key.reach(), from, shown: Some(shown) };
    if key.is_over(wall) {
        return Err(Problem::unauthorized("this key has expired: ask for a new one"));
    }
    if !key.may_come_from(from) {
        app.notes.denied(&caller, now, "source address".to_owned());
        return Err(Problem::new(Code::WrongSource, "this key may not be used from this address"));
    }
    held.used(now);
    Ok(caller)
}

fn by_token(app: &App, request: &Request, token: &str, from: Option<IpAddr>) -> Result<Caller, Problem> {
    let over = || Problem::unauthorized("this portal session is over: open the portal again from where you came");
    let id = session_of(token).ok_or_else(over)?;
    let session = app.sessions.opened(id, token, app.engine.now()).ok_or_else(over)?;
    if !request.method().is_safe() && !cookie::is_from_our_pages(request.headers()) {
        return Err(Problem::new(Code::CrossSite, "a portal session changes things from its own pages alone"));
    }
    let (actor, scopes) = (Actor::Portal { id }, [Scope::Read, Scope::Operate].into());
    Ok(Caller { actor, scopes, reach: Reach::Tenant(session.tenant_id), from, shown: None })
}

fn judge(need: Need, caller: &Caller) -> Result<(), Problem> {
    let (Need::Has(scope) | Need::Everywhere(scope)) = need else {
        let is_portal = matches!(caller.actor, Actor::Portal { .. });
        let detail = "this is for portal sessions: keys do not need it";
        return if is_portal { Ok(()) } else { Err(Problem::new(Code::NotAPortalSession, detail)) };
    };
    if !scope.is_in(&caller.scopes) {
        let held: Vec<&str> = caller.scopes.iter().map(|scope| scope.name()).collect();
        let detail = format!("this needs the scope `{}`; this credential has {}", scope.name(), held.join(", "));
        return Err(Problem::new(Code::MissingScope, detail));
    }
    if matches!(need, Need::Everywhere(_)) && caller.reach != Reach::All {
        let detail = "this is the operator's to do: this credential is limited to one tenant";
        return Err(Problem::new(Code::LimitedToATenant, detail));
    }
    Ok(())
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, key) = value.split_once(' ')?;
    let key = key.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !key.is_empty()).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_is_read_in_any_case_and_nothing_else_is() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer("bearer  abc "), Some("abc"));
        for wrong in ["", "Bearer", "Bearer ", "Basic abc", "abc"] {
            assert_eq!(bearer(wrong), None, "{wrong:?}");
        }
    }
}
