//! What each operation can say no with: what follows from how it is asked, and, one line each, what is its own.
//!
//! Every answer that a test of this crate sees is held against it (`seen`).

use doorstep_core::api_key::Scope;
use http::Method;
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::{Content, Ref, RefOr, Response, ResponseBuilder};

use super::headers;
use crate::auth::rules::{self, Need, RULES};
use crate::problem::Code;

/// The codes that an answer with this status may have, for programs.
pub(super) const CODES: &str = "x-problem-codes";

/// What changes something is written.
const WRITES: &[Code] = &[Code::Busy, Code::StoreUnavailable, Code::Unreadable, Code::ShuttingDown];
/// Whatever is read for people is cut off if it takes too long.
const READS: &[Code] = &[Code::StoreUnavailable, Code::Unreadable, Code::TooBroad];
/// Asks the scheduler, which ends before the process does.
const RUNS: &[Code] = &[Code::ShuttingDown];

const NOTHING: &[&[Code]] = &[];

/// What does not follow from the shape of the operation. Whatever is no `GET` writes.
const OWN: &[(Method, &str, &[&[Code]])] = &[
    (Method::GET, "/v1/tenants", NOTHING),
    (Method::POST, "/v1/tenants", NOTHING),
    (Method::GET, "/v1/tenants/{id}", NOTHING),
    (Method::PATCH, "/v1/tenants/{id}", NOTHING),
    (Method::GET, "/v1/tenants/{id}/usage", &[READS]),
    (Method::DELETE, "/v1/tenants/{id}/payloads", &[&[Code::NothingEncrypted]]),
    (Method::GET, "/v1/destinations", &[READS, RUNS]),
    (Method::POST, "/v1/destinations", &[READS, &[Code::NotFound, Code::TooManyDestinations]]),
    (Method::GET, "/v1/destinations/{id}", &[READS, RUNS]),
    (Method::PATCH, "/v1/destinations/{id}", &[READS]),
    (Method::DELETE, "/v1/destinations/{id}", NOTHING),
    (Method::POST, "/v1/destinations/{id}/pause", &[READS, &[Code::NotSavedYet]]),
    (Method::POST, "/v1/destinations/{id}/resume", &[READS, &[Code::NotSavedYet]]),
    (Method::POST, "/v1/destinations/{id}/probe", &[READS, &[Code::NotSavedYet]]),
    (Method::POST, "/v1/destinations/{id}/clear-throttle", &[READS, &[Code::NotSavedYet]]),
    (Method::POST, "/v1/destinations/{id}/test", &[&[Code::Unsendable, Code::NoConsent, Code::TooOften]]),
    (Method::POST, "/v1/destinations/{id}/verify", &[READS, &[Code::NeedsNoConsent, Code::TooOften]]),
    // Two at the same time: one of them comes too late.
    (
        Method::POST,
        "/v1/destinations/{id}/secrets/rotate",
        &[&[Code::TooManySecrets, Code::NoLinks, Code::ChangedMeanwhile]],
    ),
    (Method::GET, "/v1/destinations/{id}/consent", &[WRITES, &[Code::BadLink, Code::Gone]]),
    (Method::POST, "/v1/destinations/{id}/consent", &[&[Code::BadLink, Code::Gone]]),
    (
        Method::POST,
        "/v1/events",
        &[&[Code::NotFound, Code::QuotaExceeded, Code::EventDiffers, Code::IdempotencyKeyReused]],
    ),
    // What is wrong with one event stands in its result.
    (Method::POST, "/v1/events/batch", NOTHING),
    (Method::GET, "/v1/events", &[READS]),
    (Method::GET, "/v1/events/{id}", &[READS]),
    (Method::GET, "/v1/events/{id}/payload", &[READS, &[Code::BadLink, Code::Gone, Code::Busy]]),
    (Method::GET, "/v1/deliveries", &[READS, RUNS]),
    (Method::GET, "/v1/deliveries/{id}", &[READS, RUNS]),
    (Method::GET, "/v1/deliveries/{id}/attempts/{number}", &[READS]),
    (Method::POST, "/v1/deliveries/{id}/retry", &[READS, &[Code::NotDead, Code::DestinationGone]]),
    (Method::POST, "/v1/deliveries/{id}/abandon", &[READS, &[Code::AlreadyEnded]]),
    (Method::GET, "/v1/event-types", NOTHING),
    (Method::POST, "/v1/event-types", &[&[Code::AlreadyExists]]),
    (Method::GET, "/v1/event-types/{name}", NOTHING),
    (Method::PATCH, "/v1/event-types/{name}", NOTHING),
    (Method::DELETE, "/v1/event-types/{name}", &[&[Code::NotArchived]]),
    (Method::GET, "/v1/stream", NOTHING),
    (Method::GET, "/v1/keys", &[READS]),
    (Method::POST, "/v1/keys", &[&[Code::NotFound, Code::TooManyKeys]]),
    (Method::GET, "/v1/keys/{id}", &[READS]),
    (Method::PATCH, "/v1/keys/{id}", &[READS, &[Code::KeyEnded]]),
    (Method::DELETE, "/v1/keys/{id}", &[READS]),
    (Method::POST, "/v1/keys/{id}/rotate", &[READS, &[Code::KeyEnded, Code::LessLimited]]),
    (Method::GET, "/v1/audit", &[READS]),
    (Method::POST, "/v1/portal-sessions", &[&[Code::NotFound, Code::TooManyPortalSessions]]),
    (Method::DELETE, "/v1/portal-sessions", &[&[Code::NotFound]]),
    // The code is the credential.
    (Method::POST, "/portal/session", &[&[Code::Unauthorized, Code::TooManyRefused, Code::CrossSite]]),
    // It may end between being let in and being looked for.
    (Method::GET, "/portal/session", &[&[Code::NotFound]]),
    (Method::DELETE, "/portal/session", &[&[Code::NotFound]]),
    (Method::GET, "/healthz", NOTHING),
    (Method::GET, "/readyz", NOTHING),
    (Method::GET, "/metrics", NOTHING),
];

