//! Whether a request carries a good signature.

use doorstep_core::signature::{self, TOLERANCE_DEFAULT, VerifyError, VerifyingKey};
use doorstep_core::time::Timestamp;
use http::HeaderMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Signature {
    /// There is no secret to check it with.
    Unchecked,
    Ok,
    Bad(VerifyError),
}

impl Signature {
    pub(super) fn check(headers: &HeaderMap, body: &[u8], keys: &[VerifyingKey], now: Timestamp) -> Self {
        if keys.is_empty() {
            return Self::Unchecked;
        }
        let header = |name: &'static str| headers.get(name).map(|value| value.as_bytes());
        match signature::verify(header, body, keys, now, TOLERANCE_DEFAULT) {
            Ok(()) => Self::Ok,
            Err(why) => Self::Bad(why),
        }
    }

    pub(super) fn is_bad(&self) -> bool {
        matches!(self, Self::Bad(_))
    }
}
