//! Errors as RFC 9457 problems: what, where, and how to fix it.

pub(crate) mod code;

use axum::response::{IntoResponse, Response};
use doorstep_core::engine::EngineFault;
use doorstep_core::quota::{QuotaExceeded, Resource};
use doorstep_core::store::{Refusal, StoreError};
use doorstep_core::time::Millis;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

use crate::rates::{RATE_POLICY, Standing};
pub(crate) use code::Code;

/// So many faults of one request are reported.
const ERRORS_MAX: usize = 20;
/// Where a fault is, and what is wrong, in characters: both may repeat what was sent, and an answer must not be many times longer than that.
const POINTER_CHARS_MAX: usize = 300;
const DETAIL_CHARS_MAX: usize = 1_000;
/// A producer that is told to come back does so after this many seconds.
const BUSY_FOR: u32 = 1;
const STORE_AWAY_FOR: u32 = 5;
const QUOTA_FOR: u32 = 60;

/// An answer that says no.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// What kind of problem it is, in the documentation.
    #[schema(value_type = String, example = "/docs#problem-invalid_request")]
    r#type: Box<str>,
    #[schema(example = "The request is not valid")]
    title: &'static str,
    #[schema(example = 422)]
    status: u16,
    /// What happened and what to do.
    detail: String,
    code: Code,
    /// Where in the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<FieldFault>,
    /// Seconds after which to try again; also in the header `Retry-After`.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u32>,
    #[serde(flatten)]
    #[schema(value_type = Violated)]
    violated: Option<Box<Violated>>,
}

/// What a producer is told that sends too fast or too much, in the words of draft-ietf-httpapi-ratelimit-headers.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Violated {
    /// `ingest` for the rate; `queued_deliveries` or `stored_bytes` for what the tenant may have of them.
    #[serde(rename = "violated-policies")]
    #[schema(required = false)]
    violated_policies: [&'static str; 1],
    /// What the tenant may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    /// What it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<u64>,
    #[serde(skip)]
    standing: Option<Standing>,
}

/// What is wrong at one place of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct FieldFault {
    /// A JSON Pointer into the body; `?name` for a parameter of the query, `name:` for a header.
    #[schema(example = "/url")]
    pub(crate) pointer: String,
    pub(crate) detail: String,
}

impl FieldFault {
    pub(crate) fn new(pointer: impl Into<String>, detail: impl ToString) -> Self {
        Self { pointer: cut(pointer.into(), POINTER_CHARS_MAX), detail: cut(detail.to_string(), DETAIL_CHARS_MAX) }
    }

    /// In one line. An empty pointer is the whole body.
    fn told(&self) -> String {
        let place = if self.pointer.is_empty() { "the body" } else { &self.pointer };
        format!("{place}: {}", self.detail)
    }
}

