//! API keys: what somebody who has one may do, and how its text is made and recognised (S7).
//!
//! A key is `dsk_`, 26 letters that name it, 40 letters of secret (200 bits of chance), and 6 letters that only fit the rest.
//! A slip of the pen, or a find of a secret scanner, is so judged without asking anybody. Only the hash is kept.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::id::{KeyId, TenantId, letters_of};
use crate::reach::Reach;
use crate::store::Refusal;
use crate::time::Timestamp;

/// A key as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    pub id: KeyId,
    pub name: String,
    pub scopes: BTreeSet<Scope>,
    /// Set: it reaches this tenant's things alone.
    pub tenant_id: Option<TenantId>,
    /// Where it may be used from; empty: anywhere.
    #[serde(with = "as_text")]
    pub source_cidrs: Vec<IpNet>,
    pub created_at: Timestamp,
    /// By the wall clock, as whoever made the key said: it ends at that time, however long the server was off.
    pub expires_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    pub hash: KeyHash,
    /// The secret before the last rotation.
    #[serde(default)]
    pub old: Option<OldSecret>,
    /// One more with every change.
    #[serde(default)]
    pub version: u64,
}

/// A secret that has a successor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldSecret {
    pub hash: KeyHash,
    /// It is good until then by the wall clock, so that whoever uses it has time to take the new one.
    pub until: Timestamp,
}

/// What a key is good for. `Admin` is good for everything, each of the others for itself alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Sending events in.
    Ingest,
    /// Looking.
    Read,
    /// Destinations and deliveries: making, changing, pausing, sending again, ending.
    Operate,
    /// Tenants, keys, portal sessions and the audit log, and all of the above.
    Admin,
}

impl Scope {
    pub const ALL: [Self; 4] = [Self::Ingest, Self::Read, Self::Operate, Self::Admin];

    /// Whether somebody with these scopes may do what asks for this one.
    pub fn is_in(self, scopes: &BTreeSet<Self>) -> bool {
        scopes.contains(&self) || scopes.contains(&Self::Admin)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

impl ApiKey {
    pub fn reach(&self) -> Reach {
        self.tenant_id.map_or(Reach::All, Reach::Tenant)
    }

    pub fn is_over(&self, wall: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= wall)
    }

    /// Whether it is good for nothing any more: that never changes again.
    pub fn has_ended(&self, wall: Timestamp) -> bool {
        self.revoked_at.is_some() || self.is_over(wall)
    }

    /// Whether this is its secret, or the one before while that is still good.
    pub fn recognises(&self, shown: &KeyHash, wall: Timestamp) -> bool {
        let old = self.old.as_ref().filter(|old| wall < old.until);
        self.hash.is_same(shown) || old.is_some_and(|old| old.hash.is_same(shown))
    }

    /// The same with a new secret. The present one is good until then; one from before that is not any more.
    pub fn rotated(&self, hash: KeyHash, old_until: Timestamp) -> Self {
        let old = OldSecret { hash: self.hash.clone(), until: old_until };
        Self { hash, old: Some(old), ..self.clone() }
    }

    /// What a change makes of it. Whatever it says, the key stays what it was made for: its scopes, its tenant, and when it was made and used.
    pub fn changed(&self, to: Self) -> Result<Self, Refusal> {
        if self.revoked_at.is_some() {
            return Err(Refusal::NotFound);
        }
        if to.version != self.version + 1 {
            return Err(Refusal::VersionDiffers);
        }
        let Self { id, scopes, tenant_id, created_at, last_used_at, revoked_at, .. } = self.clone();
        Ok(Self { id, scopes, tenant_id, created_at, last_used_at, revoked_at, ..to })
    }

    /// Whether it may be used from there. An address that is not known fits no range.
    pub fn may_come_from(&self, source: Option<IpAddr>) -> bool {
        self.source_cidrs.is_empty()
            || source.is_some_and(|source| self.source_cidrs.iter().any(|range| range.contains(&source)))
    }

    /// Whether a key that may be used from these ranges may come from nowhere where this one may not.
    pub fn bounds_source(&self, ranges: &[IpNet]) -> bool {
        let within = |range: &IpNet| self.source_cidrs.iter().any(|own| own.contains(range));
        self.source_cidrs.is_empty() || (!ranges.is_empty() && ranges.iter().all(within))
    }

    /// Whether a key with this end ends no later than this one.
    pub fn bounds_end(&self, expires_at: Option<Timestamp>) -> bool {
        self.expires_at.is_none_or(|own| expires_at.is_some_and(|at| at <= own))
    }

    /// When it stopped being good for anything, if it has.
    pub fn ended_at(&self) -> Option<Timestamp> {
        match (self.revoked_at, self.expires_at) {
            (Some(revoked), Some(expires)) => Some(revoked.min(expires)),
            (revoked, expires) => revoked.or(expires),
        }
    }
}

/// What is kept of a key, a code or a token: enough to recognise it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    pub fn of(text: &str) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
        Self(hash)
    }

    /// Takes the same time whether little or much of it fits.
    pub fn is_of(&self, text: &str) -> bool {
        text.len() <= KEY_BYTES_MAX && self.is_same(&Self::of(text))
    }

    /// The same for a hash.
    pub fn is_same(&self, other: &Self) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A key that is given to us is at most this long.
