//! Which trace an event belongs to, as W3C Trace Context says it.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A `traceparent`. What a later version of it adds is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    pub trace_id: u128,
    pub parent_id: u64,
    pub flags: u8,
}

/// Sampled, and a trace ID that was drawn at random.
const KNOWN_FLAGS: u8 = 0b11;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this is not a traceparent: it looks like 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")]
pub struct NotATraceParent;

impl TraceParent {
    /// The same trace, with the next step as the parent of what follows.
    pub fn with_parent(self, parent_id: u64) -> Self {
        // Zero means that there is none.
        Self { parent_id: parent_id.max(1), flags: self.flags & KNOWN_FLAGS, ..self }
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.parent_id, self.flags)
    }
}

impl FromStr for TraceParent {
    type Err = NotATraceParent;

    fn from_str(text: &str) -> Result<Self, NotATraceParent> {
        let mut parts = text.split('-');
        let mut part =
            |len: usize| parts.next().filter(|part| part.len() == len && is_hex(part)).ok_or(NotATraceParent);
        let (version, trace_id, parent_id, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        // Only a version that we do not know may say more.
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return Err(NotATraceParent);
        }
        let trace_id = u128::from_str_radix(trace_id, 16).map_err(|_| NotATraceParent)?;
        let parent_id = u64::from_str_radix(parent_id, 16).map_err(|_| NotATraceParent)?;
        let flags = u8::from_str_radix(flags, 16).map_err(|_| NotATraceParent)?;
        if trace_id == 0 || parent_id == 0 {
            return Err(NotATraceParent);
        }
        Ok(Self { trace_id, parent_id, flags })
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_reads_back_as_it_was_written() {
        let read: TraceParent = GIVEN.parse().unwrap();
        assert_eq!(read.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!((read.parent_id, read.flags), (0x00f0_67aa_0ba9_02b7, 1));
        assert_eq!(read.to_string(), GIVEN);
    }

    #[test]
    fn the_next_step_keeps_the_trace_and_the_flags_that_are_known() {
        let read: TraceParent = GIVEN.replace("-01", "-ff").parse().unwrap();
        assert_eq!(read.with_parent(10).to_string(), "00-4bf92f3577b34da6a3ce929d0e0e4736-000000000000000a-03");
        assert_eq!(read.with_parent(0).parent_id, 1);
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        let read = |text: String| text.parse::<TraceParent>();
        assert_eq!(read(GIVEN.replacen("00", "cc", 1)), GIVEN.parse());
        assert_eq!(read(format!("{}-what-the-future-says", GIVEN.replacen("00", "01", 1))), GIVEN.parse());
    }

    #[test]
    fn what_is_none_is_not_read() {
        for wrong in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-000f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "0x-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(wrong.parse::<TraceParent>(), Err(NotATraceParent), "{wrong}");
        }
    }
}