/// Adds an answer for each status that the operation can say no with.
pub(super) fn describe(method: &Method, path: &str, operation: &mut Operation) {
    let mut codes = codes(method, path, operation);
    codes.sort_by_key(|code| (code.status().as_u16(), code.name()));
    codes.dedup();
    for of_one_status in codes.chunk_by(|one, next| one.status() == next.status()) {
        let status = of_one_status[0].status().as_u16().to_string();
        let answer = RefOr::T(answer(of_one_status));
        // What an operation describes itself is something else: `/readyz` and its 503.
        operation.responses.responses.entry(status).or_insert(answer);
    }
}

fn codes(method: &Method, path: &str, operation: &Operation) -> Vec<Code> {
    // A request that could be read in two ways is refused before anybody looks at what it asks for.
    let mut codes = vec![Code::MalformedRequest];
    if RULES.iter().any(|(of, route, _)| of == method && *route == path) {
        codes.extend(guarded(method, rules::need(method, path)));
    }
    codes.extend(asked(operation));
    if *method != Method::GET {
        codes.extend(WRITES);
    }
    let own = OWN.iter().find(|(of, route, _)| of == method && *route == path);
    codes.extend(own.map_or(NOTHING, |(_, _, codes)| codes).iter().copied().flatten());
    codes
}

/// Why somebody is not let in.
fn guarded(method: &Method, need: Need) -> Vec<Code> {
    // Whoever is limited to a tenant may have too much under way.
    let mut codes = vec![Code::Unauthorized, Code::TooManyRefused, Code::WrongSource, Code::Internal, Code::Busy];
    if !method.is_safe() {
        codes.push(Code::CrossSite);
    }
    codes.extend(match need {
        Need::Has(Scope::Ingest | Scope::Read | Scope::Operate | Scope::Admin) => &[Code::MissingScope][..],
        Need::Everywhere(_) => &[Code::MissingScope, Code::LimitedToATenant],
        Need::PortalSession => &[Code::NotAPortalSession],
    });
    codes
}

/// What can be wrong with the parts of a request.
fn asked(operation: &Operation) -> Vec<Code> {
    let mut codes = Vec::new();
    for parameter in operation.parameters.iter().flatten() {
        let RefOr::T(Parameter { name, parameter_in, .. }) = parameter else { continue };
        codes.extend(match parameter_in {
            ParameterIn::Path => Some(Code::NotFound),
            ParameterIn::Query | ParameterIn::QueryString => Some(Code::InvalidRequest),
            ParameterIn::Header => (name == "if-match").then_some(Code::ChangedMeanwhile),
            ParameterIn::Cookie => None,
        });
    }
    if operation.request_body.is_some() {
        codes.extend([Code::InvalidRequest, Code::TooSlow, Code::TooLarge, Code::NotJson]);
    }
    codes
}

fn answer(codes: &[Code]) -> Response {
    let told: Vec<String> = codes.iter().map(|code| format!("`{}`: {}", code.name(), code.about())).collect();
    let names: Vec<&str> = codes.iter().map(|code| code.name()).collect();
    let problem = Content::new(Some(RefOr::Ref(Ref::from_schema_name("Problem"))));
    let mut answer = ResponseBuilder::new()
        .description(told.join("\n\n"))
        .content("application/problem+json", problem)
        .extensions(Some(Extensions::from_iter([(CODES, names)])))
        .build();
    headers::of_problems(codes, &mut answer);
    answer
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_operation_has_its_line_and_every_line_its_operation() {
        let document = serde_json::to_value(crate::router::document()).unwrap();
        let mut described = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            described.extend(item.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone())));
        }
        let lines = OWN.iter().map(|(method, path, _)| (method.to_string(), (*path).to_owned()));
        assert_eq!(lines.collect::<BTreeSet<_>>(), described);
    }

    #[test]
    fn every_code_is_some_operations() {
        let document = serde_json::to_string(&crate::router::document().paths).unwrap();
        // No operation answers a method that is not its own.
        for code in Code::ALL.iter().filter(|code| **code != Code::MethodNotAllowed) {
            assert!(document.contains(&format!("`{}`: ", code.name())), "nobody says {code:?}");
        }
    }
}
