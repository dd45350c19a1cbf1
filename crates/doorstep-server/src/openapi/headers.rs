//! Headers that answers carry for the programs that read them.

use http::Method;
use serde_json::json;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Response};

use crate::problem::Code;

/// A header, as it is described.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) name: &'static str,
    about: &'static str,
    example: &'static str,
}

const ETAG: Told = Told {
    name: "ETag",
    about: "Its version. Give it as `If-Match` with a change, which is then made only if nobody else made one.",
    example: "\"3\"",
};
const LOCATION: Told = Told {
    name: "Location",
    about: "Where what was made is found.",
    example: "/v1/destinations/dst_01j9zq3k5v8w2x4y6z7a8b9c0d",
};
const RATE_POLICY: Told = Told {
    name: "RateLimit-Policy",
    about: "How many events (`q`) the tenant's producers may send in how many seconds (`w`). Only where there is a limit.",
    example: "\"ingest\";q=100;w=1",
};
const RATE: Told = Told {
    name: "RateLimit",
    about: "How many more may come now (`r`), and after how many seconds as many as ever (`t`). Only where there is a limit.",
    example: "\"ingest\";r=42;t=1",
};
const REPLAYED: Told = Told {
    name: "Idempotency-Replayed",
    about: "`true` if this `Idempotency-Key` came before, and this is that request's answer once more.",
    example: "true",
};
const COOKIE: Told = Told {
    name: "Set-Cookie",
    about: "The portal session's cookie; an empty one when it is left.",
    example: "__Host-doorstep_portal=pss_…; Path=/; HttpOnly; SameSite=Strict; Secure",
};
const AGAIN: Told = Told { name: "Retry-After", about: "Seconds after which to try again.", example: "5" };
const AUTHENTICATE: Told = Told { name: "WWW-Authenticate", about: "How to say who you are.", example: "Bearer" };

/// All of them: one that an answer has is described.
#[cfg(test)]
pub(super) const ALL: &[Told] = &[ETAG, LOCATION, RATE_POLICY, RATE, REPLAYED, COOKIE, AGAIN, AUTHENTICATE];

/// What answers carry that say yes.
const SENT: &[(Method, &str, &[Told])] = &[
    (Method::POST, "/v1/tenants", &[ETAG, LOCATION]),
    (Method::GET, "/v1/tenants/{id}", &[ETAG]),
    (Method::PATCH, "/v1/tenants/{id}", &[ETAG]),
    (Method::POST, "/v1/destinations", &[ETAG, LOCATION]),
    (Method::GET, "/v1/destinations/{id}", &[ETAG]),
    (Method::PATCH, "/v1/destinations/{id}", &[ETAG]),
    (Method::POST, "/v1/destinations/{id}/pause", &[ETAG]),
    (Method::POST, "/v1/destinations/{id}/resume", &[ETAG]),
    (Method::POST, "/v1/destinations/{id}/probe", &[ETAG]),
    (Method::POST, "/v1/destinations/{id}/clear-throttle", &[ETAG]),
    (Method::POST, "/v1/destinations/{id}/verify", &[ETAG]),
    (Method::POST, "/v1/event-types", &[ETAG, LOCATION]),
    (Method::GET, "/v1/event-types/{name}", &[ETAG]),
    (Method::PATCH, "/v1/event-types/{name}", &[ETAG]),
    (Method::POST, "/v1/keys", &[ETAG, LOCATION]),
    (Method::GET, "/v1/keys/{id}", &[ETAG]),
    (Method::PATCH, "/v1/keys/{id}", &[ETAG]),
    (Method::POST, "/v1/keys/{id}/rotate", &[ETAG]),
    (Method::POST, "/v1/events", &[RATE_POLICY, RATE, REPLAYED]),
    (Method::POST, "/v1/events/batch", &[RATE_POLICY, RATE, REPLAYED]),
    (Method::POST, "/portal/session", &[COOKIE]),
    (Method::DELETE, "/portal/session", &[COOKIE]),
];

/// Adds them to the answer that says yes.
pub(super) fn describe(method: &Method, path: &str, operation: &mut Operation) {
    let Some((_, _, sent)) = SENT.iter().find(|(of, route, _)| of == method && *route == path) else { return };
    for (status, answer) in &mut operation.responses.responses {
        if let RefOr::T(answer) = answer
            && status.starts_with('2')
        {
            sent.iter().for_each(|told| told.add_to(answer));
        }
    }
}

/// And to one that says no.
pub(super) fn of_problems(codes: &[Code], answer: &mut Response) {
    for code in codes {
        let sent: &[Told] = match code.status().as_u16() {
            401 => &[AUTHENTICATE],
            429 if *code == Code::QuotaExceeded => &[AGAIN, RATE_POLICY, RATE],
            429 | 503 => &[AGAIN],
            _ => &[],
        };
        sent.iter().for_each(|told| told.add_to(answer));
    }
}

impl Told {
    fn add_to(&self, answer: &mut Response) {
        let schema = ObjectBuilder::new().schema_type(Type::String).examples([json!(self.example)]);
        let header = HeaderBuilder::new().schema(Some(schema.build())).description(Some(self.about));
        answer.headers.insert(self.name.to_owned(), RefOr::T(header.build()));
    }
}
