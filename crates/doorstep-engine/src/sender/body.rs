//! The body of an answer: its beginning is kept for people to read, and nothing is decided by it.

use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;

use super::deadline::Deadline;

/// So much of an answer's body is kept, unless the operator says otherwise.
pub const BODY_BYTES_MAX: usize = 16 * 1_024;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) bytes: Bytes,
    /// There was more, or it did not come in time, or it broke off.
    pub(super) truncated: bool,
}

/// Reads the beginning of a body. A body that ends within the limits leaves its connection fit for another request.
pub(super) async fn read<B>(body: B, bytes_max: usize, deadline: &mut Deadline, phase: Duration) -> Kept
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.is_end_stream() {
        return Kept::default();
    }
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(bytes_max);
    let mut kept = Vec::with_capacity(expected.min(bytes_max));
    let complete = deadline.wait(Some(phase), gather(body, bytes_max, &mut kept)).await == Some(true);
    // A receiver that announces much and sends little must not have us hold what never came.
    kept.shrink_to_fit();
    Kept { bytes: kept.into(), truncated: !complete }
}

/// Whether that was all.
async fn gather<B>(mut body: B, bytes_max: usize, kept: &mut Vec<u8>) -> bool
where
    B: Body<Data = Bytes> + Unpin,
{
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        let Ok(data) = frame.into_data() else { continue };
        let room = bytes_max - kept.len();
        kept.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            return false;
        }
    }
    true
}