pub const KEY_BYTES_MAX: usize = 256;

/// In hexadecimal, as it is kept.
impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this is not the hash of a key: 64 hexadecimal digits")]
pub struct NotAHash;

impl FromStr for KeyHash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Self, NotAHash> {
        let mut hash = [0; 32];
        if text.len() != 2 * hash.len() || !text.is_ascii() {
            return Err(NotAHash);
        }
        for (at, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| NotAHash)?;
        }
        Ok(Self(hash))
    }
}

impl TryFrom<String> for KeyHash {
    type Error = NotAHash;

    fn try_from(text: String) -> Result<Self, NotAHash> {
        text.parse()
    }
}

impl From<KeyHash> for String {
    fn from(hash: KeyHash) -> Self {
        hash.to_string()
    }
}

const PREFIX: &str = "dsk_";
/// Bytes of chance in a key: 200 bits.
pub const SECRET_LEN: usize = 25;
const SECRET_LETTERS: usize = 40;
const CHECK_LETTERS: usize = 6;
const NAME_LETTERS: usize = 26;

/// A key's text, made or read.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText {
    pub id: KeyId,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyTextFault {
    #[error("this does not look like a key: dsk_ with {NAME_LETTERS}, {SECRET_LETTERS} and {CHECK_LETTERS} letters")]
    Form,
    #[error("this key was not copied as it was: its last letters do not fit the others")]
    Checksum,
}

impl KeyText {
    pub fn new(id: KeyId, chance: &[u8; SECRET_LEN]) -> Self {
        let id_text = id.to_string();
        let name = id_text.strip_prefix("key_").unwrap_or(&id_text);
        let body = format!("{PREFIX}{name}_{}", letters_of(chance));
        let text = format!("{body}_{}", checksum(&body));
        Self { id, text }
    }

    /// Reads a text that may be a key of ours; whether it is one, its hash tells.
    pub fn parse(text: &str) -> Result<Self, KeyTextFault> {
        let (body, check) = text.rsplit_once('_').ok_or(KeyTextFault::Form)?;
        let (name, secret) =
            body.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')).ok_or(KeyTextFault::Form)?;
        let lengths = (name.len(), secret.len(), check.len());
        let id = format!("key_{name}").parse().map_err(|_| KeyTextFault::Form)?;
        if lengths != (NAME_LETTERS, SECRET_LETTERS, CHECK_LETTERS) {
            return Err(KeyTextFault::Form);
        }
        if check != checksum(body) {
            return Err(KeyTextFault::Checksum);
        }
        Ok(Self { id, text: text.to_owned() })
    }

    pub fn hash(&self) -> KeyHash {
        KeyHash::of(&self.text)
    }

    /// The key itself, for the one who is to have it.
    pub fn reveal(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyText").field("id", &self.id).finish_non_exhaustive()
    }
}

/// No secret: it keeps nobody out, it tells slips from keys.
fn checksum(body: &str) -> String {
    let mut check = letters_of(&digest(&SHA256, body.as_bytes()).as_ref()[..5]);
    check.truncate(CHECK_LETTERS);
    check
}

