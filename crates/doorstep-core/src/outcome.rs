//! What came back from one request, and what kind of news that is (D3–D6).
//!
//! Status codes and network faults are read here once; everywhere else there is only [`Outcome`].

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::hints::Hints;
use crate::time::Millis;

/// What came back from one request, with just what decisions need to know.
///
/// A worker's own failure (store error, panic, shutdown) is not an outcome: the delivery goes back as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It arrived. The receiver may add what is left of its quota.
    Accepted { quota: Option<Quota> },
    /// "Not so fast." It may say for how long.
    Throttled { wait: Option<Millis> },
    /// An answer that says "try again later". It may say how much later.
    Failed { status: u16, wait: Option<Millis> },
    /// No answer in time.
    TimedOut,
    /// No answer at all: no name, no connection, no TLS, or the connection was lost.
    Unreachable,
    /// An answer that may be a mistake on the way (404 during a deployment, a redirect to a login page). It may say when to
    /// try again.
    Ambiguous { status: u16, wait: Option<Millis> },
    /// The destination's name resolves to an address that may not be delivered to. No request was made.
    Blocked,
    /// A final no to this delivery.
    Rejected { status: u16 },
    /// 410: a final no to every delivery.
    Gone,
}

/// What a receiver says of its own quota: so many more requests until it resets. A hint, and no promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub left: u64,
    pub resets_in: Millis,
}

impl Quota {
    pub fn spent(resets_in: Millis) -> Self {
        Self { left: 0, resets_in }
    }
}

impl Outcome {
    /// Reads a status line. Success is decided by the status alone, never by the body (D3).
    pub fn from_status(status: u16, hints: Hints, overrides: &StatusOverrides) -> Self {
        match overrides.get(status).unwrap_or_else(|| Class::of_status(status)) {
            Class::Success => {
                let (left, resets_in) = (hints.quota_remaining, hints.quota_resets_in);
                Self::Accepted { quota: left.zip(resets_in).map(|(left, resets_in)| Quota { left, resets_in }) }
            }
            // Retry-After must win over RateLimit's reset.
            Class::Throttled => Self::Throttled { wait: hints.retry_after.or(hints.quota_resets_in) },
            Class::Transient => Self::Failed { status, wait: hints.retry_after },
            Class::Ambiguous => Self::Ambiguous { status, wait: hints.retry_after },
            Class::Permanent if status == 410 => Self::Gone,
            Class::Permanent => Self::Rejected { status },
        }
    }

    pub fn from_fault(fault: Fault) -> Self {
        match fault {
            Fault::AddressBlocked => Self::Blocked,
            Fault::DnsTimedOut | Fault::ConnectTimedOut | Fault::TlsTimedOut | Fault::AnswerTimedOut => Self::TimedOut,
            Fault::DnsFailed
            | Fault::ConnectRefused
            | Fault::ConnectFailed
            | Fault::TlsFailed
            | Fault::ConnectionLost
            | Fault::ProtocolViolated => Self::Unreachable,
        }
    }

    /// A receiver that says for how long it is unavailable: its whole destination waits (G7).
    pub fn is_maintenance(&self) -> bool {
        matches!(self, Self::Failed { status: 503, wait: Some(_) })
    }

    /// The receiver takes no more for the moment: too many requests, or too busy.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Throttled { .. } | Self::Failed { status: 503, .. })
    }

    pub fn class(&self) -> Class {
        match self {
            Self::Accepted { .. } => Class::Success,
            Self::Throttled { .. } => Class::Throttled,
            Self::Failed { .. } | Self::TimedOut | Self::Unreachable => Class::Transient,
            Self::Ambiguous { .. } | Self::Blocked => Class::Ambiguous,
            Self::Rejected { .. } | Self::Gone => Class::Permanent,
        }
    }
}

/// What kind of news an outcome is (D4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Done.
    Success,
    /// Retry with backoff.
    Transient,
    /// Throttle the destination; the delivery pays nothing.
    Throttled,
    /// Retry, but only a few times.
    Ambiguous,
    /// Dead at once.
    Permanent,
}

impl Class {
    /// The default table of D4.
    pub fn of_status(status: u16) -> Self {
        match status {
            200..=299 => Self::Success,
            429 => Self::Throttled,
            408 | 409 | 425 => Self::Transient,
            404 => Self::Ambiguous,
            400..=403 | 405..=407 | 410..=424 | 426..=428 | 430..=499 => Self::Permanent,
            501 => Self::Permanent,
            500 | 502..=599 => Self::Transient,
            300..=399 => Self::Ambiguous,
            // An interim answer where a final one belongs: most likely not a webhook endpoint at all.
            100..=199 => Self::Ambiguous,
            // RFC 9110, 15: a status outside 100–599 is treated as a 5xx.
            0..=99 | 600..=u16::MAX => Self::Transient,
        }
    }
}

