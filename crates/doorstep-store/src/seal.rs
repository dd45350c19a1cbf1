//! How secrets are kept (S6): each record is encrypted with a key of its own, and that key with the master key.
//!
//! A sealed record is `version, ID of the master key, nonce, wrapped record key, ciphertext`, all of it AES-256-GCM and bound to the place
//! where it belongs: one that was changed, or copied to another row, does not open. A new master key re-wraps the record keys and
//! leaves the rest as it is. `docs/decisions/0011-secrets-at-rest.md` has the reasons.

pub(crate) mod payload;
pub(crate) mod digest;

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::rand;
use doorstep_core::id::{DestinationId, TenantId};
use thiserror::Error;
use zeroize::Zeroizing;

/// Bytes of a master key, and of every other key here.
pub const KEY_LEN: usize = 32;

const TAG_LEN: usize = 16;
const ID_LEN: usize = 8;
const VERSION: u8 = 1;

/// Where the parts of a record begin.
const AT_ID: usize = 1;
const AT_NONCE: usize = AT_ID + ID_LEN;
const AT_WRAPPED: usize = AT_NONCE + NONCE_LEN;
const AT_BODY: usize = AT_WRAPPED + KEY_LEN + TAG_LEN;

/// Tells keys apart without giving anything away about them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; ID_LEN]);

