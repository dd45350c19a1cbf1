//! What is sent: 1 KiB of JSON that carries its number and when it was due to be sent.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) const PAYLOAD_BYTES: usize = 1_024;

/// `{"n":"000000000042","t":"01789012345678901234","pad":"…"}`: each at its place, so that reading it costs nothing.
const N_AT: std::ops::Range<usize> = 6..18;
const T_AT: std::ops::Range<usize> = 25..45;

pub(super) fn write(into: &mut Vec<u8>, n: u64, sent_at: Duration) {
    use std::io::Write;
    let from = into.len();
    // Writing into a Vec cannot fail.
    let _ = write!(into, r#"{{"n":"{n:012}","t":"{:020}","pad":""#, sent_at.as_nanos());
    into.resize(from + PAYLOAD_BYTES - 2, b'x');
    into.extend_from_slice(br#""}"#);
}

/// Its number, and when it was due to be sent.
pub(super) fn read(payload: &[u8]) -> Option<(u64, Duration)> {
    let number = |at| std::str::from_utf8(payload.get(at)?).ok()?.parse::<u64>().ok();
    Some((number(N_AT)?, Duration::from_nanos(number(T_AT)?)))
}

/// Since the epoch, by the clock that all processes of a machine share.
pub(super) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut payload = Vec::new();
        write(&mut payload, 42, Duration::from_nanos(1_789_012_345_678_901_234));
        assert_eq!(payload.len(), PAYLOAD_BYTES);
        assert_eq!(read(&payload), Some((42, Duration::from_nanos(1_789_012_345_678_901_234))));
        serde_json::from_slice::<serde_json::Value>(&payload).unwrap();
        assert_eq!(read(b"{}"), None);
    }
}
