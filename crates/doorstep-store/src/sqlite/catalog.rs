//! Tenants, and destinations with their gates.

use doorstep_core::consent::Consent;
use doorstep_core::destination::{Destination, DestinationSettings, Tenant};
use doorstep_core::gate::GateState;
use doorstep_core::id::{DestinationId, TenantId};
use doorstep_core::quota::DELIVERY_BYTES;
use doorstep_core::reach::Reach;
use doorstep_core::store::{Backlog, Refusal, StoredDestination, Written};
use doorstep_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::accept::IS_DESTINATION;
use super::batch::Batch;
use super::fault::{DamagedRow, Fault};
use super::mandate::may_see;
use super::row;
use super::seal::{seal, unseal};
use crate::seal::Keyring;

pub(super) const SAVE_GATE: &str =
    "insert into gates (destination_id, state) values (?1, ?2) on conflict do update set state = excluded.state";

pub(super) const DESTINATIONS: &str = "
    select d.id, d.tenant_id, d.version, d.settings, d.secrets, d.created_at, d.updated_at,
        (select state from gates g where g.destination_id = d.id),
        exists (select 1 from backlogs b where b.destination_id = d.id and b.queued > 0),
        (select consent from consents c where c.destination_id = d.id)
    from destinations d where d.id > ?1 order by d.id limit ?2";

pub(super) const OF_TENANT: &str = "select count(*) from destinations where tenant_id = ?1";

pub(super) const QUEUED: &str = "select queued from backlogs where destination_id = ?1";

/// The lowest number among those that may go and those that have an ordering key: all of them.
pub(super) const OLDEST: &str = "
    select accepted_at from events where seq = (select event_seq from deliveries where seq = (
        select min(first) from (
            select min(seq) as first from deliveries where destination_id = ?1 and behind = 0
            union all
            select min(seq) from deliveries where destination_id = ?1 and ordering_key is not null)))";

/// Of many, the oldest is most likely among the first of all that is queued: that is looked at before all of them are.
pub(super) const OLDEST_AT_THE_FRONT: &str = "
    select accepted_at from events where seq = (
        select event_seq from (select destination_id, event_seq from deliveries order by seq limit ?2)
        where destination_id = ?1 limit 1)";

/// So many are looked at in a millisecond or two.
const MANY: i64 = 10_000;

