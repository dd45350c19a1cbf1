//! Looking at everything in a data directory without changing it: structure, consistency, secrets and payloads.
//!
//! A server may run meanwhile: each statement sees one moment, and no two statements are compared with each other.

use std::path::Path;

use doorstep_core::id::{DeliveryId, DestinationId, TenantId};
use rusqlite::{Connection, Row, params};

use super::catalog;
use super::count_file::{self, CountFile, Found};
use super::fault::Fault;
use super::open::{self, DataDir, OpenError};
use super::payload::{self, Opener};
use super::row::{self, event_columns};
use super::{digest, master, migrate};
use crate::seal::Keyring;

/// Of each kind of fault, so many are named; the others are counted.
pub const NAMED_MAX: usize = 100;
/// SQLite's own check stops after so many faults.
const STRUCTURAL_FAULTS_MAX: u32 = 100;
/// Payloads that are read in one transaction: a long one would keep the write-ahead log of a running server from being emptied.
const PAYLOADS_AT_ONCE: usize = 500;

/// What came of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was checked.
    pub check: &'static str,
    pub result: CheckResult,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// Nothing is wrong; what was looked at.
    Sound(String),
    /// It could not be checked, and why.
    Skipped(String),
    /// What is wrong: how often, the first [`NAMED_MAX`] of them, and what to do.
    Faulty { n: u64, named: Vec<String>, advice: &'static str },
}

/// A sign of life during a long check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub check: &'static str,
    /// Rows looked at, and how many there are; none where nobody knows.
    pub rows: Option<(u64, u64)>,
}

/// Hears of progress.
pub(super) type Told<'a> = &'a mut (dyn FnMut(Progress) + Send);

impl DataDir {
    /// Checks everything in this directory. Without keys, what is sealed is not opened. Takes time in proportion to what is stored.
    pub fn inspect(path: &Path, keys: Option<Keyring>, told: Told<'_>) -> Result<Vec<Finding>, OpenError> {
        let counted = CountFile::read(path).unwrap_or(Found::Unreadable);
        if !Self::holds_data(path) {
            return Ok(vec![without_data(path, &counted)]);
        }
        let database = open::database_in(path);
        let broken = |fault: Fault| OpenError::database(&database, fault);
        let sql = open::connect_to_look(&database).map_err(|error| broken(error.into()))?;
        let version = migrate::check(&sql).map_err(|error| error.of(&database))?;
        if version == 0 {
            return Ok(vec![without_data(path, &counted)]);
        }
        let mut findings = Vec::new();
        findings.push(structure(&sql, told).map_err(broken)?);
        if version < migrate::known() {
            let why = format!(
                "the schema is of an earlier version ({version}): start the server once to bring it up to date"
            );
            findings.push(Finding { check: "contents", result: CheckResult::Skipped(why) });
            return Ok(findings);
        }
        findings.push(commits(&counted, &sql).map_err(broken)?);
        for rule in &RULES {
            told(Progress { check: rule.check, rows: None });
            findings.push(rule.look(&sql).map_err(broken)?);
        }
        findings.extend(sealed(&sql, keys, told).map_err(broken)?);
        Ok(findings)
    }
}

/// Collects what is wrong.
#[derive(Default)]
struct Faults {
    n: u64,
    named: Vec<String>,
}

impl Faults {
    fn add(&mut self, name: impl FnOnce() -> String) {
        self.n += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(name());
        }
    }

    /// What was read. Damage is a fault by this name, and everything else ends the check.
    fn of<T>(&mut self, read: Result<T, Fault>, name: impl FnOnce(String) -> String) -> Result<Option<T>, Fault> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(fault) if fault.is_damage() => {
                self.add(|| name(fault.in_full()));
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Looks at every row that a query finds, up to where it cannot be read on.
    fn look_through(
        &mut self,
        sql: &Connection,
        query: &str,
        look: impl Fn(&mut Self, &Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), Fault> {
        let mut looked = || -> rusqlite::Result<()> {
            let mut statement = sql.prepare(query)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                look(self, row)?;
            }
            Ok(())
        };
        let looked = looked().map_err(Fault::from);
        self.of(looked, |why| why).map(drop)
    }

    fn result(self, sound: &str, advice: &'static str) -> CheckResult {
        match self.n {
            0 => CheckResult::Sound(sound.to_owned()),
            n => CheckResult::Faulty { n, named: self.named, advice },
        }
    }
}

