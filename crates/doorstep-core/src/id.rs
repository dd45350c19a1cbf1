//! Names of things: a prefix that says what it is, and 128 bits in 26 letters that sort by age.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("\"{given}\" is not {article}: it looks like {prefix}01j9zq3k5v8w2x4y6z7a8b9c0d")]
pub struct IdFault {
    given: String,
    article: &'static str,
    prefix: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $article:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub u128);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", $prefix, Letters(self.0))
            }
        }

        impl FromStr for $name {
            type Err = IdFault;

            fn from_str(text: &str) -> Result<Self, IdFault> {
                text.strip_prefix($prefix).and_then(read_letters).map(Self).ok_or_else(|| IdFault {
                    given: text.chars().take(GIVEN_SHOWN_MAX).collect(),
                    article: $article,
                    prefix: $prefix,
                })
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdFault;

            fn try_from(text: String) -> Result<Self, IdFault> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

id!(
    /// A customer of the operator.
    TenantId, "ten_", "a tenant's ID"
);
id!(
    /// A URL that receives events.
    DestinationId, "dst_", "a destination's ID"
);
id!(
    /// One event to one destination.
    DeliveryId, "dlv_", "a delivery's ID"
);

id!(
    /// One request of a delivery.
    AttemptId, "att_", "an attempt's ID"
);
id!(
    /// An API key's public name.
    KeyId, "key_", "a key's ID"
);
id!(
    /// One stay of a tenant's person in the portal.
    SessionId, "pss_", "a portal session's ID"
);

/// How much of a wrong ID an error repeats.
const GIVEN_SHOWN_MAX: usize = 64;

/// An event's ID: ours (`evt_…`) or the producer's own. It is signed between full stops, so it contains none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EventId(Arc<str>);

/// A producer's own event ID is at most this long.
pub const EVENT_ID_MAX: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EventIdFault {
    #[error("an event's ID has 1 to {EVENT_ID_MAX} characters, but this has {0}")]
    Length(usize),
    #[error("an event's ID consists of letters, digits, '_', '-' and ':', but this has {0:?}")]
    Character(char),
}

impl EventId {
    pub fn new(text: &str) -> Result<Self, EventIdFault> {
        if text.is_empty() || text.len() > EVENT_ID_MAX {
            return Err(EventIdFault::Length(text.len()));
        }
        match text.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ':'))) {
            Some(wrong) => Err(EventIdFault::Character(wrong)),
            None => Ok(Self(text.into())),
        }
    }

    pub fn generated(bits: u128) -> Self {
        Self(format!("evt_{}", Letters(bits)).into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for EventId {
    type Err = EventIdFault;

    fn from_str(text: &str) -> Result<Self, EventIdFault> {
        Self::new(text)
    }
}

impl TryFrom<String> for EventId {
    type Error = EventIdFault;

    fn try_from(text: String) -> Result<Self, EventIdFault> {
        Self::new(&text)
    }
}

impl From<EventId> for String {
    fn from(id: EventId) -> Self {
        id.as_str().to_owned()
    }
}

/// Crockford's alphabet in lower case: no i, l, o, u, so that nothing is misread.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LETTERS: usize = 26;

struct Letters(u128);

impl fmt::Display for Letters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; LETTERS];
        let mut rest = self.0;
        for letter in text.iter_mut().rev() {
            *letter = ALPHABET[usize::try_from(rest & 31).unwrap_or(0)];
            rest >>= 5;
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

/// Bytes in the same letters, five bits each, the last one filled up with zeros.
pub(crate) fn letters_of(bytes: &[u8]) -> String {
    let (mut text, mut bits, mut held) = (String::new(), 0u32, 0u32);
    for byte in bytes {
        (bits, held) = (bits << 8 | u32::from(*byte), held + 8);
        while held >= 5 {
            held -= 5;
            text.push(char::from(ALPHABET[(bits >> held & 31) as usize]));
        }
        bits &= (1 << held) - 1;
    }
    if held > 0 {
        text.push(char::from(ALPHABET[(bits << (5 - held) & 31) as usize]));
    }
    text
}

fn read_letters(text: &str) -> Option<u128> {
    if text.len() != LETTERS {
        return None;
    }
    let mut bits: u128 = 0;
    for byte in text.bytes() {
        let five = ALPHABET.iter().position(|letter| *letter == byte)?;
        bits = bits.checked_mul(32)? | u128::try_from(five).ok()?;
    }
    Some(bits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_wrong_id_is_refused_with_the_right_form() {
        for wrong in ["", "dst_", "ten_01j9zq3k5v8w2x4y6z7a8b9c0d", "dst_01J9", "dst_zzzzzzzzzzzzzzzzzzzzzzzzzz"] {
            let fault = wrong.parse::<DestinationId>().unwrap_err().to_string();
            assert!(fault.contains("is not a destination's ID: it looks like dst_"), "{fault}");
        }
    }

    #[test]
    fn event_ids_carry_nothing_that_a_signature_could_trip_over() {
        for fine in ["order-1_A", "urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6"] {
            assert!(EventId::new(fine).is_ok(), "{fine}");
        }
        assert_eq!(EventId::new(""), Err(EventIdFault::Length(0)));
        assert_eq!(EventId::new(&"x".repeat(129)), Err(EventIdFault::Length(129)));
        for wrong in ["a.b", "a b", "a\n", "ä", "a/b", "a%3Ab", "a?b", "a#b", "a\r\nx: y"] {
            assert!(matches!(EventId::new(wrong), Err(EventIdFault::Character(_))), "{wrong}");
        }
        assert!(EventId::new(EventId::generated(7).as_str()).is_ok());
    }

    #[test]
    fn bytes_become_letters_five_bits_at_a_time() {
        for (bytes, letters) in
            [(&[][..], ""), (&[0xff], "zw"), (&[0, 0, 0, 0, 1], "00000001"), (&[0x08, 0x42], "1110")]
        {
            assert_eq!(letters_of(bytes), letters, "{bytes:?}");
        }
        let bits: u128 = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef & (u128::MAX >> 8);
        assert_eq!(letters_of(&bits.to_be_bytes()[1..]), Letters(bits).to_string()[2..]);
    }

    proptest! {
        #[test]
        fn ids_round_trip_and_sort_as_their_numbers_do(a in any::<u128>(), b in any::<u128>()) {
            let (x, y) = (DeliveryId(a), DeliveryId(b));
            prop_assert_eq!(x.to_string().parse::<DeliveryId>().unwrap(), x);
            prop_assert_eq!(x.to_string().cmp(&y.to_string()), a.cmp(&b));
            let json = serde_json::to_string(&x).unwrap();
            prop_assert_eq!(serde_json::from_str::<DeliveryId>(&json).unwrap(), x);
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = text.parse::<TenantId>();
            let _ = EventId::new(&text);
        }
    }
}
