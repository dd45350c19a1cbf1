//! One transaction: the writes of a batch, and what is counted along with them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use doorstep_core::id::{DestinationId, TenantId};
use doorstep_core::id_map::IdMap;
use doorstep_core::quota::Quota;
use doorstep_core::store::{Ages, Purged, StoreError, Tally, Write, Written};
use doorstep_core::time::Timestamp;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Row, Transaction, TransactionBehavior, params};

use super::count_file::{CountFile, Counts};
use super::fault::{Fault, told};
use super::log::Log;
use super::statements::Statements;
use super::stretch::Stretches;
use super::usage::Usages;
use crate::minute::minute_of;
use crate::seal::Keyring;
use crate::seal::payload::TenantKey;

/// The one that writes.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) connection: Connection,
    keys: Arc<Keyring>,
    counters: Counters,
    stretches: Stretches,
    event_stretches: Stretches,
    tenant_keys: IdMap<TenantId, Arc<TenantKey>>,
    destinations: IdMap<DestinationId, Option<TenantId>>,
    usages: Usages,
    reported_keys: HashSet<TenantId>,
    may_seal: bool,
    log: Log,
    count_file: CountFile,
    /// A transaction has begun and has come to no end, good or bad.
    under_way: bool,
}

/// The last numbers given out. Kept, so that none is ever given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) event_seq: i64,
    pub(super) seq: i64,
    pub(super) attempt: i64,
    /// Transactions that changed something.
    pub(super) commits: i64,
}

impl Counters {
    pub(super) fn counts(self) -> Counts {
        let Self { event_seq, seq, attempt, commits } = self;
        let [commits, events, deliveries, attempts] = [commits, event_seq, seq, attempt].map(i64::cast_unsigned);
        Counts { commits, events, deliveries, attempts }
    }

    pub(super) fn read(sql: &Connection) -> rusqlite::Result<Self> {
        let counters = "select last_event_seq, last_seq, last_attempt, commits from counters";
        sql.query_row(counters, [], |row| {
            Ok(Self { event_seq: row.get(0)?, seq: row.get(1)?, attempt: row.get(2)?, commits: row.get(3)? })
        })
    }
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        keys: Arc<Keyring>,
        quota: Quota,
        count_file: CountFile,
    ) -> Result<Self, Fault> {
        let counters = Counters::read(&connection)?;
        let may_seal = keys.seals_payloads() || connection.prepare("select 1 from tenant_keys")?.exists([])?;
        // Whoever was here before may have come to its end between an erasure and this.
        let mut log = Log::to_empty();
        log.empty_if_due(&connection);
        Ok(Self {
            connection,
            keys,
            counters,
            stretches: Stretches::default(),
            event_stretches: Stretches::default(),
            tenant_keys: IdMap::default(),
            destinations: IdMap::default(),
            usages: Usages::new(quota),
            reported_keys: HashSet::new(),
            may_seal,
            log,
            count_file,
            under_way: false,
        })
    }

    pub(super) fn write(&mut self, writes: Vec<Write>, now: Timestamp) -> Result<Vec<Written>, StoreError> {
        let written = self.transact(|batch| writes.into_iter().map(|write| batch.write(write, now)).collect())?;
        self.log.empty_if_due(&self.connection);
        Ok(written)
    }

    pub(super) fn purge(&mut self, ages: Ages, limit: usize) -> Result<Purged, StoreError> {
        let purged = self.transact(|batch| batch.purge(ages, limit))?;
        self.log.empty_if_due(&self.connection);
        Ok(purged)
    }

    /// All or nothing. Whatever went wrong, the next one starts afresh.
    pub(super) fn transact<A>(
        &mut self,
        work: impl FnOnce(&mut Batch<'_>) -> Result<A, Fault>,
    ) -> Result<A, StoreError> {
        if self.under_way {
            // The last one ended in a panic, somebody's mistake.
            self.forget();
        }
        self.under_way = true;
        let done = self.try_transact(work);
        self.under_way = false;
        done.map_err(|fault| {
            self.forget();
            told(fault)
        })
    }

    /// What was noted may have been rolled back: above all a tenant's key that is on no disk.
    fn forget(&mut self) {
        self.stretches.forget();
        self.event_stretches.forget();
        self.tenant_keys.clear();
        self.destinations.clear();
        self.usages.forget();
    }

    fn try_transact<A>(&mut self, work: impl FnOnce(&mut Batch<'_>) -> Result<A, Fault>) -> Result<A, Fault> {
        if !self.connection.is_autocommit() {
            // The disk was so full that not even the last rollback went through.
            self.connection.execute_batch("rollback")?;
        }
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut batch = Batch {
            sql: &transaction,
            statements: Statements::of(&transaction),
            keys: &self.keys,
            counters: self.counters,
            stretches: &mut self.stretches,
            event_stretches: &mut self.event_stretches,
            tenant_keys: &mut self.tenant_keys,
            usages: &mut self.usages,
            reported_keys: &mut self.reported_keys,
            may_seal: self.may_seal,
            destinations: &mut self.destinations,
            queued: BTreeMap::new(),
            minutes: BTreeMap::new(),
            erased: false,
        };
        let changes = transaction.total_changes();
        let answer = work(&mut batch)?;
        let erased = batch.erased;
        let counters = batch.finish(changes)?;
        transaction.commit()?;
        if self.counters != counters {
            self.counters = counters;
            self.count_file.committed(counters.counts());
        }
        if erased {
            self.log = Log::to_empty();
        }
        Ok(answer)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.count_file.close();
    }
}

pub(super) struct Batch<'a> {
    pub(super) sql: &'a Transaction<'a>,
    statements: Statements<'a>,
    pub(super) keys: &'a Keyring,
    pub(super) counters: Counters,
    pub(super) stretches: &'a mut Stretches,
    pub(super) event_stretches: &'a mut Stretches,
    pub(super) tenant_keys: &'a mut IdMap<TenantId, Arc<TenantKey>>,
    pub(super) usages: &'a mut Usages,
    /// Tenants whose key cannot be read, and of which that was said.
    pub(super) reported_keys: &'a mut HashSet<TenantId>,
    /// Events may be sealed: without it, nobody has to look.
    pub(super) may_seal: bool,
    /// Which of those that were asked for are there, and whose they are.
    pub(super) destinations: &'a mut IdMap<DestinationId, Option<TenantId>>,
    /// By how much their backlogs have grown.
    pub(super) queued: BTreeMap<DestinationId, i64>,
    minutes: BTreeMap<(Timestamp, DestinationId), Tally>,
    /// A key was forgotten, of which the log may still hold a copy.
    pub(super) erased: bool,
}