/// Why there was no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    DnsFailed,
    DnsTimedOut,
    /// The name resolves to an address that destinations may not have (S4).
    AddressBlocked,
    ConnectRefused,
    ConnectFailed,
    ConnectTimedOut,
    TlsFailed,
    TlsTimedOut,
    /// Reset or closed before a status line came.
    ConnectionLost,
    /// What came was not HTTP, or broke its limits.
    ProtocolViolated,
    AnswerTimedOut,
}

impl Fault {
    pub const ALL: [Self; 11] = [
        Self::DnsFailed,
        Self::DnsTimedOut,
        Self::AddressBlocked,
        Self::ConnectRefused,
        Self::ConnectFailed,
        Self::ConnectTimedOut,
        Self::TlsFailed,
        Self::TlsTimedOut,
        Self::ConnectionLost,
        Self::ProtocolViolated,
        Self::AnswerTimedOut,
    ];
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::DnsFailed => "its name leads to no address",
            Self::DnsTimedOut => "its name could not be looked up in time",
            Self::AddressBlocked => "it has an address that destinations may not have",
            Self::ConnectRefused => "it refused the connection",
            Self::ConnectFailed => "no connection could be opened",
            Self::ConnectTimedOut => "no connection could be opened in time",
            Self::TlsFailed => "TLS failed",
            Self::TlsTimedOut => "TLS took too long",
            Self::ConnectionLost => "it closed the connection",
            Self::ProtocolViolated => "what came was not HTTP, or broke its limits",
            Self::AnswerTimedOut => "no answer came in time",
        })
    }
}

/// A destination's own reading of some status codes, since some receivers misuse them (D5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "std::collections::BTreeMap<u16, Class>", into = "std::collections::BTreeMap<u16, Class>")]
pub struct StatusOverrides(Vec<(u16, Class)>);

/// A destination may redefine at most this many codes.
pub const STATUS_OVERRIDES_MAX: usize = 50;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StatusOverrideFault {
    #[error("{0} status overrides are too many: at most {STATUS_OVERRIDES_MAX} are kept; remove some")]
    TooMany(usize),
    #[error("status {0} is not an HTTP status: use a number from 100 to 599")]
    NotAStatus(u16),
    #[error("status {0} cannot be overridden: every 2xx is a success")]
    AlwaysSuccess(u16),
}

impl StatusOverrides {
    pub fn new(entries: impl IntoIterator<Item = (u16, Class)>) -> Result<Self, StatusOverrideFault> {
        let entries = entries.into_iter().collect::<std::collections::BTreeMap<_, _>>();
        if entries.len() > STATUS_OVERRIDES_MAX {
            return Err(StatusOverrideFault::TooMany(entries.len()));
        }
        for &status in entries.keys() {
            match status {
                100..=199 | 300..=599 => {}
                200..=299 => return Err(StatusOverrideFault::AlwaysSuccess(status)),
                0..=99 | 600..=u16::MAX => return Err(StatusOverrideFault::NotAStatus(status)),
            }
        }
        Ok(Self(entries.into_iter().collect()))
    }

    fn get(&self, status: u16) -> Option<Class> {
        self.0.binary_search_by_key(&status, |(s, _)| *s).ok().map(|at| self.0[at].1)
    }
}

impl TryFrom<std::collections::BTreeMap<u16, Class>> for StatusOverrides {
    type Error = StatusOverrideFault;

    fn try_from(entries: std::collections::BTreeMap<u16, Class>) -> Result<Self, StatusOverrideFault> {
        Self::new(entries)
    }
}

