//! Signing, so that a receiver can tell our requests from anybody else's (S1, S2).
//!
//! Every request is signed as [Standard Webhooks](https://www.standardwebhooks.com) asks: `webhook-id`,
//! `webhook-timestamp` and `webhook-signature` over `{id}.{timestamp}.{body}`. A destination that moves here from
//! another sender may have the headers of that sender beside them: see [`ExtraStyle`].

mod extra;
mod key;
mod verify;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

pub use extra::ExtraStyle;
pub use key::{PrivateKey, PublicKey, Secret, SecretError, SharedSecret, VerifyingKey};
pub use verify::{TOKENS_MAX, TOLERANCE_DEFAULT, VerifyError, verify};

use crate::time::Timestamp;

pub const ID_HEADER: &str = "webhook-id";
pub const TIMESTAMP_HEADER: &str = "webhook-timestamp";
pub const SIGNATURE_HEADER: &str = "webhook-signature";

/// So many secrets of one destination can be active at once: its signature header stays below 1 KiB.
pub const SECRETS_MAX: usize = 8;

/// How one destination's requests are signed.
#[derive(Clone, Debug)]
pub struct Signer {
    secrets: Vec<Secret>,
    extra: BTreeSet<ExtraStyle>,
}

impl Signer {
    /// Takes all active secrets, newest first: while one replaces another, requests carry the signatures of both.
    pub fn new(secrets: Vec<Secret>, extra: BTreeSet<ExtraStyle>) -> Result<Self, SignerError> {
        if secrets.is_empty() {
            return Err(SignerError::NoSecret);
        }
        if secrets.len() > SECRETS_MAX {
            return Err(SignerError::TooManySecrets { given: secrets.len() });
        }
        if let Some(style) = extra.first()
            && !secrets.iter().any(|secret| secret.shared().is_some())
        {
            return Err(SignerError::NeedsSharedSecret { style: *style });
        }
        Ok(Self { secrets, extra })
    }

    /// The headers that sign this attempt: the three of the standard, then one for each extra style.
    pub fn sign(&self, message: &Message<'_>) -> Result<Vec<Header>, BadId> {
        check_id(message.id)?;
        let timestamp = message.at.as_secs().to_string();
        let mut headers = vec![
            Header { name: ID_HEADER, value: message.id.to_owned() },
            Header { name: TIMESTAMP_HEADER, value: timestamp.clone() },
            Header { name: SIGNATURE_HEADER, value: self.tokens(message, &timestamp) },
        ];
        let shared: Vec<&SharedSecret> = self.secrets.iter().filter_map(Secret::shared).collect();
        for style in &self.extra {
            headers.push(style.sign(&timestamp, message.body, &shared));
        }
        Ok(headers)
    }

    fn tokens(&self, message: &Message<'_>, timestamp: &str) -> String {
        let token = |secret: &Secret| match secret {
            Secret::Shared(secret) => {
                let tag = mac(secret.bytes(), &signed_parts(message.id, timestamp, message.body));
                format!("v1,{}", STANDARD.encode(tag))
            }
            Secret::Private(key) => {
                // Ed25519 reads its message twice, so it has to lie in one piece; HMAC never copies the body.
                let content = signed_parts(message.id, timestamp, message.body).concat();
                format!("v1a,{}", STANDARD.encode(key.sign(&content)))
            }
        };
        self.secrets.iter().map(token).collect::<Vec<_>>().join(" ")
    }
}

/// What one attempt says: the event's ID, when this attempt is made, and the exact bytes that are sent.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    pub id: &'a str,
    pub at: Timestamp,
    pub body: &'a [u8],
}

/// A header of the request: a lower-case name and a value of printable ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub name: &'static str,
    pub value: String,
}

/// These secrets and styles cannot sign together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignerError {
    #[error("a destination needs at least one active secret to sign with")]
    NoSecret,
    #[error("{given} secrets are active at once, {SECRETS_MAX} are allowed: let older ones expire first")]
    TooManySecrets { given: usize },
    #[error("the `{style}` header is an HMAC and needs a shared secret: add a `whsec_` secret, or drop the style")]
    NeedsSharedSecret { style: ExtraStyle },
}

/// An event ID that cannot be signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadId {
    #[error("the event ID is empty")]
    Empty,
    // With a dot in it, `a.1` at `2` and `a` at `1` with the body `2.…` would carry the same signature.
    #[error("the event ID contains a full stop, which separates the parts that are signed: leave it out")]
    FullStop,
    #[error("the event ID contains a space or other than printable ASCII characters, which no header can carry")]
    Unprintable,
}

fn check_id(id: &str) -> Result<(), BadId> {
    match id {
        "" => Err(BadId::Empty),
        _ if id.contains('.') => Err(BadId::FullStop),
        _ if !id.bytes().all(|byte| byte.is_ascii_graphic()) => Err(BadId::Unprintable),
        _ => Ok(()),
    }
}

/// What the standard signs: `{id}.{timestamp}.{body}`.
fn signed_parts<'a>(id: &'a str, timestamp: &'a str, body: &'a [u8]) -> [&'a [u8]; 5] {
    [id.as_bytes(), b".", timestamp.as_bytes(), b".", body]
}

/// HMAC-SHA256 of the parts one after the other.
fn mac(key: &[u8], parts: &[&[u8]]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    for part in parts {
        context.update(part);
    }
    context.sign()
}