impl Batch<'_> {
    pub(super) fn save_gate(&mut self, destination_id: DestinationId, state: &GateState) -> Result<Written, Fault> {
        if !self.is_destination(destination_id)? {
            return Ok(Written::Refused(Refusal::NotFound));
        }
        self.execute(SAVE_GATE, params![destination_id.0.to_be_bytes(), row::json("a gate", state)?])?;
        Ok(Written::Saved)
    }

    pub(super) fn put_tenant(&mut self, tenant: &Tenant) -> Result<Written, Fault> {
        match tenant_called(self.sql, tenant.id)?.map(|before| before.version) {
            Some(before) if before.checked_add(1) != Some(tenant.version) => {
                return Ok(Written::Refused(Refusal::VersionDiffers));
            }
            None if tenant.version > 1 => return Ok(Written::Refused(Refusal::NotFound)),
            Some(_) | None => {}
        }
        self.execute(
            "insert into tenants (id, settings) values (?1, ?2) on conflict do update set settings = excluded.settings",
            params![tenant.id.0.to_be_bytes(), row::json("a tenant", tenant)?],
        )?;
        self.forget_quota(tenant.id)?;
        Ok(Written::Saved)
    }

    pub(super) fn put_destination(&mut self, destination: &Destination) -> Result<Written, Fault> {
        let Destination { id, tenant_id, settings, secrets, created_at, updated_at, version, consent: _ } = destination;
        let sql = "select version from destinations where id = ?1";
        let before: Option<i64> = self.find(sql, [id.0.to_be_bytes()], |row| row.get(0))?;
        match before.map(i64::cast_unsigned) {
            Some(before) if before.checked_add(1) != Some(*version) => {
                return Ok(Written::Refused(Refusal::VersionDiffers));
            }
            None if *version > 1 => return Ok(Written::Refused(Refusal::NotFound)),
            None if self.was_removed(*id)? => return Ok(Written::Refused(Refusal::VersionDiffers)),
            Some(_) | None => {}
        }
        self.execute(
            "insert or replace into destinations (id, tenant_id, version, settings, secrets, created_at, updated_at)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                id.0.to_be_bytes(),
                tenant_id.0.to_be_bytes(),
                version.cast_signed(),
                row::json("a destination's settings", settings)?,
                seal(self.keys, (*tenant_id, *id), secrets)?,
                created_at.0,
                updated_at.0,
            ],
        )?;
        self.destinations.insert(*id, Some(*tenant_id));
        Ok(Written::Saved)
    }

    pub(super) fn consented(&mut self, destination_id: DestinationId, consent: &Consent) -> Result<Written, Fault> {
        let sql = "select settings from destinations where id = ?1";
        let settings: Option<Vec<u8>> = self.find(sql, [destination_id.0.to_be_bytes()], |row| row.get(0))?;
        let Some(settings) = settings else { return Ok(Written::Refused(Refusal::NotFound)) };
        let settings: DestinationSettings = row::read_json("a destination's settings", &settings)?;
        if settings.url != consent.url {
            return Ok(Written::Refused(Refusal::NotFound));
        }
        self.execute(
            "insert or replace into consents (destination_id, consent) values (?1, ?2)",
            params![destination_id.0.to_be_bytes(), row::json("a consent", consent)?],
        )?;
        Ok(Written::Saved)
    }

    pub(super) fn add_destination(
        &mut self,
        destination: &Destination,
        of_tenant_max: usize,
    ) -> Result<Written, Fault> {
        let owner = destination.tenant_id.0.to_be_bytes();
        let n: i64 = self.row(OF_TENANT, [owner], |row| row.get(0))?;
        if n >= row::number(of_tenant_max) && !is_destination(self.sql, destination.id)? {
            return Ok(Written::Refused(Refusal::TooManyDestinations { max: of_tenant_max }));
        }
        self.put_destination(destination)
    }

    pub(super) fn remove_destination(&mut self, id: DestinationId, now: Timestamp) -> Result<Written, Fault> {
        let bytes = id.0.to_be_bytes();
        if !self.is_destination(id)? {
            return Ok(Written::Refused(Refusal::NotFound));
        }
        self.drop_queued(id)?;
        self.destinations.insert(id, None);
        for sql in [
            "delete from destinations where id = ?1",
            "delete from gates where destination_id = ?1",
            "delete from consents where destination_id = ?1",
            "delete from backlogs where destination_id = ?1",
        ] {
            self.execute(sql, [bytes])?;
        }
        let sql = "insert into removed_destinations (id, swept, removed_at) values (?1, 0, ?2)";
        self.execute(sql, params![bytes, now.0])?;
        Ok(Written::Saved)
    }

    /// A delivery that is in none of the tables any more.
    pub(super) fn forget_delivery(&mut self, id: [u8; 16], event_seq: i64) -> Result<(), Fault> {
        self.execute("delete from delivery_seqs where id = ?1", [id])?;
        let sql = "update events set n_kept = n_kept - 1 where seq = ?1 returning tenant_id";
        match self.find(sql, [event_seq], |row| Ok(TenantId(row::id(row, 0)?)))? {
            Some(tenant_id) => self.add_bytes(tenant_id, -DELIVERY_BYTES.cast_signed()),
            None => Ok(()),
        }
    }
}

pub(super) fn tenant_called(sql: &Connection, id: TenantId) -> Result<Option<Tenant>, Fault> {
    let mut named = sql.prepare_cached("select settings from tenants where id = ?1")?;
    let settings: Option<Vec<u8>> = named.query_row([id.0.to_be_bytes()], |row| row.get(0)).optional()?;
    settings.map(|settings| row::read_json("a tenant", &settings)).transpose()
}

