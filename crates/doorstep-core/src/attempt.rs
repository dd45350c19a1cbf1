//! One request of a delivery: what went over the wire and what came back.

mod headers;

use bytes::Bytes;

use crate::id::AttemptId;
use crate::outcome::Fault;
use crate::time::{Millis, Timestamp};

pub use headers::KeptHeaders;

/// A request as it is kept beside its delivery. Signatures and secret headers are left out before it gets here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub id: AttemptId,
    /// Counts the delivery's requests from 1, those that cost nothing included.
    pub number: u32,
    pub started_at: Timestamp,
    pub timings: Timings,
    pub answer: Answer,
    pub request_headers: KeptHeaders,
    pub response_headers: KeptHeaders,
    /// The beginning of the answer's body.
    pub response_body: Bytes,
    pub response_truncated: bool,
}

impl Attempt {
    /// Bytes of what was said on either side.
    pub fn content_bytes(&self) -> usize {
        self.response_body.len() + self.request_headers.stored_len() + self.response_headers.stored_len()
    }

    /// That it was made, and what came of it; nothing of what was said.
    pub fn without_captured(self) -> Self {
        let none = KeptHeaders::default;
        Self { request_headers: none(), response_headers: none(), response_body: Bytes::new(), ..self }
    }
}

/// A status line, or why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Status(u16),
    Fault(Fault),
}

/// How long each phase took; `None` where it was not needed (a pooled connection) or not reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    pub dns: Option<Millis>,
    pub connect: Option<Millis>,
    pub tls: Option<Millis>,
    pub first_byte: Option<Millis>,
    pub total: Millis,
}
