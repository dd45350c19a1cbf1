//! Who may do what, and who did: keys, portal sessions, and the audit log.

use std::collections::BTreeMap;

use doorstep_core::api_key::{ApiKey, KeyHash};
use doorstep_core::audit::AuditEntry;
use doorstep_core::id::{DeliveryId, DestinationId, KeyId, SessionId, TenantId};
use doorstep_core::portal::PortalSession;
use doorstep_core::reach::Reach;
use doorstep_core::store::{Ages, AuditFilter, ByHand, Page, Refusal, Write, Written};
use doorstep_core::time::Timestamp;

use super::Memory;

#[derive(Debug, Default)]
pub(super) struct Access {
    keys: BTreeMap<KeyId, ApiKey>,
    sessions: BTreeMap<SessionId, PortalSession>,
    audit: BTreeMap<u64, AuditEntry>,
    last_entry: u64,
}

impl Memory {
    pub(super) fn by_hand(&mut self, by_hand: ByHand, now: Timestamp) -> Written {
        let ByHand { mandate, change } = by_hand;
        if !self.is_within(mandate.reach, &change) {
            return Written::Refused(Refusal::NotFound);
        }
        let written = self.write(change, now);
        if !matches!(written, Written::Refused(_)) {
            self.access.note(mandate.entry);
        }
        written
    }

    /// Whether all that a change touches is within reach. What is not there is refused by the change itself.
    fn is_within(&self, reach: Reach, change: &Write) -> bool {
        let covers = |owner: Option<TenantId>| owner.is_none_or(|tenant_id| reach.covers(tenant_id));
        match change {
            Write::Revive { delivery_id, .. } | Write::Abandon { delivery_id, .. } => covers(self.owner(*delivery_id)),
            Write::PutTenant(tenant) => reach.covers(tenant.id),
            Write::ErasePayloads { tenant_id } => reach.covers(*tenant_id),
            Write::PutDestination(destination) | Write::AddDestination { destination, .. } => {
                reach.covers(destination.tenant_id) && covers(self.tenant_of(destination.id))
            }
            Write::RemoveDestination { destination_id } => covers(self.tenant_of(*destination_id)),
            Write::PutApiKey(key) => reach.covers_owner(key.tenant_id),
            Write::ChangeApiKey(key) => self.is_key_within(reach, key.id),
            Write::RevokeApiKey { key_id } => self.is_key_within(reach, *key_id),
            Write::PutPortalSession(session) => reach.covers(session.tenant_id),
            Write::OpenPortalSession { session_id, .. } | Write::EndPortalSession { session_id } => {
                covers(self.access.sessions.get(session_id).map(|session| session.tenant_id))
            }
            Write::EndPortalSessions { tenant_id } => reach.covers(*tenant_id),
            Write::Accept(_)
            | Write::Settle(_)
            | Write::SaveGate { .. }
            | Write::Consented { .. }
            | Write::UsedApiKeys(_)
            | Write::Audit(_)
            | Write::KeepClock(_)
            // Types are everybody's.
            | Write::PutEventType(_)
            | Write::RemoveEventType { .. }
            | Write::ByHand(_) => reach == Reach::All,
        }
    }

    fn is_key_within(&self, reach: Reach, id: KeyId) -> bool {
        self.access.keys.get(&id).is_none_or(|key| reach.covers_owner(key.tenant_id))
    }

    pub(super) fn tenant_of(&self, id: DestinationId) -> Option<TenantId> {
        self.destinations.get(&id).map(|(destination, _)| destination.tenant_id)
    }

    fn owner(&self, id: DeliveryId) -> Option<TenantId> {
        let row = self.rows.get(&id)?;
        self.events.get(&row.delivery.event_seq).map(|accepted| accepted.event.tenant_id)
    }
}

impl Access {
    pub(super) fn note(&mut self, entry: AuditEntry) -> Written {
        self.last_entry += 1;
        self.audit.insert(self.last_entry, entry);
        Written::Saved
    }

    pub(super) fn put_key(&mut self, key: ApiKey) -> Written {
        if self.keys.contains_key(&key.id) {
            return Written::Refused(Refusal::VersionDiffers);
        }
        self.keys.insert(key.id, key);
        Written::Saved
    }

    pub(super) fn change_key(&mut self, to: ApiKey) -> Written {
        let Some(key) = self.keys.get_mut(&to.id) else { return Written::Refused(Refusal::NotFound) };
        match key.changed(to) {
            Ok(changed) => *key = changed,
            Err(refusal) => return Written::Refused(refusal),
        }
        Written::Saved
    }

