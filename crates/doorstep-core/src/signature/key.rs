//! The keys that sign and verify. None of them shows itself in `Debug`, and their memory is wiped when they go.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::engine::{DecodePaddingMode, Engine};
use zeroize::Zeroizing;

/// A shared secret holds so many bytes, as the standard asks.
const SHARED_LEN: RangeInclusive<usize> = 24..=64;
const SEED_LEN: usize = 32;
const PUBLIC_LEN: usize = 32;
const SIGNATURE_LEN: usize = 64;

const SHARED_PREFIX: &str = "whsec_";
const PRIVATE_PREFIX: &str = "whsk_";
const PUBLIC_PREFIX: &str = "whpk_";

/// We write padding; secrets made elsewhere may come without.
const READ: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What a destination signs with.
#[derive(Clone, Debug)]
pub enum Secret {
    Shared(SharedSecret),
    Private(PrivateKey),
}

impl Secret {
    /// What the receiver needs to verify what this secret signed.
    pub fn verifying_key(&self) -> VerifyingKey {
        match self {
            Self::Shared(secret) => VerifyingKey::Shared(secret.clone()),
            Self::Private(key) => VerifyingKey::Public(key.public_key()),
        }
    }

    /// The whole secret as text, for the store that encrypts it. A person is shown the [`verifying_key`](Self::verifying_key).
    pub fn reveal(&self) -> Zeroizing<String> {
        match self {
            Self::Shared(secret) => secret.reveal(),
            Self::Private(key) => key.reveal(),
        }
    }

    pub(super) fn shared(&self) -> Option<&SharedSecret> {
        match self {
            Self::Shared(secret) => Some(secret),
            Self::Private(_) => None,
        }
    }
}

impl FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        if text.starts_with(SHARED_PREFIX) {
            text.parse().map(Self::Shared)
        } else if text.starts_with(PRIVATE_PREFIX) {
            text.parse().map(Self::Private)
        } else {
            Err(SecretError::Prefix { expected: "`whsec_` (shared secret) or `whsk_` (Ed25519 private key)" })
        }
    }
}

/// What a receiver verifies with.
#[derive(Clone, Debug)]
pub enum VerifyingKey {
    Shared(SharedSecret),
    Public(PublicKey),
}

impl VerifyingKey {
    /// The text that the receiver's owner is given, once.
    pub fn reveal(&self) -> Zeroizing<String> {
        match self {
            Self::Shared(secret) => secret.reveal(),
            Self::Public(key) => Zeroizing::new(key.to_string()),
        }
    }
}

impl FromStr for VerifyingKey {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        if text.starts_with(SHARED_PREFIX) {
            text.parse().map(Self::Shared)
        } else if text.starts_with(PUBLIC_PREFIX) {
            text.parse().map(Self::Public)
        } else {
            Err(SecretError::Prefix { expected: "`whsec_` (shared secret) or `whpk_` (Ed25519 public key)" })
        }
    }
}

/// A secret that sender and receiver both know: `whsec_` and 24 to 64 bytes in base64.
#[derive(Clone)]
pub struct SharedSecret(Zeroizing<Vec<u8>>);

impl SharedSecret {
    /// A new secret of these bytes, which should come from a generator fit for keys.
    pub fn new(bytes: &[u8]) -> Result<Self, SecretError> {
        if !SHARED_LEN.contains(&bytes.len()) {
            return Err(SecretError::Length { prefix: SHARED_PREFIX, allowed: "24 to 64", held: bytes.len() });
        }
        Ok(Self(Zeroizing::new(bytes.to_vec())))
    }

    /// The secret as its owner is shown it, padded. The extra header styles use this very text as their key.
    pub fn reveal(&self) -> Zeroizing<String> {
        encode(SHARED_PREFIX, &self.0)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for SharedSecret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        Self::new(&decode(SHARED_PREFIX, text)?)
    }
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedSecret(whsec_…)")
    }
}

/// An Ed25519 key that only the sender knows: `whsk_` and the 32 bytes of its seed in base64.
#[derive(Clone)]
pub struct PrivateKey {
    seed: Zeroizing<[u8; SEED_LEN]>,
    // Deriving it costs as much as signing. The library wipes it when the last clone goes.
    pair: Arc<Ed25519KeyPair>,
}

