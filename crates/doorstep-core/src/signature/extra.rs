//! The headers of other senders, for receivers that already verify them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::verify::{VerifyError, check_age, equal_in_constant_time, header_text};
use super::{Header, SharedSecret, mac};
use crate::time::{Millis, Timestamp};

/// A signature header beside those of the standard. All three are HMAC-SHA256, written in hexadecimal.
///
/// The key is the *text* of the shared secret, `whsec_` included, not the bytes it encodes: the libraries of GitHub
/// and Stripe take the secret as an opaque string, so they work unchanged when given the secret as it was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExtraStyle {
    /// `X-Signature: scheme=v1,ts=…,sig=…` over `{ts}.{body}`; one `sig` for each shared secret, newest first.
    XSignature,
    /// `X-Hub-Signature-256: sha256=…` over the body. It has room for one signature: the newest shared secret's.
    Github,
    /// `Stripe-Signature: t=…,v1=…` over `{t}.{body}`; one `v1` for each shared secret, newest first.
    Stripe,
}

impl ExtraStyle {
    /// The header of this style; `secrets` are newest first.
    pub(super) fn sign(self, timestamp: &str, body: &[u8], secrets: &[&SharedSecret]) -> Header {
        let layout = self.layout();
        let mut fields: Vec<String> = Vec::new();
        fields.extend(layout.scheme.map(|(name, value)| format!("{name}={value}")));
        fields.extend(layout.timestamp.map(|name| format!("{name}={timestamp}")));
        for secret in &secrets[..secrets.len().min(layout.signatures_max)] {
            let tag = mac(secret.reveal().as_bytes(), &layout.signed_parts(timestamp, body));
            fields.push(format!("{}={}", layout.signature, hex(tag.as_ref())));
        }
        Header { name: layout.header, value: fields.join(",") }
    }

    /// Checks a request that carries this style's header, as a receiver would.
    pub fn verify<'h>(
        self,
        header: impl Fn(&'static str) -> Option<&'h [u8]>,
        body: &[u8],
        secrets: &[SharedSecret],
        now: Timestamp,
        tolerance: Millis,
    ) -> Result<(), VerifyError> {
        let layout = self.layout();
        let malformed = |why| VerifyError::Malformed { header: layout.header, why };
        let text = header_text(&header, layout.header)?;
        let field = |name| text.split(',').filter_map(move |field| field.strip_prefix(name)?.strip_prefix('='));

        if let Some((name, value)) = layout.scheme
            && field(name).next() != Some(value)
        {
            return Err(malformed("its scheme is not `v1`"));
        }
        let timestamp = match layout.timestamp {
            Some(name) => field(name).next().ok_or(malformed("it carries no timestamp"))?,
            None => "",
        };
        if layout.timestamp.is_some() {
            check_age(layout.header, timestamp, now, tolerance)?;
        }
        let given: Vec<[u8; 32]> = field(layout.signature).filter_map(from_hex).collect();
        if given.is_empty() {
            return Err(malformed("it carries no signature of 64 hexadecimal digits"));
        }
        let matches = |secret: &SharedSecret| {
            let tag = mac(secret.reveal().as_bytes(), &layout.signed_parts(timestamp, body));
            given.iter().any(|given| equal_in_constant_time(tag.as_ref(), given))
        };
        if secrets.iter().any(matches) { Ok(()) } else { Err(VerifyError::NoMatch { secrets: secrets.len() }) }
    }

    fn layout(self) -> Layout {
        match self {
            Self::XSignature => Layout {
                header: "x-signature",
                scheme: Some(("scheme", "v1")),
                timestamp: Some("ts"),
                signature: "sig",
                signatures_max: usize::MAX,
            },
            Self::Github => Layout {
                header: "x-hub-signature-256",
                scheme: None,
                timestamp: None,
                signature: "sha256",
                signatures_max: 1,
            },
            Self::Stripe => Layout {
                header: "stripe-signature",
                scheme: None,
                timestamp: Some("t"),
                signature: "v1",
                signatures_max: usize::MAX,
            },
        }
    }
}

/// As it is written in a destination's settings.
impl fmt::Display for ExtraStyle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::XSignature => "x_signature",
            Self::Github => "github",
            Self::Stripe => "stripe",
        })
    }
}

/// Each style is a list of `name=value` fields: scheme and timestamp where it has them, then the signatures.
struct Layout {
    header: &'static str,
    scheme: Option<(&'static str, &'static str)>,
    timestamp: Option<&'static str>,
    signature: &'static str,
    signatures_max: usize,
}

impl Layout {
    fn signed_parts<'a>(&self, timestamp: &'a str, body: &'a [u8]) -> [&'a [u8]; 3] {
        match self.timestamp {
            Some(_) => [timestamp.as_bytes(), b".", body],
            None => [b"", b"", body],
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]).collect()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(bytes)
}
