//! What people change: within their reach, and noted in the same transaction.

use doorstep_core::id::{DeliveryId, DestinationId, KeyId, TenantId};
use doorstep_core::reach::Reach;
use doorstep_core::store::{ByHand, Refusal, Write, Written};
use doorstep_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension};

use super::batch::Batch;
use super::by_hand::SEQ_OF;
use super::fault::Fault;
use super::row;

pub(super) const TENANT_OF: &str = "select tenant_id from destinations where id = ?1";

/// A delivery is in one of the three tables.
pub(super) const OWNER_OF: &str = "
    select tenant_id from events where seq = (
        select event_seq from deliveries where seq = ?1
        union all select event_seq from delivered where seq = ?1
        union all select event_seq from dead where seq = ?1)";

impl Batch<'_> {
    pub(super) fn by_hand(&mut self, by_hand: ByHand, now: Timestamp) -> Result<Written, Fault> {
        let ByHand { mandate, change } = by_hand;
        if !self.is_within(mandate.reach, &change)? {
            return Ok(Written::Refused(Refusal::NotFound));
        }
        let written = self.write(change, now)?;
        if !matches!(written, Written::Refused(_)) {
            self.note(&mandate.entry)?;
        }
        Ok(written)
    }

    /// Whether all that a change touches is within reach. What is not there is refused by the change itself.
    fn is_within(&self, reach: Reach, change: &Write) -> Result<bool, Fault> {
        if reach == Reach::All {
            return Ok(true);
        }
        let covers = |owner: Option<TenantId>| owner.is_none_or(|tenant_id| reach.covers(tenant_id));
        Ok(match change {
            Write::Revive { delivery_id, .. } | Write::Abandon { delivery_id, .. } => covers(self.owner(*delivery_id)?),
            Write::PutTenant(tenant) => reach.covers(tenant.id),
            Write::ErasePayloads { tenant_id } => reach.covers(*tenant_id),
            Write::PutDestination(destination) | Write::AddDestination { destination, .. } => {
                reach.covers(destination.tenant_id) && covers(tenant_of(self.sql, destination.id)?)
            }
            Write::RemoveDestination { destination_id } => covers(tenant_of(self.sql, *destination_id)?),
            Write::PutApiKey(key) => reach.covers_owner(key.tenant_id),
            Write::ChangeApiKey(key) => self.is_key_within(reach, key.id)?,
            Write::RevokeApiKey { key_id } => self.is_key_within(reach, *key_id)?,
            Write::PutPortalSession(session) => reach.covers(session.tenant_id),
            Write::OpenPortalSession { session_id, .. } | Write::EndPortalSession { session_id } => {
                covers(self.portal_session(*session_id)?.map(|session| session.tenant_id))
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
            | Write::ByHand(_) => false,
        })
    }

    fn is_key_within(&self, reach: Reach, id: KeyId) -> Result<bool, Fault> {
        Ok(self.api_key(id)?.is_none_or(|key| reach.covers_owner(key.tenant_id)))
    }

    fn owner(&self, id: DeliveryId) -> Result<Option<TenantId>, Fault> {
        let seq: Option<i64> = self.find(SEQ_OF, [id.0.to_be_bytes()], |row| row.get(0))?;
        let Some(seq) = seq else { return Ok(None) };
        let owner = self.find(OWNER_OF, [seq], |row| row::id(row, 0))?;
        Ok(owner.map(TenantId))
    }
}

/// Whose a destination is, if it is there.
pub(super) fn tenant_of(sql: &Connection, id: DestinationId) -> Result<Option<TenantId>, Fault> {
    let owner = sql.prepare_cached(TENANT_OF)?.query_row([id.0.to_be_bytes()], |row| row::id(row, 0)).optional()?;
    Ok(owner.map(TenantId))
}

/// Whether a destination may be seen. One that is not there (any more) is seen by those alone who see everything.
pub(super) fn may_see(sql: &Connection, reach: Reach, id: DestinationId) -> Result<bool, Fault> {
    Ok(match reach {
        Reach::All => true,
        Reach::Tenant(own) => tenant_of(sql, id)? == Some(own),
    })
}
