//! Why there is no answer, in one word for everybody and in more words for the operator.

use std::error::Error as _;
use std::fmt::Display;

use doorstep_core::outcome::Fault;

use super::wire::Meter;

#[derive(Debug)]
pub(super) struct NoAnswer {
    pub(super) fault: Fault,
    /// Names addresses and reasons; not for tenants.
    pub(super) detail: String,
    /// The connection had been used before and was closed meanwhile: nothing of an answer came.
    pub(super) stale: bool,
}

impl NoAnswer {
    pub(super) fn new(fault: Fault, detail: impl Display) -> Self {
        Self { fault, detail: detail.to_string(), stale: false }
    }

    pub(super) fn timed_out() -> Self {
        Self::new(Fault::AnswerTimedOut, "no status line came in time")
    }

    /// What became of a request over HTTP/1.1. `received_before` is what the meter showed when it was sent.
    pub(super) fn of_http1(error: &hyper::Error, meter: &Meter, received_before: u64, reused: bool) -> Self {
        let came = meter.received() > received_before;
        // Whatever speaks before it is spoken to, or says what cannot be read, speaks another protocol.
        let violated = error.is_parse() || meter.is_overdrawn() || (came && error.is_canceled());
        if !reused && meter.is_refused() {
            return Self::new(Fault::TlsFailed, with_sources(error));
        }
        let fault = if violated { Fault::ProtocolViolated } else { Fault::ConnectionLost };
        Self { stale: reused && !came, ..Self::new(fault, with_sources(error)) }
    }

    /// What became of a request over HTTP/2.
    pub(super) fn of_http2(error: &hyper::Error, meter: &Meter, reused: bool) -> Self {
        let h2 = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
        if !reused && meter.is_refused() {
            return Self::new(Fault::TlsFailed, with_sources(error));
        }
        let violated = h2.is_some_and(h2::Error::is_library) || meter.is_overdrawn();
        let refused =
            h2.is_some_and(|h2| h2.is_go_away() || h2.is_io() || h2.reason() == Some(h2::Reason::REFUSED_STREAM));
        let unsent = error.is_canceled() || error.is_closed() || refused;
        let fault = if violated { Fault::ProtocolViolated } else { Fault::ConnectionLost };
        Self { stale: reused && unsent && !violated, ..Self::new(fault, with_sources(error)) }
    }
}

fn with_sources(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
