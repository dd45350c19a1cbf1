//! One line per request: for people, or JSON for programs.

use std::fmt::{self, Write};

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use serde::{Serialize, Serializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::signature::Signature;

/// What is printed, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    pub(super) lines: Option<Lines>,
    /// Standard output is for programs: what people are told goes to standard error.
    pub(super) messages_aside: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Lines {
    Plain,
    Json { bodies: bool },
}

/// What a request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Answered {
    Status(u16),
    Hang,
    Reset,
    Drip,
}

impl Answered {
    pub(super) fn is_success(self) -> bool {
        matches!(self, Self::Status(200..=299))
    }
}

/// All that a line can say.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub(super) at: OffsetDateTime,
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a [u8],
    pub(super) signature: &'a Signature,
    pub(super) answered: Answered,
    pub(super) duplicate: bool,
}

impl Record<'_> {
    /// The line with its break.
    pub(super) fn line(&self, lines: Lines) -> String {
        match lines {
            Lines::Plain => self.plain(),
            Lines::Json { bodies } => self.json(bodies),
        }
    }

    fn plain(&self) -> String {
        let time = self.at.time();
        let (h, m, s, ms) = (time.hour(), time.minute(), time.second(), time.millisecond());
        let mut line = format!("{h:02}:{m:02}:{s:02}.{ms:03} {} {}", self.method, self.path);
        // Writing into a String cannot fail.
        for value in ["x-event-type", "webhook-id"].into_iter().filter_map(|name| self.text(name)) {
            let _ = write!(line, "  {value}");
        }
        if let Some(attempt) = self.text("x-delivery-attempt") {
            let _ = write!(line, "  attempt {attempt}");
        }
        let _ = write!(line, "  {} B  signature {}  → {}", self.body.len(), self.signature, self.answered);
        line.push_str(if self.duplicate { "  duplicate\n" } else { "\n" });
        line
    }

    fn json(&self, bodies: bool) -> String {
        let row = Row {
            at: self.at.format(&Rfc3339).unwrap_or_default(),
            method: self.method,
            path: self.path,
            event_id: self.text("webhook-id").or_else(|| self.text("x-event-id")),
            event_type: self.text("x-event-type"),
            delivery_id: self.text("x-delivery-id"),
            attempt: self.number("x-delivery-attempt"),
            sequence: self.number("x-sequence"),
            replay_id: self.text("x-replay-id"),
            bytes: self.body.len(),
            body_sha256: hex(digest::digest(&digest::SHA256, self.body).as_ref()),
            signature: self.signature.to_string(),
            answered: self.answered,
            duplicate: self.duplicate,
            body_base64: bodies.then(|| STANDARD.encode(self.body)),
        };
        let mut line = serde_json::to_string(&row).unwrap_or_default();
        line.push('\n');
        line
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

/// The names are promised: other tools read them.
#[derive(Serialize)]
struct Row<'a> {
    at: String,
    method: &'a str,
    path: &'a str,
    event_id: Option<&'a str>,
    event_type: Option<&'a str>,
    delivery_id: Option<&'a str>,
    attempt: Option<u64>,
    sequence: Option<u64>,
    replay_id: Option<&'a str>,
    bytes: usize,
    body_sha256: String,
    signature: String,
    answered: Answered,
    duplicate: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

/// `ok`, `bad: why` or `unchecked`.
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unchecked => f.write_str("unchecked"),
            Self::Ok => f.write_str("ok"),
            Self::Bad(why) => write!(f, "bad: {why}"),
        }
    }
}

impl fmt::Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{status}"),
            Self::Hang => f.write_str("hang"),
            Self::Reset => f.write_str("reset"),
            Self::Drip => f.write_str("drip"),
        }
    }
}

/// A status is a number; what is none is its name.
impl Serialize for Answered {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Status(status) => serializer.serialize_u16(*status),
            Self::Hang | Self::Reset | Self::Drip => serializer.collect_str(self),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::{Value, json};

    use super::*;

    fn check(lines: Lines, answered: Answered, expected: &str) {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("webhook-id", "evt_1"),
            ("x-event-type", "invoice.paid"),
            ("x-delivery-id", "dlv_1"),
            ("x-delivery-attempt", "2"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let record = Record {
            at: OffsetDateTime::UNIX_EPOCH + std::time::Duration::from_millis(45_296_007),
            method: "POST",
            path: "/hook",
            headers: &headers,
            body: b"{}",
            signature: &Signature::Unchecked,
            answered,
            duplicate: true,
        };
        assert_eq!(record.line(lines), expected);
    }

    #[test]
    fn a_line_for_people_says_what_came_and_what_it_got() {
        let expected =
            "12:34:56.007 POST /hook  invoice.paid  evt_1  attempt 2  2 B  signature unchecked  → 503  duplicate\n";
        check(Lines::Plain, Answered::Status(503), expected);
    }

    #[test]
    fn a_line_for_programs_is_one_object_with_the_promised_names() {
        let expected = concat!(
            r#"{"at":"1970-01-01T12:34:56.007Z","method":"POST","path":"/hook","event_id":"evt_1","#,
            r#""event_type":"invoice.paid","delivery_id":"dlv_1","attempt":2,"sequence":null,"replay_id":null,"bytes":2,"#,
            r#""body_sha256":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","#,
            r#""signature":"unchecked","answered":"hang","duplicate":true,"body_base64":"e30="}"#,
            "\n"
        );
        check(Lines::Json { bodies: true }, Answered::Hang, expected);
        let answered: Value = serde_json::to_value(Answered::Status(204)).unwrap();
        assert_eq!(answered, json!(204));
    }
}
