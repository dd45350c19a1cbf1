//! Payloads and what goes with them, encrypted with their tenant's own key. When that key is gone, so are they.

use aws_lc_rs::hmac;
use bytes::Bytes;
use doorstep_core::id::{AttemptId, EventId, TenantId};
use zeroize::Zeroizing;

use super::{KEY_LEN, KeyId, Keyring, NONCE_LEN, Place, SealError, TAG_LEN, cipher, decrypt, encrypt, fill};

const SALT_LEN: usize = 16;
const AT_BODY: usize = SALT_LEN + NONCE_LEN;

/// What is encrypted. It opens as that, and as that of this event or attempt, alone.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content<'a> {
    Payload(&'a EventId),
    Headers(&'a EventId),
    /// What was captured of a request and its answer.
    Captured(AttemptId),
}

/// By how much a payload grows.
pub(crate) const PAYLOAD_GROWS_BY: usize = AT_BODY + TAG_LEN;

/// A tenant's key. A tenant may have billions of events, so none is encrypted with it directly: each has a key that is derived from it.
#[derive(Debug)]
pub(crate) struct TenantKey {
    tenant_id: TenantId,
    pub(crate) id: KeyId,
    key: hmac::Key,
}

impl TenantKey {
    /// A new one, and how it is kept.
    pub(crate) fn make(keys: &Keyring, tenant_id: TenantId) -> (Self, Vec<u8>) {
        let (mut id, mut bytes) = ([0; 8], Zeroizing::new([0; KEY_LEN]));
        fill(&mut id);
        fill(&mut *bytes);
        let made = Self::new(tenant_id, KeyId::from_bytes(id), &*bytes);
        let sealed = keys.seal(Place::TenantKey(tenant_id, made.id), &*bytes);
        (made, sealed)
    }

    pub(crate) fn open(keys: &Keyring, tenant_id: TenantId, id: KeyId, sealed: &[u8]) -> Result<Self, SealError> {
        Ok(Self::new(tenant_id, id, &keys.open(Place::TenantKey(tenant_id, id), sealed)?))
    }

    fn new(tenant_id: TenantId, id: KeyId, bytes: &[u8]) -> Self {
        Self { tenant_id, id, key: hmac::Key::new(hmac::HMAC_SHA256, bytes) }
    }

    /// `salt, nonce, ciphertext`, bound to the tenant and to what it is.
    pub(crate) fn seal(&self, content: Content<'_>, clear: &[u8]) -> Vec<u8> {
        let mut sealed = Vec::with_capacity(clear.len() + PAYLOAD_GROWS_BY);
        sealed.resize(AT_BODY, 0);
        fill(&mut sealed);
        sealed.extend(clear);
        let (head, body) = sealed.split_at_mut(AT_BODY);
        let tag = encrypt(&cipher(&self.derived(head)), &head[SALT_LEN..], &self.bound(content), body);
        sealed.extend(tag);
        sealed
    }

    pub(crate) fn unseal(&self, content: Content<'_>, mut sealed: Vec<u8>) -> Result<Bytes, SealError> {
        if sealed.len() < PAYLOAD_GROWS_BY {
            return Err(SealError::Broken);
        }
        let (head, body) = sealed.split_at_mut(AT_BODY);
        let n = decrypt(&cipher(&self.derived(head)), &head[SALT_LEN..], &self.bound(content), body)?.len();
        Ok(Bytes::from(sealed).slice(AT_BODY..AT_BODY + n))
    }

    fn derived(&self, head: &[u8]) -> Zeroizing<[u8; KEY_LEN]> {
        let mut key = Zeroizing::new([0; KEY_LEN]);
        key.copy_from_slice(hmac::sign(&self.key, &head[..SALT_LEN]).as_ref());
        key
    }

    fn bound(&self, content: Content<'_>) -> Vec<u8> {
        let attempt;
        let (kind, name): (&[u8], &[u8]) = match content {
            Content::Payload(id) => (b"payload\0", id.as_str().as_bytes()),
            Content::Headers(id) => (b"headers\0", id.as_str().as_bytes()),
            Content::Captured(id) => {
                attempt = id.0.to_be_bytes();
                (b"captured\0", &attempt)
            }
        };
        [kind, &self.tenant_id.0.to_be_bytes(), name].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::super::MasterKey;
    use super::*;

    fn id(text: &str) -> EventId {
        EventId::new(text).unwrap()
    }

    #[test]
    fn a_payload_opens_for_its_event_and_its_tenant_alone() {
        let keys = Keyring::new(MasterKey::new(&[1; KEY_LEN]));
        let (key, kept) = TenantKey::make(&keys, TenantId(1));
        for clear in [&b""[..], b"hush", &[3; 100_000]] {
            let sealed = key.seal(Content::Payload(&id("e1")), clear);
            assert_eq!(sealed.len(), clear.len() + PAYLOAD_GROWS_BY);
            let again = TenantKey::open(&keys, TenantId(1), key.id, &kept).unwrap();
            assert_eq!(again.unseal(Content::Payload(&id("e1")), sealed.clone()).unwrap(), clear);
            assert_eq!(key.unseal(Content::Payload(&id("e2")), sealed.clone()), Err(SealError::Broken));
            for other in [Content::Headers(&id("e1")), Content::Captured(AttemptId(1))] {
                assert_eq!(key.unseal(other, sealed.clone()), Err(SealError::Broken));
            }
            let (other, _) = TenantKey::make(&keys, TenantId(1));
            assert_eq!(other.unseal(Content::Payload(&id("e1")), sealed.clone()), Err(SealError::Broken));
            for at in [0, SALT_LEN, AT_BODY, sealed.len() - 1] {
                let mut changed = sealed.clone();
                changed[at] ^= 1;
                assert_eq!(key.unseal(Content::Payload(&id("e1")), changed), Err(SealError::Broken));
            }
            assert_eq!(key.unseal(Content::Payload(&id("e1")), sealed[..AT_BODY].to_vec()), Err(SealError::Broken));
        }
        assert!(
            TenantKey::open(&keys, TenantId(2), key.id, &kept).is_err(),
            "nor does its key open for another tenant"
        );
    }
}
