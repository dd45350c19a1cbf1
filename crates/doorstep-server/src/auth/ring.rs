//! Every key and portal session that is good for something, in memory: nobody waits for the store to be recognised.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use doorstep_core::api_key::{ApiKey, KeyHash};
use doorstep_core::id::{KeyId, SessionId, TenantId};
use doorstep_core::id_map::IdMap;
use doorstep_core::portal::{PortalKey, PortalSession};
use doorstep_core::reach::Reach;
use doorstep_core::time::{Millis, Timestamp};

/// Keys that are good for something, at the same time.
pub(crate) const KEYS_MAX: usize = 10_000;
/// Portal sessions at the same time.
pub(crate) const SESSIONS_MAX: usize = 100_000;
/// Of both, whoever is limited to a tenant makes no more for it than this part: the others need some too.
pub(crate) const TENANTS_PART: usize = 10;
/// When a key was used is noted this often, at most.
const NOTED_EVERY: Millis = Millis::from_mins(1);

#[derive(Debug, Default)]
pub(crate) struct KeyRing(RwLock<IdMap<KeyId, Arc<HeldKey>>>);

#[derive(Debug)]
pub(crate) struct HeldKey {
    pub(crate) key: ApiKey,
    used_at: AtomicI64,
    noted_at: AtomicI64,
}

impl HeldKey {
    /// One store to memory: whoever sends events waits for nothing.
    pub(crate) fn used(&self, now: Timestamp) {
        self.used_at.fetch_max(now.0, Ordering::Relaxed);
    }
}

impl KeyRing {
    /// One that was revoked is not taken.
    pub(crate) fn put(&self, key: ApiKey) {
        if key.revoked_at.is_some() {
            return;
        }
        let last = key.last_used_at.map_or(i64::MIN, |at| at.0);
        let held = HeldKey { used_at: AtomicI64::new(last), noted_at: AtomicI64::new(last), key };
        self.write(|keys| keys.insert(held.key.id, Arc::new(held)));
    }

    /// One that was revoked meanwhile stays so, and an earlier change does not undo a later one.
    pub(crate) fn replace(&self, key: ApiKey) {
        self.write(|keys| {
            let Some(there) = keys.get_mut(&key.id).filter(|there| there.key.version < key.version) else { return };
            let same = |at: &AtomicI64| AtomicI64::new(at.load(Ordering::Relaxed));
            *there = Arc::new(HeldKey { used_at: same(&there.used_at), noted_at: same(&there.noted_at), key });
        });
    }

    pub(crate) fn get(&self, id: KeyId) -> Option<Arc<HeldKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    pub(crate) fn remove(&self, id: KeyId) {
        self.write(|keys| keys.remove(&id));
    }

    /// How many there may be, if there is no room for another one that somebody with this reach makes, even without those that have expired.
    pub(crate) fn limit_reached(&self, reach: Reach, wall: Timestamp) -> Option<usize> {
        self.write(|keys| {
            limit_reached(keys, KEYS_MAX, reach, |held| held.key.tenant_id, |held| held.key.is_over(wall))
        })
    }

