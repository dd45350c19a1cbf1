//! Taking a data directory into possession.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use doorstep_core::quota::Quota;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use thiserror::Error;

use super::batch::{Counters, Writer};
use super::count_file::{self, CountFile, Counts, Found, Loss};
use super::fault::Fault;
use super::migrate::{self, MigrateError};
use super::thread::Workers;
use super::type_match;
use super::{SqliteStore, State, digest, master, quick_check};
use crate::seal::{KeyId, Keyring};

const DATABASE: &str = "doorstep.db";
const LOCK: &str = "doorstep.lock";
/// Copies of logs from which something was missing: their names begin like this, and there are at most so many.
const KEPT_LOG: &str = "doorstep.db-wal.kept-at-";
pub const LOGS_KEPT_MAX: usize = 3;
/// The first schema that counts its commits.
const COUNTS_SINCE: i64 = 5;

/// Bounds of one open store.
#[derive(Clone, Debug)]
pub struct SqliteLimits {
    /// Batches that wait to be written; further ones wait outside.
    pub writes_queued_max: usize,
    pub reads_queued_max: usize,
    /// Threads that read for the engine, and as many for people.
    pub readers: usize,
    /// What a person may ask for takes at most this long, or is cut off.
    pub search_max: Duration,
    /// Pages that the writer keeps in memory, in KiB, and each reader.
    pub writer_cache_kib: u32,
    pub reader_cache_kib: u32,
    /// The write-ahead log is copied into the database when it has grown by so many pages.
    pub checkpoint_pages: u32,
    /// What each tenant may take that has no quota of its own.
    pub quota: Quota,
    /// A database that was not closed in good order is checked for at most this long before it is used.
    pub check_max: Duration,
}

impl Default for SqliteLimits {
    fn default() -> Self {
        Self {
            writes_queued_max: 64,
            reads_queued_max: 256,
            readers: 2,
            search_max: Duration::from_secs(5),
            writer_cache_kib: 24_576,
            reader_cache_kib: 4_096,
            checkpoint_pages: 4_000,
            quota: Quota::UNLIMITED,
            check_max: Duration::from_secs(2),
        }
    }
}

/// Why a data directory could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("{} is in use by another Doorstep: stop that one, or name another data directory", directory.display())]
    InUse { directory: PathBuf },
    #[error(
        "{} was written by a newer Doorstep (schema {found}, this one knows up to {known}): use that version or a newer one",
        database.display()
    )]
    Newer { database: PathBuf, found: i64, known: i64 },
    #[error(
        "the secrets in {} are sealed with the master key {needed}, and the one given is {given}: give that one, as DOORSTEP_MASTER_KEY \
         or as master.key in the data directory",
        database.display()
    )]
    OtherKey { database: PathBuf, needed: KeyId, given: KeyId },
    #[error(
        "the master key of {} was being changed, and a part is still sealed with {needed}: finish with `doorstep keys rotate-master`, as it \
         was begun",
        database.display()
    )]
    KeyChangeUnfinished { database: PathBuf, needed: KeyId },
    #[error(
        "{} is from before the first release, when secrets were not encrypted: begin with another data directory",
        database.display()
    )]
    Unsealed { database: PathBuf },
    #[error(
        "{} has tables ({tables}), but no schema version of Doorstep: another program made it, or its header was damaged. Name another \
         data directory, or restore this file from a backup",
        database.display()
    )]
    Unversioned { database: PathBuf, tables: String },
    #[error(
        "{} is missing or empty, but {evidence} shows that events were stored there: restore it from a backup; or, to begin anew without \
         them, move {evidence} away",
        database.display()
    )]
    Emptied { database: PathBuf, evidence: String },
    #[error("cannot use {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot open {}", database.display())]
    Database { database: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
}

impl OpenError {
    pub(super) fn database(database: &Path, fault: Fault) -> Self {
        Self::Database { database: database.to_owned(), source: Box::new(fault) }
    }
}

/// What to do about a loss.
pub(super) const LOSS_ADVICE: &str = "the write-ahead log or the database was cut, damaged, or replaced by an older copy: restore a newer backup if \
     there is one, or have producers send again what is missing; to acknowledge the loss, stop the server and remove doorstep.commits";

