//! Changing the master key: every record goes over to the new one, a few at a time. Whoever is interrupted goes on later: each record
//! names its key, and both keys are noted in the database until nothing needs the old one.

use std::ops::ControlFlow;

use doorstep_core::id::{DestinationId, TenantId};
use rusqlite::{Connection, TransactionBehavior, params};

use super::fault::Fault;
use super::open::{DataDir, OpenError, SqliteLimits};
use super::row;
use crate::seal::{Keyring, Place};

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
    /// records it has looked at, and may stop the work: it goes on with the next call.
    pub fn rotate(
        &self,
        keys: &Keyring,
        at_once: usize,
        mut told: impl FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Rotated, OpenError> {
        // From here on both keys are noted.
        let mut sql = self.connect_to_write(keys, &SqliteLimits::default())?;
        let mut run = || -> Result<Rotated, Fault> {
            // What the old key opens does not stay behind in unused pages.
            sql.pragma_update(None, "secure_delete", true)?;
            let mut after: Option<DestinationId> = None;
            let mut moved = 0;
            loop {
                let step = step(&mut sql, keys, after, at_once)?;
                moved += step.moved;
                if step.seen == 0 {
                    break;
                }
                after = step.last;
                if told(step.seen).is_break() {
                    return Ok(Rotated { moved, finished: false });
                }
            }
            sql.execute("delete from master_keys where id <> ?1", [keys.current().bytes()])?;
            sql.pragma_update(None, "wal_checkpoint", "truncate")?;
            Ok(Rotated { moved, finished: true })
        };
        run().map_err(|fault| self.broken(fault))
    }
}

struct Step {
    seen: usize,
    moved: usize,
    last: Option<DestinationId>,
}

/// One transaction: the destinations that come next.
fn step(sql: &mut Connection, keys: &Keyring, after: Option<DestinationId>, at_once: usize) -> Result<Step, Fault> {
    let transaction = sql.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut done = Step { seen: 0, moved: 0, last: None };
    {
        let mut behind = transaction
            .prepare_cached("select id, tenant_id, secrets from destinations where id > ?1 order by id limit ?2")?;
        let mut update = transaction.prepare_cached("update destinations set secrets = ?2 where id = ?1")?;
        let from = after.map_or(Vec::new(), |id| id.0.to_be_bytes().to_vec());
        let found: Vec<(DestinationId, TenantId, Vec<u8>)> = behind
            .query_map(params![from, row::number(at_once.max(1))], |row| {
                Ok((DestinationId(row::id(row, 0)?), TenantId(row::id(row, 1)?), row.get(2)?))
            })?
            .collect::<Result<_, _>>()?;
        for (id, tenant_id, sealed) in found {
            let moved = keys
                .rewrap(Place::Destination(tenant_id, id), &sealed)
                .map_err(|error| Fault::unreadable("a destination's secrets")(error.into()))?;
            if let Some(moved) = moved {
                update.execute(params![id.0.to_be_bytes(), moved])?;
                done.moved += 1;
            }
            done.seen += 1;
            done.last = Some(id);
        }
    }
    transaction.commit()?;
    Ok(done)
}