impl KeyId {
    pub(crate) fn from_bytes(bytes: [u8; ID_LEN]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(self) -> [u8; ID_LEN] {
        self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// The key that every other key is sealed with. It does not show itself.
pub struct MasterKey {
    id: KeyId,
    key: LessSafeKey,
}

impl MasterKey {
    pub fn new(bytes: &[u8; KEY_LEN]) -> Self {
        let mut hash = Context::new(&SHA256);
        hash.update(b"doorstep master key\0");
        hash.update(bytes);
        let mut id = [0; ID_LEN];
        id.copy_from_slice(&hash.finish().as_ref()[..ID_LEN]);
        Self { id: KeyId(id), key: cipher(bytes) }
    }

    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Seals a record key with this one: nonce and ciphertext.
    fn wrap(&self, place: &[u8], record_key: &[u8; KEY_LEN]) -> [u8; AT_BODY - AT_NONCE] {
        let mut wrapped = [0; AT_BODY - AT_NONCE];
        let (nonce, rest) = wrapped.split_at_mut(NONCE_LEN);
        fill(nonce);
        let (key, tag) = rest.split_at_mut(KEY_LEN);
        key.copy_from_slice(record_key);
        tag.copy_from_slice(&encrypt(&self.key, nonce, &self.bound(place), key));
        wrapped
    }

    fn unwrap(&self, place: &[u8], wrapped: &[u8]) -> Result<Zeroizing<[u8; KEY_LEN]>, SealError> {
        let (nonce, rest) = wrapped.split_at(NONCE_LEN);
        let mut buffer = Zeroizing::new([0; KEY_LEN + TAG_LEN]);
        buffer.copy_from_slice(rest);
        let mut key = Zeroizing::new([0; KEY_LEN]);
        key.copy_from_slice(decrypt(&self.key, nonce, &self.bound(place), &mut *buffer)?);
        Ok(key)
    }

    /// The wrapped key belongs to this version and this master key too.
    fn bound(&self, place: &[u8]) -> Vec<u8> {
        [&[VERSION], &self.id.0[..], place].concat()
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MasterKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The master keys at hand: one that seals, and perhaps others that open what was sealed before.
#[derive(Debug)]
pub struct Keyring {
    current: MasterKey,
    others: Vec<MasterKey>,
    payloads: bool,
    /// What the digests of a database are made with, once that is open.
    digests: Option<digest::DigestKey>,
}

impl Keyring {
    pub fn new(current: MasterKey) -> Self {
        Self { current, others: Vec::new(), payloads: false, digests: None }
    }

    /// Opens what was sealed with this key too.
    pub fn and_opens(mut self, other: MasterKey) -> Self {
        self.others.push(other);
        self
    }

    /// Whether payloads are encrypted too, each with its tenant's own key. Those that are there stay as they are.
    pub fn sealing_payloads(mut self, payloads: bool) -> Self {
        self.payloads = payloads;
        self
    }

    pub(crate) fn keep_digests(&mut self, key: digest::DigestKey) {
        self.digests = Some(key);
    }

    pub(crate) fn digests(&self) -> Option<&digest::DigestKey> {
        self.digests.as_ref()
    }

    pub(crate) fn seals_payloads(&self) -> bool {
        self.payloads
    }

    pub fn current(&self) -> KeyId {
        self.current.id
    }

    pub fn has(&self, id: KeyId) -> bool {
        self.by_id(id).is_some()
    }

    /// Encrypts `clear` for this one place.
    pub(crate) fn seal(&self, place: Place, clear: &[u8]) -> Vec<u8> {
        let place = place.bytes();
        let mut record_key = Zeroizing::new([0; KEY_LEN]);
        fill(&mut *record_key);
        let mut sealed = Vec::with_capacity(AT_BODY + clear.len() + TAG_LEN);
        sealed.push(VERSION);
        sealed.extend(self.current.id.0);
        sealed.extend(self.current.wrap(&place, &record_key));
        sealed.extend(clear);
        let tag = encrypt(&cipher(&record_key), &ONLY_NONCE, &place, &mut sealed[AT_BODY..]);
        sealed.extend(tag);
        sealed
    }

    /// The reverse of [`seal`](Self::seal), with whichever of the keys it was sealed.
    pub(crate) fn open(&self, place: Place, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let place = place.bytes();
        let record_key = self.key_of(sealed)?.unwrap(&place, &sealed[AT_NONCE..AT_BODY])?;
        let mut clear = Zeroizing::new(sealed[AT_BODY..].to_vec());
        let n = decrypt(&cipher(&record_key), &ONLY_NONCE, &place, &mut clear)?.len();
        clear.truncate(n);
        Ok(clear)
    }

    /// The same record under the current master key; `None` if it is already. What it holds is not decrypted.
    pub(crate) fn rewrap(&self, place: Place, sealed: &[u8]) -> Result<Option<Vec<u8>>, SealError> {
        let key = self.key_of(sealed)?;
        if key.id == self.current.id {
            return Ok(None);
        }
        let place = place.bytes();
        let record_key = key.unwrap(&place, &sealed[AT_NONCE..AT_BODY])?;
        let wrapped = self.current.wrap(&place, &record_key);
        Ok(Some([&[VERSION], &self.current.id.0[..], &wrapped[..], &sealed[AT_BODY..]].concat()))
    }

    /// Answers for the length too: whatever has a key has all its parts.
    fn key_of(&self, sealed: &[u8]) -> Result<&MasterKey, SealError> {
        match sealed.first() {
            Some(&VERSION) if sealed.len() >= AT_BODY + TAG_LEN => {}
            Some(&VERSION) | None => return Err(SealError::Broken),
            Some(&version) => return Err(SealError::Version(version)),
        }
        let mut id = [0; ID_LEN];
        id.copy_from_slice(&sealed[AT_ID..AT_NONCE]);
        self.by_id(KeyId(id)).ok_or(SealError::KeyMissing { needed: KeyId(id) })
    }

    fn by_id(&self, id: KeyId) -> Option<&MasterKey> {
        std::iter::once(&self.current).chain(&self.others).find(|key| key.id == id)
    }
}

/// Where a record belongs; it opens nowhere else.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// Tells whether a master key is the right one.
    Check,
    Destination(TenantId, DestinationId),
    TenantKey(TenantId, KeyId),
    DigestKey(KeyId),
}

impl Place {
    /// What it is, and fixed lengths behind it: no two places look alike.
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Check => b"check\0".to_vec(),
            Self::Destination(tenant_id, id) => {
                [b"destination\0", &tenant_id.0.to_be_bytes()[..], &id.0.to_be_bytes()[..]].concat()
            }
            Self::TenantKey(tenant_id, id) => [b"tenant key\0", &tenant_id.0.to_be_bytes()[..], &id.0[..]].concat(),
            Self::DigestKey(id) => [b"digest key\0", &id.0[..]].concat(),
        }
    }
}

/// Why a record does not open. Never says what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SealError {
    #[error("it is sealed with the master key {needed}, which was not given")]
    KeyMissing { needed: KeyId },
    #[error("it was damaged, changed, or moved here from another place")]
    Broken,
    #[error("it is sealed in the form {0}, which this version does not know")]
    Version(u8),
}

/// A record key encrypts one record and nothing else.
const ONLY_NONCE: [u8; NONCE_LEN] = [0; NONCE_LEN];

fn cipher(key: &[u8; KEY_LEN]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("its length is right"))
}

fn fill(bytes: &mut [u8]) {
    rand::fill(bytes).expect("the machine gives random numbers");
}

fn encrypt(key: &LessSafeKey, nonce: &[u8], bound: &[u8], in_out: &mut [u8]) -> [u8; TAG_LEN] {
    let tag = key
        .seal_in_place_separate_tag(nonce_of(nonce), Aad::from(bound), in_out)
        .expect("nothing that is kept here is too long");
    let mut bytes = [0; TAG_LEN];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

fn decrypt<'a>(key: &LessSafeKey, nonce: &[u8], bound: &[u8], in_out: &'a mut [u8]) -> Result<&'a mut [u8], SealError> {
    key.open_in_place(nonce_of(nonce), Aad::from(bound), in_out).map_err(|_| SealError::Broken)
}

fn nonce_of(bytes: &[u8]) -> Nonce {
    Nonce::try_assume_unique_for_key(bytes).expect("its length is right")
}

#[cfg(test)]
mod tests;
