//! What was captured of an attempt as one piece, to be encrypted.
//!
//! `version (1) | length (4) | request headers | length (4) | response headers | body`, the headers as in rows.

use bytes::{Buf, Bytes};
use doorstep_core::attempt::{Attempt, KeptHeaders};

use super::fault::Fault;

const VERSION: u8 = 1;

pub(super) fn pack(attempt: &Attempt) -> Result<Vec<u8>, Fault> {
    let mut packed = vec![VERSION];
    for headers in [&attempt.request_headers, &attempt.response_headers] {
        let headers = headers.as_json().unwrap_or_default();
        let len = u32::try_from(headers.len()).map_err(|error| Fault::unreadable("headers")(error.into()))?;
        packed.extend(len.to_be_bytes());
        packed.extend(headers);
    }
    packed.extend_from_slice(&attempt.response_body);
    Ok(packed)
}

/// The attempt with it; `None` if it is not as [`pack`] makes it.
pub(super) fn unpack(attempt: Attempt, mut packed: Bytes) -> Option<Attempt> {
    if packed.try_get_u8().ok()? != VERSION {
        return None;
    }
    let request_headers = headers(&mut packed)?;
    let response_headers = headers(&mut packed)?;
    Some(Attempt { request_headers, response_headers, response_body: packed, ..attempt })
}

fn headers(packed: &mut Bytes) -> Option<KeptHeaders> {
    let len = usize::try_from(packed.try_get_u32().ok()?).ok()?;
    if packed.len() < len {
        return None;
    }
    let headers = packed.split_to(len);
    KeptHeaders::from_json(Some(&headers[..]).filter(|headers| !headers.is_empty())).ok()
}

#[cfg(test)]
mod tests {
    use doorstep_core::attempt::Answer;

    use super::*;
    use crate::conformance::samples::{NOW, attempt};

    #[test]
    fn what_is_packed_comes_out_again_and_nothing_else_does() {
        let headers = |n: usize| vec![("x", &*"y".repeat(n)); n].into_iter().collect();
        for (asked, answered, body) in [(0, 0, ""), (1, 0, "body"), (0, 2, ""), (3, 1, "\0")] {
            let mut attempt = attempt(1, Answer::Status(200), NOW);
            (attempt.request_headers, attempt.response_headers) = (headers(asked), headers(answered));
            attempt.response_body = body.into();
            let packed = Bytes::from(pack(&attempt).unwrap());
            assert_eq!(unpack(attempt.clone().without_captured(), packed.clone()), Some(attempt.clone()));
            for n in 0..packed.len() - body.len() {
                assert_eq!(unpack(attempt.clone(), packed.slice(..n)), None, "cut after {n}");
            }
            assert_eq!(unpack(attempt, [&[9], &packed[1..]].concat().into()), None, "another version");
        }
    }
}