/// A data directory in this process's possession. Nobody else can take it until this is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Takes a directory into possession, and makes it if it is not there.
    pub fn take(path: &Path) -> Result<Self, OpenError> {
        make_directory(path).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), _lock: lock(path)? })
    }

    /// Whether data is kept there already. Nothing is touched.
    pub fn holds_data(path: &Path) -> bool {
        path.join(DATABASE).metadata().is_ok_and(|file| file.len() > 0)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether nothing was ever stored here, as far as the database itself shows. Nothing is touched.
    pub fn is_new(&self) -> Result<bool, OpenError> {
        if !Self::holds_data(&self.path) {
            return Ok(true);
        }
        let database = self.database();
        let sql = self.look()?;
        Ok(migrate::check(&sql).map_err(|error| error.of(&database))? == 0)
    }

    /// Makes an empty database, or brings the one that is there up to date. So a key that is made afterwards never stands beside
    /// nothing, as if the data had been lost.
    pub fn prepare(&self) -> Result<(), OpenError> {
        self.refuse_if_emptied()?;
        let database = self.make_database()?;
        let mut connection = open_writer(&database, &SqliteLimits::default()).map_err(|error| error.of(&database))?;
        migrate::migrate(&mut connection).map_err(|error| error.of(&database))
    }

    /// The master keys without which what is in here cannot be opened; none if nothing is.
    pub fn master_keys(&self) -> Result<Vec<KeyId>, OpenError> {
        if self.is_new()? {
            return Ok(Vec::new());
        }
        let sql = self.look()?;
        let read = || if master::knows_master_keys(&sql)? { master::in_use(&sql) } else { Ok(Vec::new()) };
        read().map_err(|fault| self.broken(fault))
    }

    fn look(&self) -> Result<Connection, OpenError> {
        connect_to_look(&self.database()).map_err(|error| self.broken(error.into()))
    }

    /// Opens the database in it; makes it, or brings it up to date, where needed.
    pub fn open(self, mut keys: Keyring, limits: &SqliteLimits) -> Result<SqliteStore, OpenError> {
        let broken = |fault: Fault| self.broken(fault);
        let found = self.refuse_if_emptied()?;
        let database = self.make_database()?;
        let mut connection = open_writer(&database, limits).map_err(|error| error.of(&database))?;
        let state = self.look_at(&mut connection, &found, limits)?;
        migrate::migrate(&mut connection).map_err(|error| error.of(&database))?;
        master::check(&connection, &database, &keys)?;
        digest::load_or_make(&connection, &mut keys).map_err(broken)?;
        let keys = Arc::new(keys);
        let counts = counts(&connection).map_err(broken)?;
        // An older copy counts nothing before it is up to date.
        let state = state.unwrap_or_else(|| State { loss: self.report_loss(&found, &counts), check: None });
        let started = |source| OpenError::Io { path: self.path.clone(), source };
        let count_file = CountFile::start(&self.path, &found, counts).map_err(started)?;
        let writer = Writer::new(connection, Arc::clone(&keys), limits.quota, count_file).map_err(broken)?;
        let readers = || -> Result<Vec<Connection>, OpenError> {
            (0..limits.readers.max(1)).map(|_| open_reader(&database, limits)).collect()
        };
        Ok(SqliteStore {
            writer: Workers::start("store-writer", limits.writes_queued_max, vec![writer]).map_err(started)?,
            for_engine: Workers::start("store-reader", limits.reads_queued_max, readers()?).map_err(started)?,
            for_people: Workers::start("store-search", limits.reads_queued_max, readers()?).map_err(started)?,
            keys,
            search_max: limits.search_max,
            state,
            _directory: self,
        })
    }

    /// The one connection that writes, to a database that is up to date and that these keys open.
    pub(super) fn connect_to_write(&self, keys: &Keyring, limits: &SqliteLimits) -> Result<Connection, OpenError> {
        self.refuse_if_emptied()?;
        let database = self.make_database()?;
        let mut connection = open_writer(&database, limits).map_err(|error| error.of(&database))?;
        migrate::migrate(&mut connection).map_err(|error| error.of(&database))?;
        master::check(&connection, &database, keys)?;
        Ok(connection)
    }

    /// The file, empty if it was not there.
    fn make_database(&self) -> Result<PathBuf, OpenError> {
        let database = self.database();
        // SQLite gives its other files the mode of this one.
        private_file(&database).map_err(|source| OpenError::Io { path: database.clone(), source })?;
        Ok(database)
    }

    /// What was counted before. A database that is gone is not made anew as if nothing had been in it; SQLite would even remove the
    /// log of one that is empty.
    fn refuse_if_emptied(&self) -> Result<Found, OpenError> {
        let found = CountFile::read(&self.path).unwrap_or_else(|error| {
            tracing::warn!(%error, file = count_file::FILE, "the count of commits cannot be read");
            Found::Unreadable
        });
        let evidence = evidence_of_data(&self.path, &found, self.is_new()?);
        match evidence {
            Some(evidence) => Err(OpenError::Emptied { database: self.database(), evidence }),
            None => Ok(found),
        }
    }

    /// What is known of this database before anything is written to it; `None` if it is from before commits were counted.
    fn look_at(&self, sql: &mut Connection, found: &Found, limits: &SqliteLimits) -> Result<Option<State>, OpenError> {
        let broken = |fault: Fault| self.broken(fault);
        if migrate::check(sql).map_err(|error| error.of(&self.database()))? < COUNTS_SINCE {
            return Ok(None);
        }
        let counts = counts(sql).map_err(broken)?;
        let loss = self.report_loss(found, &counts);
        match found {
            Found::Nothing | Found::Unreadable if counts != Counts::default() => tracing::warn!(
                file = count_file::FILE,
                "the count of commits is missing or damaged: whether the database has lost something since the last stop cannot be \
                 told; it is counted anew from here on"
            ),
            Found::Nothing | Found::Unreadable | Found::Record(_) => {}
        }
        let check = match found {
            Found::Record(record) if record.closed => None,
            Found::Nothing if counts == Counts::default() => None,
            Found::Nothing | Found::Unreadable | Found::Record(_) => {
                let check = quick_check::quick_check(sql, limits.check_max).map_err(|error| broken(error.into()))?;
                check.report();
                Some(check)
            }
        };
        Ok(Some(State { loss, check }))
    }

    /// What is missing from a database with these counts, which is logged too.
    fn report_loss(&self, found: &Found, counts: &Counts) -> Option<Loss> {
        let missing = count_file::missing(found, counts);
        if let Some(loss) = count_file::newly_missing(found, counts) {
            let kept = self.keep_log(counts.commits);
            tracing::error!(
                commits = loss.commits,
                events = loss.events,
                deliveries = loss.deliveries,
                attempts = loss.attempts,
                log_kept = kept,
                "data is missing: {loss}. {LOSS_ADVICE}"
            );
        } else if missing != Loss::default() {
            tracing::warn!(
                commits = missing.commits,
                events = missing.events,
                "data is missing since an earlier start: {missing}. {LOSS_ADVICE}"
            );
        }
        (missing != Loss::default()).then_some(missing)
    }

    /// Copies the log before SQLite writes over it: somebody may still find in it what is missing.
    fn keep_log(&self, commits: u64) -> Option<String> {
        let log = log_of(&self.database());
        let name = format!("{KEPT_LOG}{commits}");
        let kept = self.path.read_dir().ok()?.flatten();
        let n_kept = kept.filter(|file| file.file_name().to_string_lossy().starts_with(KEPT_LOG)).count();
        if n_kept >= LOGS_KEPT_MAX || log.metadata().is_ok_and(|file| file.len() == 0) {
            return None;
        }
        let copied = std::fs::copy(&log, self.path.join(&name));
        copied.map(|_| name).inspect_err(|error| tracing::warn!(%error, "the write-ahead log could not be copied")).ok()
    }

    pub(super) fn broken(&self, fault: Fault) -> OpenError {
        OpenError::Database { database: self.database(), source: Box::new(fault) }
    }

    fn database(&self) -> PathBuf {
        database_in(&self.path)
    }
}

