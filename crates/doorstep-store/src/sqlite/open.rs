//! Taking a data directory into possession.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use doorstep_core::quota::Quota;
use rusqlite::{Connection, OpenFlags};
use thiserror::Error;

use super::SqliteStore;
use super::batch::Writer;
use super::fault::Fault;
use super::master;
use super::migrate::{self, MigrateError};
use super::thread::Workers;
use super::type_match;
use crate::seal::{KeyId, Keyring};

const DATABASE: &str = "doorstep.db";
const LOCK: &str = "doorstep.lock";

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
    #[error("cannot use {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot open {}", database.display())]
    Database { database: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
}

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

    /// The master keys without which what is in here cannot be opened; none if nothing is.
    pub fn master_keys(&self) -> Result<Vec<KeyId>, OpenError> {
        let database = self.database();
        if !database.exists() {
            return Ok(Vec::new());
        }
        let read = || -> Result<Vec<KeyId>, Fault> {
            let sql = connect(&database, SqliteLimits::default().reader_cache_kib)?;
            if master::knows_master_keys(&sql)? { master::in_use(&sql) } else { Ok(Vec::new()) }
        };
        read().map_err(|fault| self.broken(fault))
    }

    /// Opens the database in it; makes it, or brings it up to date, where needed.
    pub fn open(self, keys: Keyring, limits: &SqliteLimits) -> Result<SqliteStore, OpenError> {
        let database = self.database();
        let keys = Arc::new(keys);
        let connection = self.connect_to_write(&keys, limits)?;
        let writer = Writer::new(connection, Arc::clone(&keys), limits.quota).map_err(|fault| self.broken(fault))?;
        let readers = || -> Result<Vec<Connection>, OpenError> {
            (0..limits.readers.max(1)).map(|_| open_reader(&database, limits)).collect()
        };
        let started = |source| OpenError::Io { path: self.path.clone(), source };
        Ok(SqliteStore {
            writer: Workers::start("store-writer", limits.writes_queued_max, vec![writer]).map_err(started)?,
            for_engine: Workers::start("store-reader", limits.reads_queued_max, readers()?).map_err(started)?,
            for_people: Workers::start("store-search", limits.reads_queued_max, readers()?).map_err(started)?,
            keys,
            search_max: limits.search_max,
            _directory: self,
        })
    }

    /// The one connection that writes, to a database that is up to date and that these keys open.
    pub(super) fn connect_to_write(&self, keys: &Keyring, limits: &SqliteLimits) -> Result<Connection, OpenError> {
        let database = self.database();
        // SQLite gives its other files the mode of this one.
        private_file(&database).map_err(|source| OpenError::Io { path: database.clone(), source })?;
        let connection = open_writer(&database, limits)?;
        master::check(&connection, &database, keys)?;
        Ok(connection)
    }

    pub(super) fn broken(&self, fault: Fault) -> OpenError {
        OpenError::Database { database: self.database(), source: Box::new(fault) }
    }

    fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }
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

fn open_writer(database: &Path, limits: &SqliteLimits) -> Result<Connection, OpenError> {
    let ready = || -> Result<Connection, MigrateError> {
        let mut connection = connect(database, limits.writer_cache_kib)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "wal_autocheckpoint", limits.checkpoint_pages)?;
        connection.pragma_update(None, "journal_size_limit", LOG_KEPT_BYTES)?;
        migrate::migrate(&mut connection)?;
        Ok(connection)
    };
    ready().map_err(|error| match error {
        MigrateError::Newer { found, known } => OpenError::Newer { database: database.to_owned(), found, known },
        MigrateError::Sqlite(error) => OpenError::Database { database: database.to_owned(), source: Box::new(error) },
    })
}

fn open_reader(database: &Path, limits: &SqliteLimits) -> Result<Connection, OpenError> {
    let ready = || -> Result<Connection, Fault> {
        let connection = connect(database, limits.reader_cache_kib)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    };
    ready().map_err(|fault| OpenError::Database { database: database.to_owned(), source: Box::new(fault) })
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