/// Its beginning, if it is longer than that.
fn cut(mut text: String, chars_max: usize) -> String {
    if let Some((at, _)) = text.char_indices().nth(chars_max) {
        text.truncate(at);
        text.push('…');
    }
    text
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            r#type: code.place().into(),
            title: code.title(),
            status: code.status().as_u16(),
            detail: detail.into(),
            code,
            errors: Vec::new(),
            retry_after: None,
            violated: None,
        }
    }

    /// A request that can be read, but asks for something that cannot be.
    pub(crate) fn invalid(mut errors: Vec<FieldFault>) -> Self {
        errors.truncate(ERRORS_MAX);
        let detail = match errors.as_slice() {
            [one] => one.told(),
            several => format!("{} things are wrong; see `errors`", several.len()),
        };
        Self { errors, ..Self::new(Code::InvalidRequest, detail) }
    }

    pub(crate) fn invalid_at(pointer: impl Into<String>, detail: impl ToString) -> Self {
        Self::invalid(vec![FieldFault::new(pointer, detail)])
    }

    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(Code::MalformedRequest, detail)
    }

    pub(crate) fn unauthorized(detail: &str) -> Self {
        Self::new(Code::Unauthorized, detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(Code::NotFound, detail)
    }

    /// Something that the request names is not there, at that place of it.
    pub(crate) fn names_nothing(pointer: &str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let errors = vec![FieldFault::new(pointer, &detail)];
        Self { errors, ..Self::not_found(format!("{pointer}: {detail}")) }
    }

    pub(crate) fn too_large(detail: impl Into<String>) -> Self {
        Self::new(Code::TooLarge, detail)
    }

    pub(crate) fn precondition(detail: impl Into<String>) -> Self {
        Self::new(Code::ChangedMeanwhile, detail)
    }

    fn later(code: Code, detail: impl Into<String>, after: u32) -> Self {
        Self { retry_after: Some(after), ..Self::new(code, detail) }
    }

    pub(crate) fn busy(detail: impl Into<String>) -> Self {
        Self::later(Code::Busy, detail, BUSY_FOR)
    }

    /// A producer sends faster than its tenant may.
    pub(crate) fn over_rate(standing: Standing, wait: Millis) -> Self {
        let after = whole_seconds(wait);
        let detail = format!("the tenant's events come faster than its ingest rate allows: try again in {after} s");
        Self::quota(
            detail,
            after,
            Violated { violated_policies: [RATE_POLICY], limit: None, used: None, standing: Some(standing) },
        )
    }

    /// A tenant has as much as it may.
    fn over_quota(exceeded: QuotaExceeded) -> Self {
        let QuotaExceeded { what, limit, used } = exceeded;
        let (policy, remedy) = match what {
            Resource::QueuedDeliveries => (
                "queued_deliveries",
                "wait until some are delivered, or delete destinations that receive nothing any more",
            ),
            Resource::StoredBytes => {
                ("stored_bytes", "wait until old events are removed, or keep them for a shorter time")
            }
        };
        let detail = format!("{exceeded}: {remedy}; the operator can raise the tenant's `quota.{policy}`");
        let violated = Violated { violated_policies: [policy], limit: Some(limit), used: Some(used), standing: None };
        Self::quota(detail, QUOTA_FOR, violated)
    }

    fn quota(detail: String, retry_after: u32, violated: Violated) -> Self {
        Self {
            r#type: "https://iana.org/assignments/http-problem-types#quota-exceeded".into(),
            retry_after: Some(retry_after),
            violated: Some(Box::new(violated)),
            ..Self::new(Code::QuotaExceeded, detail)
        }
    }

    /// Too many credentials from this address were refused.
    pub(crate) fn too_many_refused(wait: Millis) -> Self {
        let after = whole_seconds(wait);
        let detail = format!(
            "too many credentials from this address were refused: check the one that is sent, and try again in {after} s"
        );
        Self::later(Code::TooManyRefused, detail, after)
    }

    /// The same key, but not the same request.
    fn key_reused() -> Self {
        Self::new(
            Code::IdempotencyKeyReused,
            "a request with this Idempotency-Key was accepted before and said something else: repeat that one exactly, or \
             choose another key",
        )
    }

    pub(crate) fn refused(refusal: Refusal) -> Self {
        match refusal {
            Refusal::EventDiffers => Self::new(
                Code::EventDiffers,
                "an event with this ID was accepted before and says something else: \
                 repeat it exactly, or choose another ID",
            ),
            Refusal::SourceDiffers => Self::new(
                Code::EventDiffers,
                "an event with this ID was accepted before from another source: choose another ID",
            ),
            Refusal::KeyReused => Self::key_reused(),
            Refusal::NotFound => Self::not_found("there is no such thing (any more)"),
            Refusal::VersionDiffers => {
                Self::precondition("somebody else has changed it: read it again, and make your change once more")
            }
            Refusal::NotDead => Self::new(
                Code::NotDead,
                "it is not dead: it was delivered, or is still being tried and needs no retry by hand",
            ),
            Refusal::TooManyDestinations { max } => Self::new(
                Code::TooManyDestinations,
                format!(
                    "the tenant has {max} destinations, as many as it may: remove one that is not needed any more, or ask the operator \
                     to raise `destinations_per_tenant_max`"
                ),
            ),
            Refusal::QuotaExceeded(exceeded) => Self::over_quota(exceeded),
            Refusal::FilterTooCostly { .. } => Self::invalid_at("/filter", refusal),
            Refusal::EventUnreadable => Self::later(
                Code::Unreadable,
                "an event with this ID was accepted before, but its stored copy cannot be read: send it with another ID, or ask the \
                 operator to restore it",
                STORE_AWAY_FOR,
            ),
            Refusal::TenantKeyUnreadable => Self::later(
                Code::Unreadable,
                "the key that this tenant's payloads are encrypted with cannot be read: the operator has to restore it",
                STORE_AWAY_FOR,
            ),
            Refusal::Damaged => Self::later(
                Code::Unreadable,
                "the stored data is damaged; the server's log names the reason",
                STORE_AWAY_FOR,
            ),
            Refusal::NotWritten => Self::busy("not written, unlike the events before it in this batch: send it again"),
            Refusal::AlreadyEnded => Self::new(Code::AlreadyEnded, "it has already been delivered or abandoned"),
        }
    }

    /// What happened and what to do.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The same with as many of its faults as there is room for, and one in any case. `room` is what is left after it.
    pub(crate) fn within_room(mut self, room: &mut usize) -> Self {
        self.errors.truncate((*room).max(1));
        *room = room.saturating_sub(self.errors.len());
        self
    }

    /// The same, of a request whose fields are called otherwise.
    pub(crate) fn elsewhere(mut self, place: impl Fn(&str) -> String) -> Self {
        for fault in self.errors.iter_mut().filter(|fault| fault.pointer.starts_with('/')) {
            fault.pointer = place(&fault.pointer);
        }
        self.within("")
    }

    /// The same, of one part of a larger body.
    pub(crate) fn within(mut self, prefix: &str) -> Self {
        for fault in &mut self.errors {
            if fault.pointer.is_empty() || fault.pointer.starts_with('/') {
                fault.pointer.insert_str(0, prefix);
            }
        }
        if let [one] = self.errors.as_slice() {
            self.detail = one.told();
        }
        self
    }
}

