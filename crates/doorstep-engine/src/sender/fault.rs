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
    pub(super) resend: Resend,
}

/// Whether the same request may go out again within the same attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resend {
    Never,
    /// The receiver has not processed the request, and says so or never got it (RFC 9113, 6.8 and 8.7).
    NotProcessed,
    /// The connection had been used before and was closed under the request. Most likely it was closed for being idle, but
    /// the receiver may have got the request.
    ClosedAtReuse,
}

impl NoAnswer {
    pub(super) fn new(fault: Fault, detail: impl Display) -> Self {
        Self { fault, detail: detail.to_string(), resend: Resend::Never }
    }

    pub(super) fn timed_out() -> Self {
        Self::new(Fault::AnswerTimedOut, "no status line came in time")
    }

    /// A request that an HTTP/2 connection did not take any more.
    pub(super) fn not_sent(error: h2::Error) -> Self {
        Self { resend: Resend::NotProcessed, ..Self::new(Fault::ConnectionLost, error) }
    }

    /// What became of a request over HTTP/1.1. `received_before` is what the meter showed when it was sent.
    pub(super) fn of_http1(error: &hyper::Error, meter: &Meter, received_before: u64, reused: bool) -> Self {
        let came = meter.received() > received_before;
        if !reused && meter.is_refused() {
            return Self::new(Fault::TlsFailed, with_sources(error));
        }
        // A cancelled request never left: the receiver spoke first. On a new connection that is another protocol; on one
        // that was idle it is usually a 408 that says goodbye (RFC 9110, 15.5.9).
        let spoke_first = came && error.is_canceled();
        let violated = error.is_parse() || meter.is_overdrawn() || (spoke_first && !reused);
        let fault = if violated { Fault::ProtocolViolated } else { Fault::ConnectionLost };
        let resend = if reused && (!came || spoke_first) { Resend::ClosedAtReuse } else { Resend::Never };
        Self { resend, ..Self::new(fault, with_sources(error)) }
    }

    /// What became of a request over HTTP/2. `silent`: the connection was given up because nothing came over it any more.
    pub(super) fn of_http2(error: &h2::Error, meter: &Meter, reused: bool, silent: bool) -> Self {
        if !reused && meter.is_refused() {
            return Self::new(Fault::TlsFailed, error);
        }
        if error.is_library() || meter.is_overdrawn() {
            return Self::new(Fault::ProtocolViolated, error);
        }
        // h2 fails a request with the receiver's GOAWAY only if its stream is above the last one that GOAWAY names.
        let refused = error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM);
        let resend = if error.is_remote() && refused {
            Resend::NotProcessed
        } else if error.is_io() && reused && !silent {
            Resend::ClosedAtReuse
        } else {
            Resend::Never
        };
        let detail = if silent { "the receiver did not answer a ping".to_owned() } else { error.to_string() };
        Self { resend, ..Self::new(Fault::ConnectionLost, detail) }
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