mod as_text {
    use ipnet::IpNet;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(ranges: &[IpNet], serializer: S) -> Result<S::Ok, S::Error> {
        ranges.iter().map(ToString::to_string).collect::<Vec<_>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(chance: u8) -> KeyText {
        KeyText::new(KeyId(7), &[chance; SECRET_LEN])
    }

    #[test]
    fn a_key_is_read_back_and_names_itself() {
        let made = key(9);
        let text = made.reveal();
        assert_eq!(text.len(), 4 + 26 + 1 + 40 + 1 + 6);
        assert_eq!(KeyText::parse(text).unwrap(), made);
        assert!(made.hash().is_of(text) && !made.hash().is_of(key(8).reveal()));
        assert_eq!(format!("{made:?}"), "KeyText { id: KeyId(7), .. }", "it does not show itself");
    }

    #[test]
    fn every_single_slip_is_noticed() {
        let made = key(0xa5);
        for (at, letter) in made.reveal().char_indices() {
            for other in ['0', 'z', 'Z', '_'] {
                let mut slip = made.reveal().to_owned();
                slip.replace_range(at..=at, &other.to_string());
                assert!(other == letter || KeyText::parse(&slip).is_err(), "{slip}");
            }
        }
        for wrong in ["", "dsk_", "dsk_x_y_z", &made.reveal()[1..], &made.reveal()[..77], "dsk_äöü_ß_€"] {
            assert!(KeyText::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_the_same_text_is_recognised() {
        let hash = KeyHash::of("dsk_secret");
        assert!(hash.is_of("dsk_secret"));
        for wrong in ["", "dsk_secre", "dsk_secret ", "DSK_SECRET"] {
            assert!(!hash.is_of(wrong), "{wrong:?}");
        }
        assert!(!hash.is_of(&"x".repeat(KEY_BYTES_MAX + 1)));
        assert_eq!(hash.to_string().parse::<KeyHash>().unwrap(), hash);
        assert!("ab".parse::<KeyHash>().is_err());
    }

    #[test]
    fn admin_is_good_for_all_and_each_other_scope_for_itself() {
        for asked in Scope::ALL {
            for held in Scope::ALL {
                assert_eq!(asked.is_in(&[held].into()), held == asked || held == Scope::Admin, "{asked:?} {held:?}");
            }
            assert!(!asked.is_in(&BTreeSet::new()));
        }
    }

    #[test]
    fn a_key_ends_with_its_time_and_stays_in_its_ranges() {
        let mut key = ApiKey {
            id: KeyId(1),
            name: "one".to_owned(),
            scopes: [Scope::Read].into(),
            tenant_id: None,
            source_cidrs: vec![],
            created_at: Timestamp(0),
            expires_at: Some(Timestamp(10)),
            last_used_at: None,
            revoked_at: Some(Timestamp(4)),
            hash: KeyHash::of("one"),
            old: None,
            version: 1,
        };
        assert!(!key.is_over(Timestamp(9)) && key.is_over(Timestamp(10)));
        assert_eq!(key.ended_at(), Some(Timestamp(4)));
        assert!(key.may_come_from(None));
        key.source_cidrs = vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        for (source, may) in [("10.1.2.3", true), ("11.1.2.3", false), ("2001:db8::1", true), ("::1", false)] {
            assert_eq!(key.may_come_from(source.parse().ok()), may, "{source}");
        }
        assert!(!key.may_come_from(None), "nobody knows where it comes from");
        for (ranges, bounded) in [
            (vec![], false),
            (vec!["10.0.0.0/8"], true),
            (vec!["10.1.0.0/16", "2001:db8:1::/48"], true),
            (vec!["10.1.0.0/16", "11.0.0.0/16"], false),
            (vec!["0.0.0.0/0"], false),
            (vec!["8.0.0.0/7", "10.0.0.0/7"], false),
            (vec!["::/0"], false),
        ] {
            let ranges: Vec<IpNet> = ranges.iter().map(|range| range.parse().unwrap()).collect();
            assert_eq!(key.bounds_source(&ranges), bounded, "{ranges:?}");
        }
        for (at, bounded) in [(None, false), (Some(9), true), (Some(10), true), (Some(11), false)] {
            assert_eq!(key.bounds_end(at.map(Timestamp)), bounded, "{at:?}");
        }
        let free = ApiKey { source_cidrs: vec![], expires_at: None, ..key.clone() };
        assert!(free.bounds_source(&[]) && free.bounds_end(None), "whoever has no limits sets any");
        let json = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<ApiKey>(&json).unwrap(), key);
    }

    #[test]
    fn a_rotated_key_knows_its_new_secret_and_for_a_while_the_one_before() {
        let [one, two, three] = ["one", "two", "three"].map(KeyHash::of);
        let key: ApiKey = serde_json::from_value(serde_json::json!({
            "id": KeyId(1), "name": "as it was written before there were versions", "scopes": ["read"], "tenant_id": null,
            "source_cidrs": [], "created_at": 0, "expires_at": null, "last_used_at": null, "revoked_at": null, "hash": one,
        }))
        .unwrap();
        let knows = |key: &ApiKey, at| [&one, &two, &three].map(|hash| key.recognises(hash, Timestamp(at)));
        assert_eq!(knows(&key, 0), [true, false, false]);
        let key = key.rotated(two.clone(), Timestamp(10));
        assert_eq!((knows(&key, 9), knows(&key, 10)), ([true, true, false], [false, true, false]));
        let key = key.rotated(three.clone(), Timestamp(10));
        assert_eq!(knows(&key, 5), [false, true, true], "the first one is too old");
    }
}
