//! What is kept of an event that is not encrypted, so that it shows if it was damaged or changed on disk.

use std::fmt;
use std::hash::Hasher;

use doorstep_core::event::Event;
use siphasher::sip128::{Hasher128, SipHasher13};
use zeroize::Zeroizing;

use super::{KeyId, Keyring, Place, SealError, fill};

/// SipHash-1-3 with 128 bits: nobody without the key can make one that fits.
pub(crate) const DIGEST_LEN: usize = 16;
const KEY_LEN: usize = 16;

/// The key of all digests in a database. It is sealed with the master key, and the first event that has a digest with it: none
/// can be taken away without a trace.
pub(crate) struct DigestKey {
    keyed: SipHasher13,
    from_seq: i64,
}

impl fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DigestKey").field("from_seq", &self.from_seq).finish_non_exhaustive()
    }
}

impl DigestKey {
    /// A new one for the events from this number on, its name, and how it is kept.
    pub(crate) fn make(keys: &Keyring, from_seq: i64) -> (Self, KeyId, Vec<u8>) {
        let (mut id, mut bytes) = ([0; 8], Zeroizing::new([0; KEY_LEN]));
        fill(&mut id);
        fill(&mut *bytes);
        let id = KeyId::from_bytes(id);
        let clear = Zeroizing::new([&bytes[..], &from_seq.to_be_bytes()].concat());
        let sealed = keys.seal(Place::DigestKey(id), &clear);
        (Self::new(&bytes, from_seq), id, sealed)
    }

    pub(crate) fn open(keys: &Keyring, id: KeyId, sealed: &[u8]) -> Result<Self, SealError> {
        let clear = keys.open(Place::DigestKey(id), sealed)?;
        let (bytes, from_seq) = clear.split_first_chunk::<KEY_LEN>().ok_or(SealError::Broken)?;
        let from_seq = from_seq.try_into().map_err(|_| SealError::Broken)?;
        Ok(Self::new(bytes, i64::from_be_bytes(from_seq)))
    }

    fn new(bytes: &[u8; KEY_LEN], from_seq: i64) -> Self {
        Self { keyed: SipHasher13::new_with_key(bytes), from_seq }
    }

    /// Whether the event with this number was stored with a digest.
    pub(crate) fn covers(&self, seq: i64) -> bool {
        seq >= self.from_seq
    }

    /// Of all that a producer gave and that is sent.
    pub(crate) fn digest(&self, event: &Event) -> [u8; DIGEST_LEN] {
        let mut hasher = self.keyed;
        hasher.write(&head(event));
        hasher.write(&event.payload);
        hasher.finish128().as_bytes()
    }
}

/// Everything but the payload, which comes behind it. Each part has its length before it: no two events look alike.
fn head(event: &Event) -> Vec<u8> {
    // Every field by its name, so that a new one is not left out.
    let Event {
        id,
        tenant_id,
        event_type,
        content_type,
        payload: _,
        ordering_key,
        produced_at,
        schema_version,
        headers,
        ttl,
        accepted_at,
        wall_offset_ms,
        trace,
        cloud,
    } = event;
    let mut head = Vec::with_capacity(256);
    head.extend(tenant_id.0.to_be_bytes());
    head.extend(accepted_at.0.to_be_bytes());
    head.extend(wall_offset_ms.to_be_bytes());
    let mut part = |bytes: Option<&[u8]>| {
        // One more than the length: nothing is not the same as empty.
        head.extend(bytes.map_or(0, |bytes| bytes.len() as u64 + 1).to_be_bytes());
        head.extend(bytes.unwrap_or_default());
    };
    part(Some(id.as_str().as_bytes()));
    part(Some(event_type.as_str().as_bytes()));
    part(Some(content_type.as_bytes()));
    part(ordering_key.as_ref().map(|key| key.as_bytes()));
    part(produced_at.map(|at| at.0.to_be_bytes()).as_ref().map(|bytes| &bytes[..]));
    part(schema_version.as_ref().map(|version| version.as_bytes()));
    part(ttl.map(|ttl| ttl.0.to_be_bytes()).as_ref().map(|bytes| &bytes[..]));
    part(trace.map(|trace| trace.to_string()).as_ref().map(|text| text.as_bytes()));
    part(cloud.as_ref().map(|cloud| cloud.id.as_bytes()));
    part(cloud.as_ref().map(|cloud| cloud.source.as_bytes()));
    part(cloud.as_ref().and_then(|cloud| cloud.subject.as_ref()).map(|subject| subject.as_bytes()));
    for (name, value) in headers {
        part(Some(name.as_bytes()));
        part(Some(value.as_bytes()));
    }
    head
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use doorstep_core::event::CloudAttributes;
    use doorstep_core::id::{EventId, TenantId};
    use doorstep_core::time::{Millis, Timestamp};

    use super::super::MasterKey;
    use super::*;
    use crate::conformance::samples::{NOW, event};

    fn cloud(subject: Option<&str>) -> Arc<CloudAttributes> {
        Arc::new(CloudAttributes { id: "1".into(), source: "/a".into(), subject: subject.map(Into::into) })
    }

    #[test]
    fn whatever_is_changed_shows() {
        let keys = Keyring::new(MasterKey::new(&[1; super::super::KEY_LEN]));
        let (key, id, sealed) = DigestKey::make(&keys, 7);
        let event = event("e1", Some("k"), NOW);
        let digest = key.digest(&event);
        assert_eq!(key.digest(&event), digest);
        let changed = [
            Event { tenant_id: TenantId(99), ..event.clone() },
            Event { id: EventId::new("e2").unwrap(), ..event.clone() },
            Event { event_type: "a.b".parse().unwrap(), ..event.clone() },
            Event { content_type: "text/plain".into(), ..event.clone() },
            Event { payload: "other".into(), ..event.clone() },
            Event { payload: event.payload.slice(1..), ..event.clone() },
            Event { ordering_key: None, ..event.clone() },
            Event { ordering_key: Some("".into()), ..event.clone() },
            Event { produced_at: None, ..event.clone() },
            Event { schema_version: Some("3".into()), ..event.clone() },
            Event { headers: Vec::new(), ..event.clone() },
            Event { headers: vec![("x-trac".to_owned(), "ee1".to_owned())], ..event.clone() },
            Event { ttl: Some(Millis(1)), ..event.clone() },
            Event { accepted_at: Timestamp(0), ..event.clone() },
            Event { wall_offset_ms: 1, ..event.clone() },
            Event { trace: None, ..event.clone() },
            Event { cloud: Some(cloud(None)), ..event.clone() },
            Event { cloud: Some(cloud(Some(""))), ..event.clone() },
        ];
        let mut all: Vec<_> = changed.iter().map(|event| key.digest(event)).collect();
        all.push(digest);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), changed.len() + 1, "each has a digest of its own");

        let again = DigestKey::open(&keys, id, &sealed).unwrap();
        assert_eq!(again.digest(&event), digest);
        assert_eq!([again.covers(6), again.covers(7)], [false, true]);
        let (other, other_id, _) = DigestKey::make(&keys, 7);
        assert_ne!(other.digest(&event), digest, "nobody makes one without the key");
        assert_eq!(DigestKey::open(&keys, other_id, &sealed).unwrap_err(), SealError::Broken);
    }
}
