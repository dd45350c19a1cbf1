//! Verifying as a receiver does, with a reason for every refusal.

use aws_lc_rs::constant_time;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{BadId, ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, VerifyingKey, check_id, mac, signed_parts};
use crate::time::{Millis, Timestamp};

/// A request may be so much older or younger than the receiver's clock, unless told otherwise.
pub const TOLERANCE_DEFAULT: Millis = Millis::from_mins(5);

/// A signature header may carry so many tokens: checking one costs work, and anybody can send them.
pub const TOKENS_MAX: usize = 32;

/// Checks that a request was signed with one of these keys, and recently.
///
/// `header` looks a header up by its lower-case name. Signatures are compared in constant time.
pub fn verify<'h>(
    header: impl Fn(&'static str) -> Option<&'h [u8]>,
    body: &[u8],
    keys: &[VerifyingKey],
    now: Timestamp,
    tolerance: Millis,
) -> Result<(), VerifyError> {
    let id = header_text(&header, ID_HEADER)?;
    let timestamp = header_text(&header, TIMESTAMP_HEADER)?;
    let tokens = Tokens::read(header_text(&header, SIGNATURE_HEADER)?)?;
    check_id(id)?;
    check_age(TIMESTAMP_HEADER, timestamp, now, tolerance)?;

    let parts = signed_parts(id, timestamp, body);
    let matches = |key: &VerifyingKey| match key {
        VerifyingKey::Shared(secret) => {
            let tag = mac(secret.bytes(), &parts);
            tokens.v1.iter().any(|token| equal_in_constant_time(tag.as_ref(), token))
        }
        VerifyingKey::Public(_) if tokens.v1a.is_empty() => false,
        VerifyingKey::Public(key) => {
            let content = parts.concat();
            tokens.v1a.iter().any(|token| key.verifies(&content, token))
        }
    };
    if keys.iter().any(matches) { Ok(()) } else { Err(tokens.why_none_matched(keys)) }
}

/// Why a request cannot be trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    #[error("the header `{header}` is missing: was the request signed, and does every proxy pass the header on?")]
    Missing { header: &'static str },
    #[error("the header `{header}` contains other than printable ASCII characters")]
    NotText { header: &'static str },
    #[error("the header `{header}` is malformed: {why}")]
    Malformed { header: &'static str, why: &'static str },
    #[error("the header `webhook-id` is malformed: {0}")]
    Id(#[from] BadId),
    #[error("the timestamp in `{header}` is not a whole number of seconds since 1970")]
    TimestampNotWhole { header: &'static str },
    #[error(
        "the timestamp in `{header}` is too old by {by_secs} s: it is signed anew for every attempt, so either the \
         request was replayed or delayed on its way, or the receiver's clock is ahead"
    )]
    TooOld { header: &'static str, by_secs: u64 },
    #[error(
        "the timestamp in `{header}` is in the future by {by_secs} s more than allowed: is the receiver's clock behind?"
    )]
    TooNew { header: &'static str, by_secs: u64 },
    #[error("the header `webhook-signature` carries more than {TOKENS_MAX} tokens")]
    TooManyTokens,
    #[error("token {nth} of `webhook-signature` is malformed: {why}")]
    MalformedToken { nth: usize, why: &'static str },
    #[error("the header `webhook-signature` carries no token of a known version: `v1` or `v1a`")]
    NoKnownVersion,
    #[error("no key to check the `{version}` tokens of `webhook-signature` with: give {needed}")]
    NoKeyFor { version: &'static str, needed: &'static str },
    #[error(
        "the signature does not match any of {secrets} secrets: another secret, or the body was changed on its way"
    )]
    NoMatch { secrets: usize },
}

/// The tokens of a `webhook-signature` header that can be checked, and the first fault among the others.
#[derive(Default)]
struct Tokens {
    v1: Vec<[u8; 32]>,
    v1a: Vec<[u8; 64]>,
    fault: Option<VerifyError>,
}

impl Tokens {
    /// A receiver skips what it cannot read: one good token is enough.
    fn read(text: &str) -> Result<Self, VerifyError> {
        let mut tokens = Self::default();
        for (n, token) in text.split(' ').filter(|token| !token.is_empty()).enumerate() {
            if n == TOKENS_MAX {
                return Err(VerifyError::TooManyTokens);
            }
            if let Err(why) = tokens.add(token) {
                tokens.fault.get_or_insert(VerifyError::MalformedToken { nth: n + 1, why });
            }
        }
        Ok(tokens)
    }

    fn add(&mut self, token: &str) -> Result<(), &'static str> {
        let (version, encoded) = token.split_once(',').ok_or("it has no comma between version and signature")?;
        match version {
            "v1" => self.v1.push(decode(encoded).ok_or("`v1` is followed by other than 32 bytes in base64")?),
            "v1a" => self.v1a.push(decode(encoded).ok_or("`v1a` is followed by other than 64 bytes in base64")?),
            _ => {}
        }
        Ok(())
    }

    fn why_none_matched(self, keys: &[VerifyingKey]) -> VerifyError {
        let shared = keys.iter().any(|key| matches!(key, VerifyingKey::Shared(_)));
        let public = keys.iter().any(|key| matches!(key, VerifyingKey::Public(_)));
        let (v1, v1a) = (!self.v1.is_empty(), !self.v1a.is_empty());
        match self.fault {
            _ if (v1 && shared) || (v1a && public) => VerifyError::NoMatch { secrets: keys.len() },
            Some(fault) => fault,
            None if v1 => VerifyError::NoKeyFor { version: "v1", needed: "the destination's `whsec_` secret" },
            None if v1a => VerifyError::NoKeyFor { version: "v1a", needed: "the destination's `whpk_` public key" },
            None => VerifyError::NoKnownVersion,
        }
    }
}

fn decode<const N: usize>(encoded: &str) -> Option<[u8; N]> {
    STANDARD.decode(encoded).ok()?.try_into().ok()
}

pub(super) fn header_text<'h>(
    header: impl Fn(&'static str) -> Option<&'h [u8]>,
    name: &'static str,
) -> Result<&'h str, VerifyError> {
    let value = header(name).ok_or(VerifyError::Missing { header: name })?;
    match std::str::from_utf8(value) {
        Ok(text) if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) => Ok(text),
        _ => Err(VerifyError::NotText { header: name }),
    }
}

pub(super) fn check_age(
    header: &'static str,
    timestamp: &str,
    now: Timestamp,
    tolerance: Millis,
) -> Result<(), VerifyError> {
    let signed_at: i64 = timestamp.parse().map_err(|_| VerifyError::TimestampNotWhole { header })?;
    let distance = signed_at.abs_diff(now.as_secs());
    match distance.saturating_sub(tolerance.0 / 1_000) {
        0 => Ok(()),
        by_secs if signed_at < now.as_secs() => Err(VerifyError::TooOld { header, by_secs }),
        by_secs => Err(VerifyError::TooNew { header, by_secs }),
    }
}

pub(super) fn equal_in_constant_time(ours: &[u8], given: &[u8]) -> bool {
    constant_time::verify_slices_are_equal(ours, given).is_ok()
}