/// Every page, row and index.
fn structure(sql: &Connection, told: Told<'_>) -> Result<Finding, Fault> {
    let check = "structure";
    told(Progress { check, rows: None });
    let mut faults = Faults::default();
    faults.look_through(sql, &format!("pragma integrity_check({STRUCTURAL_FAULTS_MAX})"), |faults, row| {
        let line: String = row.get(0)?;
        if line != "ok" {
            faults.add(|| line);
        }
        Ok(())
    })?;
    let result = faults.result(
        "all pages, rows and indexes fit together",
        "stop the server, keep a copy of the data directory, and restore a backup",
    );
    Ok(Finding { check, result })
}

/// There is no database, or one without tables: a new directory, or one that has lost it.
fn without_data(path: &Path, found: &Found) -> Finding {
    let result = match open::evidence_of_data(path, found, true) {
        None => CheckResult::Sound("nothing is stored yet".to_owned()),
        Some(evidence) => {
            let database = open::database_in(path);
            let lost = format!(
                "{} is missing or empty, but {evidence} shows that events were stored there",
                database.display()
            );
            CheckResult::Faulty {
                n: 1,
                named: vec![lost],
                advice: "the server does not start: restore the database from a backup",
            }
        }
    };
    Finding { check: "database", result }
}

/// Whether all is there that was once committed.
fn commits(found: &Found, sql: &Connection) -> Result<Finding, Fault> {
    let check = "commits";
    let counts = open::counts(sql)?;
    let result = match found {
        Found::Nothing => CheckResult::Skipped(
            "there is no count to compare with: the server writes it from its next start on".to_owned(),
        ),
        Found::Unreadable => CheckResult::Skipped("the count in doorstep.commits cannot be read".to_owned()),
        Found::Record(_) => {
            let loss = count_file::missing(found, &counts);
            if loss == count_file::Loss::default() {
                CheckResult::Sound(format!("all {} are there", counts.commits))
            } else {
                CheckResult::Faulty { n: loss.commits.max(1), named: vec![loss.to_string()], advice: open::LOSS_ADVICE }
            }
        }
    };
    Ok(Finding { check, result })
}

