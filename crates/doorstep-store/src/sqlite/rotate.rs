//! Changing the master key: every record goes over to the new one, a few at a time. Whoever is interrupted goes on later: each record
//! names its key, and both keys are noted in the database until nothing needs the old one.

use std::ops::ControlFlow;

use doorstep_core::audit::{Action, Actor, AuditEntry, AuditOutcome, changes};
use doorstep_core::clock::KeptClock;
use doorstep_core::id::{DestinationId, TenantId};
use doorstep_core::time::Timestamp;
use rusqlite::{Connection, Row, TransactionBehavior, params};
use serde_json::json;

use super::audit::note;
use super::clock;
use super::fault::Fault;
use super::master;
use super::open::{DataDir, OpenError, SqliteLimits};
use super::row;
use crate::seal::{KeyId, Keyring, Place};

/// Records that one transaction takes over, unless told otherwise.
pub const ROTATE_AT_ONCE: usize = 500;

/// What became of a change of the master key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotated {
    /// Records that went over now. Others may have before.
    pub moved: usize,
    /// Nothing needs the other keys any more.
    pub finished: bool,
}

impl DataDir {
    /// Seals everything with the ring's current key, which must be safe on disk before. `told` hears of every transaction how many
    /// records it has looked at, and may stop the work: it goes on with the next call. `now` says what time it is, given how far the
    /// store's clock had come.
    pub fn rotate(
        &self,
        keys: &Keyring,
        at_once: usize,
        now: impl FnOnce(KeptClock) -> Timestamp,
        mut told: impl FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Rotated, OpenError> {
        // From here on both keys are noted.
        let mut sql = self.connect_to_write(keys, &SqliteLimits::default())?;
        let run = || -> Result<Rotated, Fault> {
            // What the old key opens does not stay behind in unused pages.
            sql.pragma_update(None, "secure_delete", true)?;
            let mut moved = 0;
            for records in &EVERYTHING_SEALED {
                let mut after = Vec::new();
                loop {
                    let step = step(&mut sql, keys, records, &after, at_once)?;
                    moved += step.moved;
                    let Some(last) = step.last else { break };
                    after = last;
                    if told(step.seen).is_break() {
                        return Ok(Rotated { moved, finished: false });
                    }
                }
            }
            let kept = clock::kept(&sql)?;
            finish(&mut sql, keys, now(kept))?;
            sql.pragma_update(None, "wal_checkpoint", "truncate")?;
            Ok(Rotated { moved, finished: true })
        };
        run().map_err(|fault| self.broken(fault))
    }
}

/// The other keys are forgotten, and that is noted.
fn finish(sql: &mut Connection, keys: &Keyring, now: Timestamp) -> Result<(), Fault> {
    let transaction = sql.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let current = keys.current();
    let before: Vec<String> =
        master::in_use(&transaction)?.into_iter().filter(|id| *id != current).map(|id| id.to_string()).collect();
    if !before.is_empty() {
        transaction.execute("delete from master_keys where id <> ?1", [current.bytes()])?;
        let after = current.to_string();
        let entry = AuditEntry {
            at: now,
            actor: Actor::Console,
            from: None,
            tenant_id: None,
            action: Action::MasterKeyRotate,
            outcome: AuditOutcome::Done,
            changes: changes(&json!({ "id": before.join(", ") }), &json!({ "id": after })),
            resource: after,
        };
        note(&transaction, &entry)?;
    }
    Ok(transaction.commit()?)
}

/// A kind of sealed record, in the order of its primary key.
struct Records {
    what: &'static str,
    /// The primary key, what else the place is made of, and the record.
    select: &'static str,
    update: &'static str,
    place: fn(&Row<'_>) -> rusqlite::Result<Place>,
}

const EVERYTHING_SEALED: [Records; 3] = [
    Records {
        what: "a destination's secrets",
        select: "select id, tenant_id, secrets from destinations where id > ?1 order by id limit ?2",
        update: "update destinations set secrets = ?2 where id = ?1",
        place: |row| Ok(Place::Destination(TenantId(row::id(row, 1)?), DestinationId(row::id(row, 0)?))),
    },
    Records {
        what: "a tenant's key",
        select: "select tenant_id, id, sealed from tenant_keys where tenant_id > ?1 order by tenant_id limit ?2",
        update: "update tenant_keys set sealed = ?2 where tenant_id = ?1",
        place: |row| Ok(Place::TenantKey(TenantId(row::id(row, 0)?), KeyId::from_bytes(row.get(1)?))),
    },
    Records {
        what: "the key of the payloads' digests",
        select: "select id, id, sealed from digest_keys where id > ?1 order by id limit ?2",
        update: "update digest_keys set sealed = ?2 where id = ?1",
        place: |row| Ok(Place::DigestKey(KeyId::from_bytes(row.get(0)?))),
    },
];

struct Step {
    seen: usize,
    moved: usize,
    last: Option<Vec<u8>>,
}

/// One transaction: the records that come next.
fn step(sql: &mut Connection, keys: &Keyring, records: &Records, after: &[u8], at_once: usize) -> Result<Step, Fault> {
    let transaction = sql.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut done = Step { seen: 0, moved: 0, last: None };
    let found: Vec<(Vec<u8>, Place, Vec<u8>)> = transaction
        .prepare_cached(records.select)?
        .query_map(params![after, row::number(at_once.max(1))], |row| {
            Ok((row.get(0)?, (records.place)(row)?, row.get(2)?))
        })?
        .collect::<Result<_, _>>()?;
    for (key, place, sealed) in found {
        let moved = keys.rewrap(place, &sealed).map_err(|error| Fault::unreadable(records.what)(error.into()))?;
        if let Some(moved) = moved {
            transaction.prepare_cached(records.update)?.execute(params![key, moved])?;
            done.moved += 1;
        }
        done.seen += 1;
        done.last = Some(key);
    }
    transaction.commit()?;
    Ok(done)
}