impl PrivateKey {
    /// A new key from this seed, which should come from a generator fit for keys.
    pub fn from_seed(seed: &[u8; SEED_LEN]) -> Result<Self, SecretError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| SecretError::Refused)?;
        Ok(Self { seed: Zeroizing::new(*seed), pair: Arc::new(pair) })
    }

    pub fn public_key(&self) -> PublicKey {
        let mut bytes = [0; PUBLIC_LEN];
        bytes.copy_from_slice(self.pair.public_key().as_ref());
        PublicKey(bytes)
    }

    /// The key as the store keeps it. It is shown to nobody.
    pub fn reveal(&self) -> Zeroizing<String> {
        encode(PRIVATE_PREFIX, self.seed.as_slice())
    }

    pub(super) fn sign(&self, content: &[u8]) -> [u8; SIGNATURE_LEN] {
        let mut bytes = [0; SIGNATURE_LEN];
        bytes.copy_from_slice(self.pair.sign(content).as_ref());
        bytes
    }
}

/// Reads a bare seed, and also seed and public key one after the other, as some senders export them.
impl FromStr for PrivateKey {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let bytes = decode(PRIVATE_PREFIX, text)?;
        let Some((seed, public)) = bytes.split_first_chunk::<SEED_LEN>() else {
            return Err(private_length(bytes.len()));
        };
        let key = Self::from_seed(seed)?;
        match public.len() {
            0 => Ok(key),
            PUBLIC_LEN if public == key.public_key().0 => Ok(key),
            PUBLIC_LEN => Err(SecretError::HalvesDiffer),
            _ => Err(private_length(bytes.len())),
        }
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey(whsk_… of {})", self.public_key())
    }
}

/// The Ed25519 key that receivers verify with: `whpk_` and 32 bytes in base64. It is no secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey([u8; PUBLIC_LEN]);

impl PublicKey {
    pub(super) fn verifies(&self, content: &[u8], signature: &[u8; SIGNATURE_LEN]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(content, signature).is_ok()
    }
}