    /// The keys that were used, and whose last note is old.
    pub(crate) fn to_note(&self) -> Vec<(KeyId, Timestamp)> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let news = |held: &Arc<HeldKey>| {
            let (used, noted) = (held.used_at.load(Ordering::Relaxed), held.noted_at.load(Ordering::Relaxed));
            let is_old = noted < used && Timestamp(noted) + NOTED_EVERY <= Timestamp(used);
            is_old.then(|| {
                held.noted_at.store(used, Ordering::Relaxed);
                (held.key.id, Timestamp(used))
            })
        };
        keys.values().filter_map(news).collect()
    }

    fn write<T>(&self, write: impl FnOnce(&mut IdMap<KeyId, Arc<HeldKey>>) -> T) -> T {
        write(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Sessions(RwLock<IdMap<SessionId, PortalSession>>);

impl Sessions {
    pub(crate) fn put(&self, session: PortalSession) {
        self.write(|sessions| sessions.insert(session.id, session));
    }

    /// One that was ended meanwhile stays so.
    pub(crate) fn replace(&self, session: PortalSession) {
        self.write(|sessions| {
            if let Some(there) = sessions.get_mut(&session.id) {
                *there = session;
            }
        });
    }

    pub(crate) fn get(&self, id: SessionId) -> Option<PortalSession> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    pub(crate) fn remove(&self, id: SessionId) {
        self.write(|sessions| sessions.remove(&id));
    }

    pub(crate) fn remove_all(&self, of: TenantId) {
        self.write(|sessions| sessions.retain(|_, session| session.tenant_id != of));
    }

    /// As with keys.
    pub(crate) fn limit_reached(&self, reach: Reach, now: Timestamp) -> Option<usize> {
        self.write(|sessions| {
            limit_reached(
                sessions,
                SESSIONS_MAX,
                reach,
                |session| Some(session.tenant_id),
                |session| session.expires_at <= now,
            )
        })
    }

    /// The session that this is the token of.
    pub(crate) fn opened(&self, id: SessionId, token: &str, now: Timestamp) -> Option<PortalSession> {
        let fits = |hash: &KeyHash| hash.is_of(token);
        self.get(id).filter(|session| now < session.expires_at).filter(|session| match &session.key {
            PortalKey::Token { hash } => fits(hash),
            PortalKey::Code { .. } => false,
        })
    }

    pub(crate) fn is_open(&self, id: SessionId, now: Timestamp) -> bool {
        self.get(id).is_some_and(|session| now < session.expires_at && matches!(session.key, PortalKey::Token { .. }))
    }

    fn write<T>(&self, write: impl FnOnce(&mut IdMap<SessionId, PortalSession>) -> T) -> T {
        write(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }
}

fn limit_reached<K, V>(
    held: &mut IdMap<K, V>,
    max: usize,
    reach: Reach,
    tenant_of: impl Fn(&V) -> Option<TenantId>,
    is_over: impl Fn(&V) -> bool,
) -> Option<usize> {
    let (max, tenant_id) = match reach {
        Reach::All => (max, None),
        Reach::Tenant(tenant_id) => (max / TENANTS_PART, Some(tenant_id)),
    };
    let counts = |one: &V| tenant_id.is_none() || tenant_of(one) == tenant_id;
    let n = |held: &IdMap<K, V>| held.values().filter(|one| counts(one)).count();
    if n(held) >= max {
        held.retain(|_, one| !is_over(one));
    }
    (n(held) >= max).then_some(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u128) -> ApiKey {
        ApiKey {
            id: KeyId(id),
            name: "one".to_owned(),
            scopes: [].into(),
            tenant_id: None,
            source_cidrs: vec![],
            created_at: Timestamp(0),
            expires_at: Some(Timestamp(5)),
            last_used_at: None,
            revoked_at: None,
            hash: KeyHash::of("one"),
            old: None,
            version: 1,
        }
    }

    #[test]
    fn the_use_of_a_key_is_noted_once_a_minute_at_most() {
        let ring = KeyRing::default();
        ring.put(key(1));
        ring.put(key(2));
        assert_eq!(ring.to_note(), []);
        let held = ring.get(KeyId(1)).unwrap();
        held.used(Timestamp(100));
        assert_eq!(ring.to_note(), [(KeyId(1), Timestamp(100))]);
        held.used(Timestamp(60_099));
        assert_eq!(ring.to_note(), []);
        held.used(Timestamp(60_100));
        assert_eq!(ring.to_note(), [(KeyId(1), Timestamp(60_100))]);
        assert_eq!(ring.to_note(), []);
    }

    #[test]
    fn a_tenant_fills_its_own_part_and_no_more() {
        let (ring, max) = (KeyRing::default(), KEYS_MAX / TENANTS_PART);
        let reach = Reach::Tenant(TenantId(1));
        (1..max as u128).for_each(|id| ring.put(ApiKey { tenant_id: Some(TenantId(1)), ..key(id) }));
        assert_eq!(ring.limit_reached(reach, Timestamp(4)), None);
        ring.put(ApiKey { tenant_id: Some(TenantId(1)), ..key(0) });
        assert_eq!(ring.limit_reached(reach, Timestamp(4)), Some(max));
        assert_eq!(ring.limit_reached(Reach::Tenant(TenantId(2)), Timestamp(4)), None);
        assert_eq!(ring.limit_reached(Reach::All, Timestamp(4)), None);
        assert_eq!(ring.limit_reached(reach, Timestamp(5)), None, "those that have expired are gone");
    }

    #[test]
    fn a_full_ring_makes_room_by_what_has_expired() {
        let ring = KeyRing::default();
        (0..KEYS_MAX as u128).for_each(|id| ring.put(key(id)));
        assert_eq!(ring.limit_reached(Reach::All, Timestamp(4)), Some(KEYS_MAX));
        assert_eq!(ring.limit_reached(Reach::Tenant(TenantId(1)), Timestamp(4)), None, "it has its own part");
        assert_eq!(ring.limit_reached(Reach::All, Timestamp(5)), None);
        ring.put(ApiKey { revoked_at: Some(Timestamp(1)), ..key(7) });
        assert!(ring.get(KeyId(7)).is_none(), "a revoked key is good for nothing");
    }
}
