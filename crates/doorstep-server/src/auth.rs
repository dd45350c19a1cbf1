//! Who may ask: whoever has the key.

use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::AUTHORIZATION;

use crate::app::App;
use crate::problem::Problem;

/// A key that is given to us is at most this long.
pub const KEY_BYTES_MAX: usize = 256;

/// What is kept of a key: enough to recognise it.
#[derive(Clone)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    pub fn of(key: &str) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, key.as_bytes()).as_ref());
        Self(hash)
    }

    fn is_of(&self, key: &str) -> bool {
        key.len() <= KEY_BYTES_MAX && verify_slices_are_equal(&self.0, &Self::of(key).0).is_ok()
    }
}

/// In hexadecimal, as it is kept.
impl std::fmt::Display for KeyHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not the hash of a key: 64 hexadecimal digits")]
pub struct NotAHash;

impl std::str::FromStr for KeyHash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Self, NotAHash> {
        let mut hash = [0; 32];
        if text.len() != 2 * hash.len() || !text.is_ascii() {
            return Err(NotAHash);
        }
        for (at, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| NotAHash)?;
        }
        Ok(Self(hash))
    }
}

impl std::fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyHash")
    }
}

/// Lets a request pass that carries the key.
pub(crate) async fn require_key(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let given = request
        .headers()
        .get(AUTHORIZATION)
        .ok_or_else(|| Problem::unauthorized("there is no key: send the header `Authorization: Bearer KEY`"))?;
    let key = given.to_str().ok().and_then(bearer);
    let key = key.ok_or_else(|| Problem::unauthorized("the Authorization header is not of the form `Bearer KEY`"))?;
    if !app.admin_key.is_of(key) {
        return Err(Problem::unauthorized(
            "this key is not known: check DOORSTEP_ADMIN_KEY, or the key printed at the first start",
        ));
    }
    Ok(next.run(request).await)
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, key) = value.split_once(' ')?;
    let key = key.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !key.is_empty()).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_key_is_recognised() {
        let hash = KeyHash::of("dsk_secret");
        assert!(hash.is_of("dsk_secret"));
        for wrong in ["", "dsk_secre", "dsk_secret ", "DSK_SECRET"] {
            assert!(!hash.is_of(wrong), "{wrong:?}");
        }
        assert!(!hash.is_of(&"x".repeat(KEY_BYTES_MAX + 1)));
    }

    #[test]
    fn the_scheme_is_read_in_any_case_and_nothing_else_is() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer("bearer  abc "), Some("abc"));
        for wrong in ["", "Bearer", "Bearer ", "Basic abc", "abc"] {
            assert_eq!(bearer(wrong), None, "{wrong:?}");
        }
    }
}