impl FromStr for PublicKey {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let bytes = decode(PUBLIC_PREFIX, text)?;
        let wrong = SecretError::Length { prefix: PUBLIC_PREFIX, allowed: "32", held: bytes.len() };
        bytes.as_slice().try_into().map(Self).map_err(|_| wrong)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encode(PUBLIC_PREFIX, &self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// Why a text is not a key. It never repeats any of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("the key does not start with {expected}")]
    Prefix { expected: &'static str },
    #[error("what follows `{prefix}` is not base64: use the letters A–Z a–z 0–9 + / and no spaces")]
    NotBase64 { prefix: &'static str },
    #[error("a `{prefix}` key holds {allowed} bytes, this one holds {held}: encode the raw bytes in base64, once")]
    Length { prefix: &'static str, allowed: &'static str, held: usize },
    #[error("the two halves of the `whsk_` key do not belong together: give the seed alone, or seed and public key")]
    HalvesDiffer,
    #[error("the cryptographic library refuses this key")]
    Refused,
}

fn private_length(held: usize) -> SecretError {
    SecretError::Length { prefix: PRIVATE_PREFIX, allowed: "32 (seed) or 64 (seed and public key)", held }
}

fn encode(prefix: &str, bytes: &[u8]) -> Zeroizing<String> {
    // With the room made first, the text never moves and leaves no copy behind.
    let mut text = Zeroizing::new(String::with_capacity(prefix.len() + bytes.len().div_ceil(3) * 4));
    text.push_str(prefix);
    STANDARD.encode_string(bytes, &mut text);
    text
}

fn decode(prefix: &'static str, text: &str) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    let encoded = text.strip_prefix(prefix).ok_or(SecretError::Prefix { expected: prefix })?;
    READ.decode(encoded).map(Zeroizing::new).map_err(|_| SecretError::NotBase64 { prefix })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; 32] = {
        let mut bytes = [0; 32];
        let mut i = 0;
        while i < 32 {
            bytes[i] = i as u8;
            i += 1;
        }
        bytes
    };

    #[test]
    fn keys_read_back_as_they_were_written() {
        let shared = SharedSecret::new(&BYTES).unwrap();
        assert_eq!(*shared.reveal(), "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
        let private = PrivateKey::from_seed(&BYTES).unwrap();
        assert_eq!(*private.reveal(), "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
        assert_eq!(private.public_key().to_string(), "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=");

        for secret in [Secret::Shared(shared), Secret::Private(private)] {
            assert_eq!(secret.reveal().parse::<Secret>().unwrap().reveal(), secret.reveal());
            let key = secret.verifying_key();
            assert_eq!(key.reveal().parse::<VerifyingKey>().unwrap().reveal(), key.reveal());
        }
    }

    #[test]
    fn padding_may_be_missing_when_read_and_is_always_written() {
        let padded = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        let bare: SharedSecret = padded.trim_end_matches('=').parse().unwrap();
        assert_eq!(*bare.reveal(), padded);
    }

    #[test]
    fn a_private_key_may_carry_its_public_half_if_they_belong_together() {
        let key = PrivateKey::from_seed(&BYTES).unwrap();
        let mut both = [BYTES, key.public_key().0].concat();
        let text = |bytes: &[u8]| encode(PRIVATE_PREFIX, bytes);
        assert_eq!(text(&both).parse::<PrivateKey>().unwrap().public_key(), key.public_key());
        both[63] ^= 1;
        assert_eq!(text(&both).parse::<PrivateKey>().unwrap_err(), SecretError::HalvesDiffer);
    }

    #[test]
    fn a_text_that_is_no_key_is_refused_with_the_reason() {
        let prefix = |text: &str| SecretError::Prefix {
            expected: match text {
                "sign" => "`whsec_` (shared secret) or `whsk_` (Ed25519 private key)",
                _ => "`whsec_` (shared secret) or `whpk_` (Ed25519 public key)",
            },
        };
        let length = |prefix, allowed, held| SecretError::Length { prefix, allowed, held };
        let private = "32 (seed) or 64 (seed and public key)";
        let sign = |text: &str| text.parse::<Secret>().unwrap_err();
        let verify = |text: &str| text.parse::<VerifyingKey>().unwrap_err();
        for (got, expected) in [
            (sign(""), prefix("sign")),
            (sign("AAAA"), prefix("sign")),
            (sign("whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="), prefix("sign")),
            (verify("whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="), prefix("verify")),
            (sign("whsec_not base64!"), SecretError::NotBase64 { prefix: "whsec_" }),
            (sign("whsec_-_-_"), SecretError::NotBase64 { prefix: "whsec_" }),
            (sign(&encode(SHARED_PREFIX, &[7; 23])), length("whsec_", "24 to 64", 23)),
            (sign(&encode(SHARED_PREFIX, &[7; 65])), length("whsec_", "24 to 64", 65)),
            (sign(&encode(PRIVATE_PREFIX, &[7; 31])), length("whsk_", private, 31)),
            (sign(&encode(PRIVATE_PREFIX, &[7; 63])), length("whsk_", private, 63)),
            (sign(&encode(PRIVATE_PREFIX, &[7; 65])), length("whsk_", private, 65)),
            (verify(&encode(PUBLIC_PREFIX, &[7; 33])), length("whpk_", "32", 33)),
        ] {
            assert_eq!(got, expected);
        }
        assert!(encode(SHARED_PREFIX, &[7; 24]).parse::<Secret>().is_ok());
        assert!(encode(SHARED_PREFIX, &[7; 64]).parse::<Secret>().is_ok());
    }

    #[test]
    fn debug_output_never_shows_key_material() {
        let shared = Secret::Shared(SharedSecret::new(&BYTES).unwrap());
        let private = Secret::Private(PrivateKey::from_seed(&BYTES).unwrap());
        assert_eq!(format!("{shared:?}"), "Shared(SharedSecret(whsec_…))");
        assert_eq!(
            format!("{private:#?}").split_whitespace().collect::<String>(),
            "Private(PrivateKey(whsk_…ofwhpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=),)"
        );
        let refused = "whsec_SECRETSECRET!".parse::<Secret>().unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains("SECRETSECRET"));
    }
}
