//! A receiver's leave to be sent to: the handshake of the CloudEvents webhook specification (section 4).
//!
//! Whoever may name a URL could have somebody flooded who never asked for it. A destination with this handshake is
//! asked first, with `OPTIONS` at its exact URL, and nothing is sent before it has agreed. What agrees is the headers of
//! the answer and never its status; or a request to the link that came with the question.

use std::num::NonZeroU32;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::dice::Jitter;
use crate::gate::{GateLimits, Rate};
use crate::id::DestinationId;
use crate::output::link::{LinkFault, LinkKey};
use crate::time::{Millis, Timestamp};

/// The headers of the handshake, in lower case.
pub const REQUEST_ORIGIN: &str = "webhook-request-origin";
pub const REQUEST_CALLBACK: &str = "webhook-request-callback";
pub const REQUEST_RATE: &str = "webhook-request-rate";
pub const ALLOWED_ORIGIN: &str = "webhook-allowed-origin";
pub const ALLOWED_RATE: &str = "webhook-allowed-rate";

/// A receiver that has not agreed is asked so often by itself, and then only when a person wants it.
pub const ASKS_MAX: u32 = 30;
/// It is asked again after this long, doubling …
pub const ASK_AGAIN_MIN: Millis = Millis::from_mins(1);
/// … up to this.
pub const ASK_AGAIN_MAX: Millis = Millis::from_hours(1);
/// A question can be answered with its link for this long.
pub const ANSWERABLE_FOR: Millis = Millis::from_hours(24 * 7);

/// Whether a receiver is asked before it is sent to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verification {
    #[default]
    None,
    CloudeventsOptions,
}

/// A receiver has agreed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consent {
    /// The exact URL that was asked. Another one has to be asked anew.
    pub url: String,
    /// In whose name it was asked: requests carry it.
    pub origin: String,
    #[serde(flatten)]
    pub leave: Leave,
    pub given_at: Timestamp,
}

/// How much a receiver agreed to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave {
    /// Requests per minute; as many as we like without it.
    pub per_minute: Option<NonZeroU32>,
}

/// Why an answer agrees to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoConsent {
    #[error("the answer has no WebHook-Allowed-Origin header")]
    NotSaid,
    #[error("the answer's WebHook-Allowed-Origin is neither `*` nor the name that was asked for, `{0}`")]
    OtherOrigin(String),
    #[error("the answer has no WebHook-Allowed-Rate header, which has to come with WebHook-Allowed-Origin")]
    NoRate,
    #[error("the answer's WebHook-Allowed-Rate is neither `*` nor a whole number of requests per minute from 1")]
    BadRate,
}

impl Leave {
    /// Reads the headers of an answer.
    pub fn read(origin: &str, headers: &[(&str, &[u8])]) -> Result<Self, NoConsent> {
        let allowed = only(headers, ALLOWED_ORIGIN).ok_or(NoConsent::NotSaid)?;
        if allowed != b"*" && !allowed.eq_ignore_ascii_case(origin.as_bytes()) {
            return Err(NoConsent::OtherOrigin(origin.to_owned()));
        }
        Self::read_rate(headers)?.ok_or(NoConsent::NoRate)
    }

    /// Reads the rate alone, which a request to the link may bring.
    pub fn read_rate(headers: &[(&str, &[u8])]) -> Result<Option<Self>, NoConsent> {
        match only(headers, ALLOWED_RATE) {
            None => Ok(None),
            Some(b"*") => Ok(Some(Self { per_minute: None })),
            Some(text) => {
                let text = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
                let digits = text.filter(|text| !text.is_empty()).ok_or(NoConsent::BadRate)?;
                // More than fits is as good as no limit.
                let per_minute = digits.parse().unwrap_or(u32::MAX);
                Ok(Some(Self { per_minute: Some(NonZeroU32::new(per_minute).ok_or(NoConsent::BadRate)?) }))
            }
        }
    }

    /// Limits that keep to it: evenly spaced, since a burst would be more than was agreed to within that minute.
    pub fn narrow(self, mut limits: GateLimits) -> GateLimits {
        let agreed = self.per_minute.map(|n| Rate::over(n.get().into(), Millis::from_mins(1)));
        if let Some(agreed) = agreed.filter(|agreed| *agreed < limits.rate) {
            (limits.rate, limits.burst) = (agreed, 1);
        }
        limits
    }
}

/// The one header of this name. Two could be read either way, so they say nothing.
fn only<'a>(headers: &[(&str, &'a [u8])], name: &str) -> Option<&'a [u8]> {
    let mut named = headers.iter().filter(|(given, _)| given.eq_ignore_ascii_case(name));
    let (_, value) = named.next()?;
    named.next().is_none().then_some(value.trim_ascii())
}

/// How long after a question without consent the next one follows; `None` once it has been asked often enough.
pub fn ask_again_after(asked: u32, jitter: Jitter) -> Option<Millis> {
    let factor = 1u64.checked_shl(asked.saturating_sub(1)).unwrap_or(u64::MAX);
    let after = Millis(ASK_AGAIN_MIN.0.saturating_mul(factor)).min(ASK_AGAIN_MAX);
    (asked < ASKS_MAX).then(|| after + jitter.up_to(Millis(after.0 / 4)))
}

/// What is asked for where a destination may have so many requests.
pub fn per_minute(limits: &GateLimits) -> u64 {
    ((limits.rate.as_per_second() * 60.0) as u64).max(1)
}

/// A URL whose visit agrees on behalf of a destination's receiver. It goes to that receiver and to nobody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsentLink<'a> {
    pub destination_id: DestinationId,
    /// What is agreed to: a link that was sent to one URL is worth nothing for another.
    pub url: &'a str,
    /// In whole seconds.
    pub expires_at: Timestamp,
}

impl<'a> ConsentLink<'a> {
    pub fn new(destination_id: DestinationId, url: &'a str, now: Timestamp) -> Self {
        Self { destination_id, url, expires_at: Timestamp::from_secs((now + ANSWERABLE_FOR).as_secs()) }
    }

    pub fn href(&self, public_url: &str, key: &LinkKey) -> String {
        let (id, expires) = (self.destination_id, self.expires_at.as_secs());
        let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&signing(key), self.signed().as_bytes()));
        format!("{public_url}/v1/destinations/{id}/consent?expires={expires}&signature={signature}")
    }

    /// Whether it may be followed now. Compared in constant time, and only who has a good signature hears more.
    pub fn check(&self, key: &LinkKey, signature: &str, now: Timestamp) -> Result<(), LinkFault> {
        let tag = URL_SAFE_NO_PAD.decode(signature).map_err(|_| LinkFault::Forged)?;
        hmac::verify(&signing(key), self.signed().as_bytes(), &tag).map_err(|_| LinkFault::Forged)?;
        if now < self.expires_at { Ok(()) } else { Err(LinkFault::Expired) }
    }

    /// The URL comes last: it is the only part that may contain a full stop.
    fn signed(&self) -> String {
        format!("consent.{}.{}.{}", self.destination_id, self.expires_at.as_secs(), self.url)
    }
}

fn signing(key: &LinkKey) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &key[..])
}

#[cfg(test)]
mod tests;
