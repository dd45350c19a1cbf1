//! A URL that gives a payload to whoever has it, for a while (I5).
//!
//! The key is the destination's own and known to nobody else, its receiver included: whoever has one link cannot make another.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::delivery::Delivery;
use crate::id::{DestinationId, EventId};
use crate::time::{Millis, Timestamp};

/// A payload can be fetched for this long after its delivery would have been given up.
pub const FETCHABLE_FOR: Millis = Millis::from_hours(24);
/// Bytes of a key.
pub const LINK_KEY_LEN: usize = 32;
/// The last second that RFC 3339 can write.
const LATEST: i64 = 253_402_300_799;

/// Wiped when it is dropped.
pub type LinkKey = Zeroizing<[u8; LINK_KEY_LEN]>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadLink<'a> {
    pub destination_id: DestinationId,
    pub event_id: &'a EventId,
    /// In whole seconds.
    pub expires_at: Timestamp,
}

/// Why a link leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LinkFault {
    #[error("the link was not made here, or was changed")]
    Forged,
    #[error("the link has expired")]
    Expired,
}

impl<'a> PayloadLink<'a> {
    /// The link in a delivery's requests. It follows from when the delivery is given up, so it is the same each time.
    pub fn of(delivery: &Delivery, event_id: &'a EventId) -> Self {
        let expires_at = delivery.progress.give_up_at + FETCHABLE_FOR;
        let expires_at = Timestamp::from_secs(expires_at.as_secs().min(LATEST));
        Self { destination_id: delivery.destination_id, event_id, expires_at }
    }

    pub fn url(&self, public_url: &str, key: &LinkKey) -> String {
        let Self { destination_id, event_id, expires_at } = self;
        let (expires, signature) = (expires_at.as_secs(), self.signature(key));
        format!(
            "{public_url}/v1/events/{event_id}/payload?destination_id={destination_id}&expires={expires}&signature={signature}"
        )
    }

    pub fn signature(&self, key: &LinkKey) -> String {
        URL_SAFE_NO_PAD.encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &**key), self.signed().as_bytes()))
    }

    /// Whether it may be followed now. Signatures are compared in constant time, and only who has a good one hears more.
    pub fn check(&self, key: &LinkKey, signature: &str, now: Timestamp) -> Result<(), LinkFault> {
        let tag = URL_SAFE_NO_PAD.decode(signature).map_err(|_| LinkFault::Forged)?;
        hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &**key), self.signed().as_bytes(), &tag)
            .map_err(|_| LinkFault::Forged)?;
        if now < self.expires_at { Ok(()) } else { Err(LinkFault::Expired) }
    }

    /// None of the parts contains a full stop.
    fn signed(&self) -> String {
        format!("payload.{}.{}.{}", self.destination_id, self.event_id, self.expires_at.as_secs())
    }
}
