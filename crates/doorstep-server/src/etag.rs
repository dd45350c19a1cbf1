//! Versions of things that change: `ETag` and `If-Match` (RFC 9110, 13.1.1).

use http::header::{ETAG, IF_MATCH};
use http::{HeaderMap, HeaderName};

use crate::problem::Problem;

pub(crate) fn etag(version: u64) -> [(HeaderName, String); 1] {
    [(ETAG, format!("\"{version}\""))]
}

/// Whether the one who asks has seen the present state, if they say which one they saw.
pub(crate) fn check_match(headers: &HeaderMap, version: u64) -> Result<(), Problem> {
    let Some(seen) = headers.get(IF_MATCH) else { return Ok(()) };
    let present = format!("\"{version}\"");
    let fits = |seen: &str| seen.trim() == "*" || seen.split(',').any(|one| one.trim() == present);
    if seen.to_str().is_ok_and(fits) {
        return Ok(());
    }
    Err(Problem::precondition(
        "it is not the version that `If-Match` names: read it again, and make your change once more",
    ))
}