/// Rounded up: whoever comes back then is not too early.
fn whole_seconds(wait: Millis) -> u32 {
    u32::try_from(wait.0.div_ceil(1_000)).unwrap_or(u32::MAX)
}

impl From<EngineFault> for Problem {
    fn from(fault: EngineFault) -> Self {
        match fault {
            EngineFault::Busy => Self::busy("too much is waiting to be done: try again in a moment"),
            EngineFault::Store(fault) => Self::from(&*fault),
            EngineFault::Stopped => Self::later(
                Code::ShuttingDown,
                "nothing is taken any more: ask another node, or again in a moment",
                STORE_AWAY_FOR,
            ),
            EngineFault::Unsaved => Self::later(Code::NotSavedYet, fault.to_string(), STORE_AWAY_FOR),
            EngineFault::Unsendable(why) => Self::new(Code::Unsendable, why),
            EngineFault::TooOften(wait) => {
                let after = whole_seconds(wait);
                let detail =
                    format!("one tenant's destinations are tested or asked only so often: try again in {after} s");
                let problem = Self::new(Code::TooOften, detail);
                Self { retry_after: Some(after), ..problem }
            }
            EngineFault::NoConsent => Self::new(
                Code::NoConsent,
                "its receiver has not agreed to be sent to: see `consent` of the destination, and ask again with POST …/verify",
            ),
        }
    }
}

