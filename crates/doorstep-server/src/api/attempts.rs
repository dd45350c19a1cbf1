//! Attempts as they are shown: what went over the wire and what came back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use doorstep_core::attempt::{Answer, Attempt, KeptHeaders};
use doorstep_core::id::AttemptId;
use doorstep_core::outcome::Fault;
use serde::Serialize;
use utoipa::ToSchema;

use crate::shape;
use crate::when::When;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AttemptView {
    #[schema(value_type = shape::AttemptId)]
    id: AttemptId,
    /// Counts the delivery's requests from 1.
    number: u32,
    started_at: When,
    /// What the receiver answered with, if it did.
    #[schema(required)]
    status_code: Option<u16>,
    /// Why there was no answer.
    #[schema(value_type = Option<shape::FaultName>, required)]
    error: Option<Fault>,
    timings: TimingsView,
    /// Null where a delivery is shown, except for its last five attempts: GET …/attempts/{number} has it of each.
    #[schema(required)]
    request: Option<MessageHead>,
    /// Null where `request` is.
    #[schema(required)]
    response: Option<ResponseView>,
}

/// How long each phase took, in milliseconds; null where it was not needed (a pooled connection) or not reached.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TimingsView {
    #[schema(required)]
    dns_ms: Option<u64>,
    #[schema(required)]
    connect_ms: Option<u64>,
    #[schema(required)]
    tls_ms: Option<u64>,
    #[schema(required)]
    first_byte_ms: Option<u64>,
    total_ms: u64,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessageHead {
    /// Signatures and secret values are masked.
    headers: Vec<HeaderView>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HeaderView {
    name: String,
    value: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ResponseView {
    headers: Vec<HeaderView>,
    /// The beginning of the body, if it is text.
    #[schema(required)]
    body: Option<String>,
    /// The beginning of the body, if it is not.
    #[schema(required)]
    body_base64: Option<String>,
    truncated: bool,
}

impl AttemptView {
    pub(crate) fn of(attempt: Attempt) -> Self {
        let (status_code, error) = match attempt.answer {
            Answer::Status(status) => (Some(status), None),
            Answer::Fault(fault) => (None, Some(fault)),
        };
        let timings = attempt.timings;
        let (body, body_base64) = match std::str::from_utf8(&attempt.response_body) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(STANDARD.encode(&attempt.response_body))),
        };
        Self {
            id: attempt.id,
            number: attempt.number,
            started_at: When(attempt.started_at),
            status_code,
            error,
            timings: TimingsView {
                dns_ms: timings.dns.map(|span| span.0),
                connect_ms: timings.connect.map(|span| span.0),
                tls_ms: timings.tls.map(|span| span.0),
                first_byte_ms: timings.first_byte.map(|span| span.0),
                total_ms: timings.total.0,
            },
            request: Some(MessageHead { headers: headers(&attempt.request_headers) }),
            response: Some(ResponseView {
                headers: headers(&attempt.response_headers),
                body,
                body_base64,
                truncated: attempt.response_truncated,
            }),
        }
    }

    /// That it was made, and what came of it.
    pub(crate) fn without_captured(attempt: Attempt) -> Self {
        Self { request: None, response: None, ..Self::of(attempt) }
    }
}

fn headers(kept: &KeptHeaders) -> Vec<HeaderView> {
    kept.pairs().into_iter().map(|(name, value)| HeaderView { name, value }).collect()
}