pub(super) fn database_in(directory: &Path) -> PathBuf {
    directory.join(DATABASE)
}

/// The file that shows that something was stored in this directory, although its database is gone (`is_new`).
pub(super) fn evidence_of_data(directory: &Path, found: &Found, is_new: bool) -> Option<String> {
    let log = log_of(&database_in(directory));
    match found {
        Found::Record(record) if is_new && record.counts.commits > 0 => Some(count_file::FILE.to_owned()),
        // A first start that was interrupted leaves a database without tables, and a log.
        _ if !DataDir::holds_data(directory) && log.metadata().is_ok_and(|file| file.len() > 0) => {
            Some(format!("{DATABASE}-wal"))
        }
        Found::Nothing | Found::Unreadable | Found::Record(_) => None,
    }
}

fn log_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

pub(super) fn counts(sql: &Connection) -> Result<Counts, Fault> {
    Ok(Counters::read(sql)?.counts())
}

/// Only its owner may look inside. One that is there already is left as its owner has made it.
fn make_directory(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

fn lock(directory: &Path) -> Result<File, OpenError> {
    let path = directory.join(LOCK);
    let file = private_file(&path).map_err(|source| OpenError::Io { path: path.clone(), source })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { directory: directory.to_owned() }),
        Err(TryLockError::Error(source)) => Err(OpenError::Io { path, source }),
    }
}

fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    Ok(file)
}

/// Statements that each connection keeps prepared.
const STATEMENTS_KEPT: usize = 128;
/// Nobody else writes, but a checkpoint at the end of a reader may be in the way.
pub(super) const BUSY_FOR: Duration = Duration::from_secs(5);
/// What is left of the write-ahead log's file after it was needed for something large.
const LOG_KEPT_BYTES: i64 = 64 << 20;

fn open_writer(database: &Path, limits: &SqliteLimits) -> Result<Connection, MigrateError> {
    let connection = connect(database, limits.writer_cache_kib)?;
    migrate::check(&connection)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "wal_autocheckpoint", limits.checkpoint_pages)?;
    connection.pragma_update(None, "journal_size_limit", LOG_KEPT_BYTES)?;
    Ok(connection)
}

fn open_reader(database: &Path, limits: &SqliteLimits) -> Result<Connection, OpenError> {
    let ready = || -> Result<Connection, Fault> {
        let connection = connect(database, limits.reader_cache_kib)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    };
    ready().map_err(|fault| OpenError::Database { database: database.to_owned(), source: Box::new(fault) })
}

/// For whoever only looks. The write-ahead log stays as it is, also if this is the last connection that is closed.
pub(super) fn connect_to_look(database: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags)?;
    connection.busy_timeout(BUSY_FOR)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

fn connect(database: &Path, cache_kib: u32) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags)?;
    connection.busy_timeout(BUSY_FOR)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    connection.pragma_update(None, "cache_size", -i64::from(cache_kib))?;
    connection.pragma_update(None, "temp_store", "memory")?;
    type_match::register(&connection)?;
    Ok(connection)
}