impl From<&StoreError> for Problem {
    fn from(fault: &StoreError) -> Self {
        if matches!(fault, StoreError::TookTooLong) {
            let detail = "narrow it down: to a destination, a tenant, or a shorter time";
            return Self::new(Code::TooBroad, detail);
        }
        // What went wrong inside is for the log, not for whoever asks.
        tracing::warn!(error = %fault, source = ?std::error::Error::source(fault), "the store did not answer a request");
        if matches!(fault, StoreError::Corrupt(_)) {
            let detail = "the stored data cannot be read, and nothing was changed; the server's log names the reason";
            return Self::later(Code::Unreadable, detail, STORE_AWAY_FOR);
        }
        Self::later(
            Code::StoreUnavailable,
            "nothing was changed; try again in a moment. The operator finds the reason in the log",
            STORE_AWAY_FOR,
        )
    }
}

impl From<StoreError> for Problem {
    fn from(fault: StoreError) -> Self {
        Self::from(&fault)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self::refused(refusal)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (self.status(), body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(after) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(after));
        }
        if let Some(standing) = self.violated.as_ref().and_then(|violated| violated.standing) {
            standing.tell(headers);
        }
        if self.status() == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_was_sent_is_not_repeated_at_length() {
        let long = "ü".repeat(100_000);
        let fault = FieldFault::new(format!("/{long}"), &long);
        assert_eq!((fault.pointer.chars().count(), fault.detail.chars().count()), (301, 1_001));
        let many = Problem::invalid(vec![fault; 100]);
        assert!(serde_json::to_string(&many).unwrap().len() < 60_000);
        let mut room = 25;
        let told: Vec<usize> = (0..4).map(|_| many.clone().within_room(&mut room).errors.len()).collect();
        assert_eq!((told, room), (vec![20, 5, 1, 1], 0));
    }

    #[test]
    fn a_fault_of_the_whole_body_says_so() {
        let problem = Problem::invalid(vec![FieldFault::new("", "expected an object")]);
        assert_eq!(problem.detail, "the body: expected an object");
        assert_eq!(problem.within("/events/3").detail, "/events/3: expected an object");
    }

    #[test]
    fn whoever_is_to_come_back_later_is_told_when() {
        let later = [
            EngineFault::Busy.into(),
            EngineFault::Stopped.into(),
            EngineFault::Unsaved.into(),
            Problem::from(StoreError::Unavailable("gone".into())),
            Problem::from(StoreError::Corrupt("damaged".into())),
        ];
        let codes: BTreeSet<Code> = later.iter().map(|problem| problem.code).collect();
        let all = Code::ALL.iter().filter(|code| code.status() == StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(codes, all.copied().collect(), "every one of them is made here");
        for problem in later {
            let code = problem.code;
            assert!(problem.into_response().headers().contains_key(RETRY_AFTER), "{code:?}");
        }
    }

    #[test]
    fn a_tenant_over_its_quota_is_told_of_what_and_how_much() {
        for (what, policy) in
            [(Resource::QueuedDeliveries, "queued_deliveries"), (Resource::StoredBytes, "stored_bytes")]
        {
            let problem = Problem::from(Refusal::QuotaExceeded(QuotaExceeded { what, limit: 10, used: 12 }));
            let told = serde_json::to_value(&problem).unwrap();
            assert_eq!((&told["status"], &told["code"]), (&429.into(), &"quota_exceeded".into()));
            assert_eq!((&told["limit"], &told["used"]), (&10.into(), &12.into()));
            assert_eq!(told["violated-policies"], serde_json::json!([policy]));
            assert!(problem.detail.starts_with(&format!("the tenant has 12 {what}, and 10 are allowed")), "{told}");
            assert!(problem.into_response().headers().contains_key(RETRY_AFTER));
        }
    }

    #[test]
    fn whoever_tests_too_often_hears_when_to_come_back() {
        let problem = Problem::from(EngineFault::TooOften(Millis(1_001)));
        assert_eq!((problem.status, problem.code, problem.retry_after), (429, Code::TooOften, Some(2)));
    }
}