pub(super) fn tenants(sql: &Connection, after: Option<TenantId>, limit: usize) -> Result<Vec<Tenant>, Fault> {
    let mut behind = sql.prepare_cached("select settings from tenants where id > ?1 order by id limit ?2")?;
    let mut rows = behind.query(params![from(after.map(|id| id.0)), row::number(limit)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(row::read_json("a tenant", row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?)?);
    }
    Ok(found)
}

pub(super) fn destinations(
    sql: &Connection,
    keys: &Keyring,
    after: Option<DestinationId>,
    limit: usize,
) -> Result<Vec<StoredDestination>, Fault> {
    let mut behind = sql.prepare_cached(DESTINATIONS)?;
    let mut rows = behind.query(params![from(after.map(|id| id.0)), row::number(limit)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(stored(row, keys)?);
    }
    Ok(found)
}

/// Where a list begins. Every ID is longer than nothing at all, and so comes behind it.
pub(super) fn from(after: Option<u128>) -> Vec<u8> {
    after.map_or(Vec::new(), |id| id.to_be_bytes().to_vec())
}

fn stored(row: &Row<'_>, keys: &Keyring) -> Result<StoredDestination, Fault> {
    let blob = |at: usize| -> rusqlite::Result<&[u8]> { Ok(row.get_ref(at)?.as_blob()?) };
    let (gate, consent): (Option<Vec<u8>>, Option<Vec<u8>>) = (row.get(7)?, row.get(9)?);
    let (id, tenant_id) = (DestinationId(row::id(row, 0)?), TenantId(row::id(row, 1)?));
    let damaged =
        |row: DamagedRow, what| move |why: serde_json::Error| row.fault(what, (tenant_id, id), why.to_string());
    let settings: DestinationSettings =
        serde_json::from_slice(blob(3)?).map_err(damaged(DamagedRow::Destination, "a destination's settings"))?;
    let consent = consent.map(|consent| serde_json::from_slice(&consent)).transpose();
    let gate = gate.map_or(Ok(GateState::default()), |gate| serde_json::from_slice(&gate));
    Ok(StoredDestination {
        destination: Destination {
            id,
            tenant_id,
            settings,
            secrets: unseal(keys, (tenant_id, id), blob(4)?)?,
            created_at: Timestamp(row.get(5)?),
            updated_at: Timestamp(row.get(6)?),
            version: row.get::<_, i64>(2)?.cast_unsigned(),
            consent: consent.map_err(damaged(DamagedRow::Consent, "a consent"))?,
        },
        gate: gate.map_err(damaged(DamagedRow::Gate, "a gate"))?,
        has_backlog: row.get(8)?,
    })
}

pub(super) fn backlogs(sql: &Connection, reach: Reach, ids: &[DestinationId]) -> Result<Vec<Backlog>, Fault> {
    let seen = |id: &DestinationId| match may_see(sql, reach, *id)? {
        true => backlog(sql, id.0.to_be_bytes()),
        false => Ok(Backlog::default()),
    };
    ids.iter().map(seen).collect()
}

fn backlog(sql: &Connection, id: [u8; 16]) -> Result<Backlog, Fault> {
    let queued: Option<i64> = sql.prepare_cached(QUEUED)?.query_row([id], |row| row.get(0)).optional()?;
    let Some(queued) = queued else { return Ok(Backlog::default()) };
    let mut oldest: Option<i64> = None;
    if queued > MANY {
        let mut front = sql.prepare_cached(OLDEST_AT_THE_FRONT)?;
        oldest = front.query_row(params![id, MANY], |row| row.get(0)).optional()?;
    }
    if oldest.is_none() {
        oldest = sql.prepare_cached(OLDEST)?.query_row([id], |row| row.get(0)).optional()?;
    }
    Ok(Backlog { queued: queued.cast_unsigned(), oldest_created_at: oldest.map(Timestamp) })
}

/// What is queued for one that was removed is nobody's.
pub(super) fn is_destination(sql: &Connection, id: DestinationId) -> Result<bool, Fault> {
    Ok(sql.prepare_cached(IS_DESTINATION)?.exists([id.0.to_be_bytes()])?)
}
