//! What tenants take of the store, counted in the transaction that changes it (G12).

use doorstep_core::id::{DestinationId, TenantId};
use doorstep_core::id_map::IdMap;
use doorstep_core::quota::{Quota, QuotaExceeded, Usage};
use rusqlite::{Connection, OptionalExtension, params};

use super::batch::Batch;
use super::catalog::{QUEUED, tenant_called};
use super::fault::Fault;

pub(super) const USAGE: &str = "select queued, stored_bytes from tenant_usage where tenant_id = ?1";

const SAVE_USAGE: &str = "
    insert into tenant_usage (tenant_id, queued, stored_bytes) values (?1, ?2, ?3)
    on conflict do update set queued = excluded.queued, stored_bytes = excluded.stored_bytes";

/// Tenants that the writer knows the usage of without reading it.
const TENANTS_KEPT: usize = 100_000;

/// What the writer knows of tenants. It is forgotten whenever a transaction fails.
#[derive(Debug)]
pub(super) struct Usages {
    /// Of tenants that have none of their own.
    default: Quota,
    known: IdMap<TenantId, Known>,
    /// Those that the transaction under way has changed.
    changed: Vec<TenantId>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    queued: i64,
    stored_bytes: i64,
    quota: Quota,
    /// It is among the changed ones.
    is_changed: bool,
}

impl Usages {
    pub(super) fn new(default: Quota) -> Self {
        Self { default, known: IdMap::default(), changed: Vec::new() }
    }

    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.changed.clear();
    }
}

impl Batch<'_> {
    /// What would be exceeded if the tenant had so much more.
    pub(super) fn exceeded(&mut self, tenant_id: TenantId, added: Usage) -> Result<Option<QuotaExceeded>, Fault> {
        let Known { queued, stored_bytes, quota, .. } = *self.known(tenant_id)?;
        Ok(quota.exceeded_by(usage(queued, stored_bytes), added))
    }

    pub(super) fn add_queued(&mut self, destination_id: DestinationId, n: i64) -> Result<(), Fault> {
        let Some(tenant_id) = self.tenant_of(destination_id)? else { return Ok(()) };
        self.change(tenant_id, |known| known.queued += n)
    }

    pub(super) fn add_bytes(&mut self, tenant_id: TenantId, n: i64) -> Result<(), Fault> {
        self.change(tenant_id, |known| known.stored_bytes += n)
    }

    fn change(&mut self, tenant_id: TenantId, change: impl FnOnce(&mut Known)) -> Result<(), Fault> {
        let known = self.known(tenant_id)?;
        change(known);
        if !std::mem::replace(&mut known.is_changed, true) {
            self.usages.changed.push(tenant_id);
        }
        Ok(())
    }

    /// What is queued for a destination that is removed does not count any more, from now on.
    pub(super) fn drop_queued(&mut self, id: DestinationId) -> Result<(), Fault> {
        let written: Option<i64> = self.find(QUEUED, [id.0.to_be_bytes()], |row| row.get(0))?;
        let since = self.queued.remove(&id).unwrap_or(0);
        self.add_queued(id, -(written.unwrap_or(0) + since))
    }

    /// The tenant's quota has changed.
    pub(super) fn forget_quota(&mut self, tenant_id: TenantId) -> Result<(), Fault> {
        let quota = self.quota_of(tenant_id)?;
        if let Some(known) = self.usages.known.get_mut(&tenant_id) {
            known.quota = quota;
        }
        Ok(())
    }

    pub(super) fn save_usages(&mut self) -> Result<(), Fault> {
        for tenant_id in std::mem::take(&mut self.usages.changed) {
            let known = self.known(tenant_id)?;
            known.is_changed = false;
            let Known { queued, stored_bytes, .. } = *known;
            self.execute(SAVE_USAGE, params![tenant_id.0.to_be_bytes(), queued, stored_bytes])?;
        }
        if self.usages.known.len() > TENANTS_KEPT {
            self.usages.known.clear();
        }
        Ok(())
    }

    fn known(&mut self, tenant_id: TenantId) -> Result<&mut Known, Fault> {
        if !self.usages.known.contains_key(&tenant_id) {
            let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            let (queued, stored_bytes) = self.find(USAGE, [tenant_id.0.to_be_bytes()], read)?.unwrap_or_default();
            let quota = self.quota_of(tenant_id)?;
            self.usages.known.insert(tenant_id, Known { queued, stored_bytes, quota, is_changed: false });
        }
        self.usages.known.get_mut(&tenant_id).ok_or(Fault::Missing { what: "a tenant's usage" })
    }

    fn quota_of(&self, tenant_id: TenantId) -> Result<Quota, Fault> {
        let own = tenant_called(self.sql, tenant_id)?.map(|tenant| tenant.quota).unwrap_or_default();
        Ok(self.usages.default.with(own))
    }
}

pub(super) fn usage_of(sql: &Connection, tenant_id: TenantId) -> Result<Usage, Fault> {
    let read = |row: &rusqlite::Row<'_>| Ok(usage(row.get(0)?, row.get(1)?));
    let found = sql.prepare_cached(USAGE)?.query_row([tenant_id.0.to_be_bytes()], read).optional()?;
    Ok(found.unwrap_or_default())
}

fn usage(queued: i64, stored_bytes: i64) -> Usage {
    let whole = |n: i64| u64::try_from(n).unwrap_or(0);
    Usage { queued_deliveries: whole(queued), stored_bytes: whole(stored_bytes) }
}