impl From<StatusOverrides> for std::collections::BTreeMap<u16, Class> {
    fn from(overrides: StatusOverrides) -> Self {
        overrides.0.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(status: u16) -> Class {
        Outcome::from_status(status, Hints::default(), &StatusOverrides::default()).class()
    }

    /// The table of D4, written out once more as data: every status is listed by exactly one row.
    #[test]
    fn every_status_has_the_class_that_the_specification_gives_it() {
        let listed: [(Class, &[u16]); 3] =
            [(Class::Throttled, &[429]), (Class::Transient, &[408, 409, 425]), (Class::Ambiguous, &[404])];
        for status in 100..=599u16 {
            let named = listed.iter().find(|(_, codes)| codes.contains(&status)).map(|(class, _)| *class);
            let expected = named.unwrap_or(match status / 100 {
                1 => Class::Ambiguous,
                2 => Class::Success,
                3 => Class::Ambiguous,
                4 => Class::Permanent,
                5 if status == 501 => Class::Permanent,
                5 => Class::Transient,
                _ => unreachable!(),
            });
            assert_eq!(class(status), expected, "status {status}");
        }
        for named in [400, 401, 403, 410, 415, 422, 501] {
            assert_eq!(class(named), Class::Permanent, "status {named}");
        }
    }

    #[test]
    fn a_status_outside_http_is_treated_as_a_server_error() {
        for status in [0, 99, 600, 999, u16::MAX] {
            assert_eq!(class(status), Class::Transient, "status {status}");
        }
    }

    #[test]
    fn every_fault_is_transient_but_a_blocked_address() {
        let expected = [
            (Fault::DnsFailed, Outcome::Unreachable),
            (Fault::DnsTimedOut, Outcome::TimedOut),
            (Fault::AddressBlocked, Outcome::Blocked),
            (Fault::ConnectRefused, Outcome::Unreachable),
            (Fault::ConnectFailed, Outcome::Unreachable),
            (Fault::ConnectTimedOut, Outcome::TimedOut),
            (Fault::TlsFailed, Outcome::Unreachable),
            (Fault::TlsTimedOut, Outcome::TimedOut),
            (Fault::ConnectionLost, Outcome::Unreachable),
            (Fault::ProtocolViolated, Outcome::Unreachable),
            (Fault::AnswerTimedOut, Outcome::TimedOut),
        ];
        assert_eq!(expected.map(|(fault, _)| fault), Fault::ALL);
        for (fault, outcome) in expected {
            assert_eq!(Outcome::from_fault(fault), outcome, "{fault:?}");
            let class = if fault == Fault::AddressBlocked { Class::Ambiguous } else { Class::Transient };
            assert_eq!(outcome.class(), class, "{fault:?}");
        }
    }

    #[test]
    fn an_override_changes_its_own_status_only() {
        let overrides = StatusOverrides::new([
            (404, Class::Transient),
            (500, Class::Permanent),
            (409, Class::Success),
            (503, Class::Throttled),
            (410, Class::Ambiguous),
        ])
        .unwrap();
        let read = |status| Outcome::from_status(status, Hints::default(), &overrides);
        assert_eq!(read(404), Outcome::Failed { status: 404, wait: None });
        assert_eq!(read(500), Outcome::Rejected { status: 500 });
        assert_eq!(read(409), Outcome::Accepted { quota: None });
        assert_eq!(read(503), Outcome::Throttled { wait: None });
        assert_eq!(read(410), Outcome::Ambiguous { status: 410, wait: None });
        for status in (100..=599).filter(|s| ![404, 500, 409, 503, 410].contains(s)) {
            assert_eq!(read(status).class(), class(status), "status {status}");
        }
    }

    #[test]
    fn overrides_that_make_no_sense_are_refused_with_a_reason() {
        let refused = |status| StatusOverrides::new([(status, Class::Transient)]).unwrap_err();
        assert_eq!(refused(204), StatusOverrideFault::AlwaysSuccess(204));
        assert_eq!(refused(99), StatusOverrideFault::NotAStatus(99));
        assert_eq!(refused(600), StatusOverrideFault::NotAStatus(600));
        let many = (400..=450).map(|status| (status, Class::Transient));
        assert_eq!(StatusOverrides::new(many), Err(StatusOverrideFault::TooMany(51)));
        let json = r#"{"404":"transient","500":"permanent"}"#;
        let parsed: StatusOverrides = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&parsed).unwrap(), json);
        assert!(serde_json::from_str::<StatusOverrides>(r#"{"200":"transient"}"#).is_err());
    }

    #[test]
    fn retry_after_wins_over_a_quota_reset() {
        let hints = Hints { retry_after: Some(Millis(7)), quota_resets_in: Some(Millis(9)), quota_remaining: Some(0) };
        let read = |status, hints| Outcome::from_status(status, hints, &StatusOverrides::default());
        assert_eq!(read(429, hints), Outcome::Throttled { wait: Some(Millis(7)) });
        assert_eq!(read(429, Hints { retry_after: None, ..hints }), Outcome::Throttled { wait: Some(Millis(9)) });
        assert_eq!(read(503, hints), Outcome::Failed { status: 503, wait: Some(Millis(7)) });
        for status in [301, 404] {
            assert_eq!(read(status, hints), Outcome::Ambiguous { status, wait: Some(Millis(7)) });
        }
        assert_eq!(read(200, hints), Outcome::Accepted { quota: Some(Quota::spent(Millis(9))) });
        let left = Hints { quota_remaining: Some(3), ..hints };
        assert_eq!(read(200, left), Outcome::Accepted { quota: Some(Quota { left: 3, resets_in: Millis(9) }) });
        let endless = Hints { quota_resets_in: None, ..left };
        assert_eq!(read(200, endless), Outcome::Accepted { quota: None }, "it does not say until when");
    }
}