impl Batch<'_> {
    pub(super) fn write(&mut self, write: Write, now: Timestamp) -> Result<Written, Fault> {
        match write {
            Write::Accept(new) => self.accept(&new, now),
            Write::Settle(settled) => Ok(Written::Settled { available: self.settle(&settled)?.into_iter().collect() }),
            Write::SaveGate { destination_id, state } => self.save_gate(destination_id, &state),
            Write::Revive { delivery_id, give_up_at } => self.revive(delivery_id, give_up_at, now),
            Write::Abandon { delivery_id, note } => self.abandon(delivery_id, &note, now),
            Write::ErasePayloads { tenant_id } => self.erase_payloads(tenant_id),
            Write::PutTenant(tenant) => self.put_tenant(&tenant),
            Write::PutDestination(destination) => self.put_destination(&destination),
            Write::Consented { destination_id, consent } => self.consented(destination_id, &consent),
            Write::AddDestination { destination, of_tenant_max } => self.add_destination(&destination, of_tenant_max),
            Write::RemoveDestination { destination_id } => self.remove_destination(destination_id, now),
            Write::ByHand(by_hand) => self.by_hand(*by_hand, now),
            Write::PutApiKey(key) => self.put_api_key(&key),
            Write::ChangeApiKey(key) => self.change_api_key(*key),
            Write::RevokeApiKey { key_id } => self.revoke_api_key(key_id, now),
            Write::UsedApiKeys(used) => self.used_api_keys(&used),
            Write::PutPortalSession(session) => self.put_portal_session(&session),
            Write::OpenPortalSession { session_id, code, token } => {
                self.open_portal_session(session_id, &code, token, now)
            }
            Write::EndPortalSession { session_id } => self.end_portal_session(session_id),
            Write::EndPortalSessions { tenant_id } => self.end_portal_sessions(tenant_id),
            Write::Audit(entry) => self.note(&entry),
            Write::KeepClock(record) => self.keep_clock(&record),
            Write::PutEventType(registered) => self.put_event_type(&registered),
            Write::RemoveEventType { name } => self.remove_event_type(&name),
        }
    }

    pub(super) fn statement(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>> {
        self.sql.prepare_cached(sql)
    }

    pub(super) fn execute(&self, sql: &'static str, params: impl Params) -> rusqlite::Result<usize> {
        self.statements.with(sql, |statement| statement.execute(params))
    }

    /// The first row.
    pub(super) fn row<A>(
        &self,
        sql: &'static str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<A>,
    ) -> rusqlite::Result<A> {
        self.statements.with(sql, |statement| statement.query_row(params, read))
    }

    /// The first row, if there is one.
    pub(super) fn find<A>(
        &self,
        sql: &'static str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<A>,
    ) -> rusqlite::Result<Option<A>> {
        self.row(sql, params, read).optional()
    }

    pub(super) fn exists(&self, sql: &'static str, params: impl Params) -> rusqlite::Result<bool> {
        self.statements.with(sql, |statement| statement.exists(params))
    }

    pub(super) fn count(&mut self, destination_id: DestinationId, at: Timestamp, tally: &Tally) {
        self.minutes.entry((minute_of(at), destination_id)).or_default().add(tally);
    }

    pub(super) fn grow(&mut self, destination_id: DestinationId, by: i64) -> Result<(), Fault> {
        *self.queued.entry(destination_id).or_default() += by;
        self.add_queued(destination_id, by)
    }

    /// `changes`: how many there were before this batch. One that changes nothing is not counted, and costs no write.
    fn finish(mut self, changes: u64) -> Result<Counters, Fault> {
        for (destination_id, by) in std::mem::take(&mut self.queued).into_iter().filter(|(_, by)| *by != 0) {
            self.execute(
                "insert into backlogs (destination_id, queued) values (?1, ?2)
                 on conflict do update set queued = queued + excluded.queued",
                params![destination_id.0.to_be_bytes(), by],
            )?;
        }
        for ((minute, destination_id), tally) in std::mem::take(&mut self.minutes) {
            self.save_minute(minute, destination_id, &tally)?;
        }
        self.save_usages()?;
        if self.sql.total_changes() != changes {
            self.counters.commits += 1;
            let Counters { event_seq, seq, attempt, commits } = self.counters;
            self.execute(
                "update counters set last_event_seq = ?1, last_seq = ?2, last_attempt = ?3, commits = ?4",
                params![event_seq, seq, attempt, commits],
            )?;
        }
        Ok(self.counters)
    }
}