    pub(super) fn revoke_key(&mut self, id: KeyId, now: Timestamp) -> Written {
        match self.keys.get_mut(&id).filter(|key| key.revoked_at.is_none()) {
            Some(key) => key.revoked_at = Some(now),
            None => return Written::Refused(Refusal::NotFound),
        }
        Written::Saved
    }

    pub(super) fn used_keys(&mut self, used: Vec<(KeyId, Timestamp)>) -> Written {
        for (id, at) in used {
            if let Some(key) = self.keys.get_mut(&id) {
                key.last_used_at = key.last_used_at.max(Some(at));
            }
        }
        Written::Saved
    }

    pub(super) fn put_session(&mut self, session: PortalSession) -> Written {
        if self.sessions.contains_key(&session.id) {
            return Written::Refused(Refusal::VersionDiffers);
        }
        self.sessions.insert(session.id, session);
        Written::Saved
    }

    pub(super) fn open_session(&mut self, id: SessionId, code: &KeyHash, token: KeyHash, now: Timestamp) -> Written {
        match self.sessions.get(&id).and_then(|session| session.opened(code, token, now)) {
            Some(opened) => drop(self.sessions.insert(id, opened)),
            None => return Written::Refused(Refusal::NotFound),
        }
        Written::Saved
    }

    pub(super) fn end_session(&mut self, id: SessionId) -> Written {
        match self.sessions.remove(&id) {
            Some(_) => Written::Saved,
            None => Written::Refused(Refusal::NotFound),
        }
    }

    pub(super) fn end_sessions(&mut self, tenant_id: TenantId) -> Written {
        self.sessions.retain(|_, session| session.tenant_id != tenant_id);
        Written::Saved
    }

    pub(super) fn keys(&self, reach: Reach, after: Option<KeyId>, limit: usize) -> Vec<ApiKey> {
        let seen = self.keys.values().filter(|key| Some(key.id) > after && reach.covers_owner(key.tenant_id));
        seen.take(limit).cloned().collect()
    }

    pub(super) fn sessions(&self, reach: Reach, after: Option<SessionId>, limit: usize) -> Vec<PortalSession> {
        let seen = self.sessions.values().filter(|one| Some(one.id) > after && reach.covers(one.tenant_id));
        seen.take(limit).cloned().collect()
    }

    pub(super) fn audit(&self, reach: Reach, filter: AuditFilter, page: Page) -> Vec<(u64, AuditEntry)> {
        let Some(filter) = filter.within(reach) else { return Vec::new() };
        let AuditFilter { tenant_id, actor, action, resource, after, before } = filter;
        let fits = |entry: &AuditEntry| {
            tenant_id.is_none_or(|tenant_id| entry.tenant_id == Some(tenant_id))
                && actor.as_ref().is_none_or(|actor| *actor == entry.actor.name())
                && action.is_none_or(|action| action == entry.action)
                && resource.as_ref().is_none_or(|resource| *resource == entry.resource)
                && after.is_none_or(|after| after <= entry.at)
                && before.is_none_or(|before| entry.at < before)
        };
        let newest_first = self.audit.range(..page.before_seq.unwrap_or(u64::MAX)).rev();
        let found = newest_first.filter(|(_, entry)| fits(entry)).take(page.limit);
        found.map(|(n, entry)| (*n, entry.clone())).collect()
    }

    pub(super) fn newest_entry(&self) -> Option<Timestamp> {
        self.audit.last_key_value().map(|(_, entry)| entry.at)
    }

    /// From the front, as far as they are old.
    pub(super) fn purge_audit(&mut self, before: Timestamp, limit: usize) -> usize {
        let old = self.audit.iter().take(limit).take_while(|(_, entry)| entry.at < before);
        let old: Vec<u64> = old.map(|(n, _)| *n).collect();
        self.audit.retain(|n, _| !old.contains(n));
        old.len()
    }

    /// Keys and sessions that have ended, the keys first.
    pub(super) fn purge_access(&mut self, ages: Ages, limit: usize) -> usize {
        let ended = self.keys.values().filter_map(|key| Some((key.ended_at().filter(|at| *at < ages.keys)?, key.id)));
        let keys = oldest(ended, limit);
        self.keys.retain(|id, _| !keys.contains(id));
        let over = self.sessions.values().filter(|session| session.expires_at < ages.sessions);
        let sessions = oldest(over.map(|session| (session.expires_at, session.id)), limit - keys.len());
        self.sessions.retain(|id, _| !sessions.contains(id));
        keys.len() + sessions.len()
    }
}

fn oldest<T: Ord>(ended: impl Iterator<Item = (Timestamp, T)>, limit: usize) -> Vec<T> {
    let mut ended: Vec<(Timestamp, T)> = ended.collect();
    ended.sort_unstable();
    ended.into_iter().map(|(_, id)| id).take(limit).collect()
}