/// What has to be true between tables. The query finds the exceptions.
struct Rule {
    check: &'static str,
    sound: &'static str,
    query: &'static str,
    name: fn(&Row<'_>) -> rusqlite::Result<String>,
    advice: &'static str,
}

fn delivery(row: &Row<'_>) -> rusqlite::Result<String> {
    Ok(DeliveryId(row::id(row, 0)?).to_string())
}

fn destination(row: &Row<'_>) -> rusqlite::Result<String> {
    Ok(DestinationId(row::id(row, 0)?).to_string())
}

const RESTORE: &str = "restore a backup, or abandon the deliveries named here";
const REPORT: &str = "please report this: no damage to a file explains it alone";

const RULES: [Rule; 8] = [
    Rule {
        check: "deliveries",
        sound: "every delivery has its event",
        query: "select id from deliveries d where not exists (select 1 from events e where e.seq = d.event_seq)
                union all
                select id from dead d where not exists (select 1 from events e where e.seq = d.event_seq)
                union all
                select id from delivered d where not exists (select 1 from events e where e.seq = d.event_seq)",
        name: delivery,
        advice: RESTORE,
    },
    Rule {
        check: "destinations",
        sound: "every queued delivery has its destination",
        query: "select id from deliveries d where not exists (select 1 from destinations t where t.id = d.destination_id)
                    and not exists (select 1 from removed_destinations t where t.id = d.destination_id)",
        name: delivery,
        advice: RESTORE,
    },
    Rule {
        check: "names",
        sound: "every delivery is found by its ID",
        query: "select id from deliveries d where not exists (select 1 from delivery_seqs s where s.id = d.id and s.seq = d.seq)
                union all
                select id from dead d where not exists (select 1 from delivery_seqs s where s.id = d.id and s.seq = d.seq)",
        name: delivery,
        advice: RESTORE,
    },
    Rule {
        check: "ordering keys",
        sound: "every ordering key has a delivery that may go, or a dead one that holds it",
        query: "select distinct d.destination_id, d.ordering_key from deliveries d where d.behind = 1
                    and exists (select 1 from destinations t where t.id = d.destination_id)
                    and not exists (select 1 from deliveries f where f.destination_id = d.destination_id
                        and f.ordering_key = d.ordering_key and f.behind = 0)
                    and not exists (select 1 from dead x where x.destination_id = d.destination_id
                        and x.ordering_key = d.ordering_key and x.holds_key = 1)",
        name: |row| Ok(format!("{} (key {:?})", destination(row)?, row.get::<_, String>(1)?)),
        advice: "deliveries with these keys wait for ever: abandon the first of each key, and the next one goes",
    },
    Rule {
        check: "numbers",
        sound: "no number is given out twice",
        query: "select 'events' from counters where last_event_seq < (select max(seq) from events)
                union all
                select 'deliveries' from counters where last_seq < max(ifnull((select max(seq) from deliveries), 0),
                    ifnull((select max(seq) from delivered), 0), ifnull((select max(seq) from dead), 0))
                union all
                select 'attempts' from counters where last_attempt < (select max(n) from attempts)
                union all
                select 'the row of counters is missing' where not exists (select 1 from counters)",
        name: |row| row.get(0),
        advice: "restore a backup: new events would overwrite old ones",
    },
    Rule {
        check: "backlogs",
        sound: "every backlog is counted right",
        query: "select t.id, ifnull(b.queued, 0), (select count(*) from deliveries d where d.destination_id = t.id) as n
                from destinations t left join backlogs b on b.destination_id = t.id where ifnull(b.queued, 0) <> n",
        name: |row| Ok(format!("{} ({} counted, {} queued)", destination(row)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)),
        advice: REPORT,
    },
    Rule {
        check: "events",
        sound: "every event knows how many of its deliveries are kept",
        query: "select e.id, e.n_kept,
                    (select count(*) from deliveries d where d.seq >= e.first_seq and d.seq < e.first_seq + e.n_deliveries)
                    + (select count(*) from delivered d where d.seq >= e.first_seq and d.seq < e.first_seq + e.n_deliveries)
                    + (select count(*) from dead d where d.seq >= e.first_seq and d.seq < e.first_seq + e.n_deliveries) as n
                from events e where e.n_kept <> n",
        name: |row| {
            Ok(format!("{} ({} counted, {} kept)", row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        },
        advice: REPORT,
    },
    Rule {
        check: "waiting",
        sound: "no delivery waits for a payload that could not be read",
        query: "select d.id, e.id, d.unreadable from deliveries d left join events e on e.seq = d.event_seq where d.unreadable > 0",
        name: |row| {
            let event = row.get::<_, Option<String>>(1)?.unwrap_or_else(|| "a missing event".to_owned());
            Ok(format!("{} of {event} (tried {} times)", delivery(row)?, row.get::<_, i64>(2)?))
        },
        advice: "restore their payloads, or abandon them",
    },
];

impl Rule {
    fn look(&self, sql: &Connection) -> Result<Finding, Fault> {
        let mut faults = Faults::default();
        faults.look_through(sql, self.query, |faults, row| {
            faults.add(|| (self.name)(row).unwrap_or_else(|_| "one whose ID cannot be read".to_owned()));
            Ok(())
        })?;
        Ok(Finding { check: self.check, result: faults.result(self.sound, self.advice) })
    }
}

/// What needs the master key.
fn sealed(sql: &Connection, keys: Option<Keyring>, told: Told<'_>) -> Result<Vec<Finding>, Fault> {
    let skipped = |why: &str| {
        let skipped = |check| Finding { check, result: CheckResult::Skipped(why.to_owned()) };
        ["secrets", "tenant keys", "payloads"].map(skipped).to_vec()
    };
    let Some(mut keys) = keys else { return Ok(skipped("the master key was not given")) };
    if let Some(needed) = master::in_use(sql)?.into_iter().find(|id| !keys.has(*id)) {
        return Ok(skipped(&format!("they are sealed with the master key {needed}, and another one was given")));
    }
    let mut findings = vec![
        Finding { check: "secrets", result: secrets(sql, &keys)? },
        Finding { check: "tenant keys", result: tenant_keys(sql, &keys)? },
    ];
    let payloads = match digest::load(sql, &mut keys) {
        Ok(()) => payloads(sql, &keys, told)?,
        Err(fault) if fault.is_damage() => CheckResult::Faulty { n: 1, named: vec![fault.in_full()], advice: RESTORE },
        Err(fault) => return Err(fault),
    };
    findings.push(Finding { check: "payloads", result: payloads });
    Ok(findings)
}

fn secrets(sql: &Connection, keys: &Keyring) -> Result<CheckResult, Fault> {
    let mut faults = Faults::default();
    let mut previous = None;
    for id in ids(sql, "select id from destinations order by id")? {
        let id = DestinationId(id);
        let read = catalog::destinations(sql, keys, previous.replace(id), 1);
        faults.of(read, |why| format!("{id}: {why}"))?;
    }
    let advice =
        "the server does not start with these: restore a backup, or delete their rows and make the destinations anew";
    Ok(faults.result("the settings and secrets of every destination can be read", advice))
}

fn tenant_keys(sql: &Connection, keys: &Keyring) -> Result<CheckResult, Fault> {
    let mut faults = Faults::default();
    for id in ids(sql, "select tenant_id from tenant_keys order by tenant_id")? {
        let tenant_id = TenantId(id);
        faults.of(payload::read_key(sql, keys, tenant_id), |why| format!("{tenant_id}: {why}"))?;
    }
    let advice =
        "events of these tenants are neither taken nor delivered: restore the rows of tenant_keys from a backup";
    Ok(faults.result("the key of every tenant can be read", advice))
}

fn ids(sql: &Connection, query: &str) -> Result<Vec<u128>, Fault> {
    Ok(sql.prepare(query)?.query_map([], |row| row::id(row, 0))?.collect::<Result<_, _>>()?)
}

const PAYLOADS: &str = concat!(
    "select ",
    event_columns!(),
    ", e.seq, e.payload_key, e.digest from events e where e.seq > ?1 order by e.seq limit ?2"
);

/// Reads every payload, as if it were to be sent.
fn payloads(sql: &Connection, keys: &Keyring, told: Told<'_>) -> Result<CheckResult, Fault> {
    let check = "payloads";
    let of: u64 = sql.query_row("select count(*) from events", [], |row| row.get::<_, i64>(0))?.cast_unsigned();
    let mut faults = Faults::default();
    let (mut after, mut n, mut undigested) = (0i64, 0u64, 0u64);
    loop {
        told(Progress { check, rows: Some((n, of.max(n))) });
        let mut opener = Opener::new(sql, keys);
        let mut next = sql.prepare_cached(PAYLOADS)?;
        let mut rows = next.query(params![after, row::number(PAYLOADS_AT_ONCE)])?;
        let before = n;
        loop {
            let row = match rows.next() {
                Ok(Some(row)) => row,
                Ok(None) => break,
                Err(error) => {
                    faults.of::<()>(Err(error.into()), |why| format!("behind the {after}th event: {why}"))?;
                    return Ok(faults.result("", RESTORE));
                }
            };
            (after, n) = (row.get("seq")?, n + 1);
            undigested += u64::from(
                row.get_ref("payload_key")?.data_type() == rusqlite::types::Type::Null
                    && row.get_ref("digest")?.data_type() == rusqlite::types::Type::Null,
            );
            faults.of(opener.event(row), |why| {
                let name = row.get::<_, String>("id").unwrap_or_else(|_| format!("the {after}th event"));
                format!("{name}: {why}")
            })?;
        }
        if n == before {
            break;
        }
    }
    let sound = match undigested {
        0 => format!("all {n} can be read and are as they were accepted"),
        _ => format!(
            "all {n} can be read; {undigested} of them are from before digests were kept, and could have been changed"
        ),
    };
    Ok(faults.result(&sound, "restore these payloads from a backup, or abandon their deliveries"))
}
