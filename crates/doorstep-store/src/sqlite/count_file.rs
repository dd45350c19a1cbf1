//! What was committed, counted in a file beside the database.
//!
//! SQLite takes a write-ahead log that was cut or damaged for one that ends there, and says nothing. This file knows better: it is
//! written after each commit and before the commit is answered, so a database that is behind it has lost something. It is not synced
//! each time, since that would cost as much as the commit: the system writes it within half a minute, and a process that is killed
//! leaves it exact. Being late is harmless: it then says "at least".

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
#[cfg(not(unix))]
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

pub(super) const FILE: &str = "doorstep.commits";
const MAGIC: &[u8; 8] = b"DSTEPCM1";
/// The magic, nine numbers, and a checksum over them.
const NUMBERS: usize = 9;
const AT_CHECKSUM: usize = MAGIC.len() + NUMBERS * 8;
const LEN: usize = AT_CHECKSUM + 8;

/// The last numbers given out, and how many transactions there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) commits: u64,
    pub(super) events: u64,
    pub(super) deliveries: u64,
    pub(super) attempts: u64,
}

/// What is missing from a database: at least so much was committed, and is not there any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Transactions, of whatever kind.
    pub commits: u64,
    /// Events that producers were told are safe.
    pub events: u64,
    pub deliveries: u64,
    /// Results of requests: their deliveries may be sent again.
    pub attempts: u64,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commits, events, deliveries, attempts } = self;
        write!(
            f,
            "at least {commits} commits are missing, with {events} acknowledged events, {deliveries} deliveries and the results of \
             {attempts} requests"
        )
    }
}

impl Loss {
    fn between(recorded: &Counts, found: &Counts) -> Option<Self> {
        let loss = Self {
            commits: recorded.commits.saturating_sub(found.commits),
            events: recorded.events.saturating_sub(found.events),
            deliveries: recorded.deliveries.saturating_sub(found.deliveries),
            attempts: recorded.attempts.saturating_sub(found.attempts),
        };
        (loss != Self::default()).then_some(loss)
    }

    fn plus(self, other: Self) -> Self {
        Self {
            commits: self.commits.saturating_add(other.commits),
            events: self.events.saturating_add(other.events),
            deliveries: self.deliveries.saturating_add(other.deliveries),
            attempts: self.attempts.saturating_add(other.attempts),
        }
    }
}

/// All that the file says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) counts: Counts,
    /// The last process closed the database in good order.
    pub(super) closed: bool,
    /// What was found missing at earlier starts, until somebody removes the file.
    pub(super) lost_before: Loss,
}

/// What was found in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// There was none: a new database, one of an earlier version, or somebody removed it.
    Nothing,
    /// It is damaged, so nothing can be compared.
    Unreadable,
    Record(Record),
}

#[derive(Debug)]
pub(super) struct CountFile {
    file: File,
    record: Record,
    /// That it could not be written is said once.
    said: bool,
}

impl CountFile {
    /// What the file in this directory says. Nothing is changed.
    pub(super) fn read(directory: &Path) -> io::Result<Found> {
        let mut bytes = Vec::new();
        match File::open(directory.join(FILE)) {
            Ok(file) => file.take(LEN as u64 + 1).read_to_end(&mut bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(error) => return Err(error),
        };
        Ok(match Record::from_bytes(&bytes) {
            _ if bytes.is_empty() => Found::Nothing,
            Some(record) => Found::Record(record),
            None => Found::Unreadable,
        })
    }

    /// Counts on from what is in the database now. `found` and what is missing are remembered.
    pub(super) fn start(directory: &Path, found: &Found, counts: Counts) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(directory.join(FILE))?;
        let lost_before = missing(found, &counts);
        let mut started = Self { file, record: Record { counts, closed: false, lost_before }, said: false };
        started.put()?;
        started.file.sync_all()?;
        Ok(started)
    }

    /// After each commit. A count that cannot be written is no reason to fail what is on disk already.
    pub(super) fn committed(&mut self, counts: Counts) {
        self.record.counts = counts;
        if let Err(error) = self.put()
            && !std::mem::replace(&mut self.said, true)
        {
            tracing::warn!(%error, file = FILE, "the count of commits cannot be written: what a damaged disk loses may go unnoticed");
        }
    }

    /// The database is about to be closed in good order.
    pub(super) fn close(&mut self) {
        self.record.closed = true;
        if let Err(error) = self.put().and_then(|()| self.file.sync_all()) {
            tracing::warn!(%error, file = FILE, "the count of commits cannot be written: the next start takes this for an unclean stop");
        }
    }

    fn put(&mut self) -> io::Result<()> {
        let bytes = self.record.bytes();
        #[cfg(unix)]
        return std::os::unix::fs::FileExt::write_all_at(&self.file, &bytes, 0);
        #[cfg(not(unix))]
        {
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(&bytes)
        }
    }
}

/// What is missing from a database with these counts: now, and what was found missing before.
pub(super) fn missing(found: &Found, counts: &Counts) -> Loss {
    match found {
        Found::Nothing | Found::Unreadable => Loss::default(),
        Found::Record(record) => record.lost_before.plus(Loss::between(&record.counts, counts).unwrap_or_default()),
    }
}

/// What is missing now, and was there when the last process counted.
pub(super) fn newly_missing(found: &Found, counts: &Counts) -> Option<Loss> {
    match found {
        Found::Nothing | Found::Unreadable => None,
        Found::Record(record) => Loss::between(&record.counts, counts),
    }
}

impl Record {
    fn numbers(&self) -> [u64; NUMBERS] {
        let Self { counts, closed, lost_before: lost } = *self;
        let Counts { commits, events, deliveries, attempts } = counts;
        let closed = u64::from(closed);
        [commits, events, deliveries, attempts, closed, lost.commits, lost.events, lost.deliveries, lost.attempts]
    }

    fn bytes(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        for (part, number) in bytes[MAGIC.len()..AT_CHECKSUM].chunks_exact_mut(8).zip(self.numbers()) {
            part.copy_from_slice(&number.to_le_bytes());
        }
        let sum = checksum(&bytes[..AT_CHECKSUM]);
        bytes[AT_CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != LEN || !bytes.starts_with(MAGIC) {
            return None;
        }
        let (body, sum) = bytes.split_at(AT_CHECKSUM);
        if checksum(body).to_le_bytes() != sum {
            return None;
        }
        let mut numbers = [0; NUMBERS];
        for (number, part) in numbers.iter_mut().zip(body[MAGIC.len()..].chunks_exact(8)) {
            *number = u64::from_le_bytes(part.try_into().ok()?);
        }
        let [commits, events, deliveries, attempts, closed, lost @ ..] = numbers;
        let counts = Counts { commits, events, deliveries, attempts };
        let [commits, events, deliveries, attempts] = lost;
        let lost_before = Loss { commits, events, deliveries, attempts };
        Some(Self { counts, closed: closed == 1, lost_before })
    }
}

/// FNV-1a: against a torn or damaged file, not against people.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: Counts = Counts { commits: 9, events: 600, deliveries: 1_200, attempts: 7 };

    #[test]
    fn what_is_missing_is_known_and_remembered() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(CountFile::read(directory.path()).unwrap(), Found::Nothing);
        let mut file = CountFile::start(directory.path(), &Found::Nothing, Counts::default()).unwrap();
        file.committed(COUNTS);
        drop(file);
        let found = CountFile::read(directory.path()).unwrap();
        let Found::Record(record) = found else { panic!("{found:?}") };
        assert_eq!((record.counts, record.closed), (COUNTS, false), "a process that was killed leaves it exact");
        assert_eq!(newly_missing(&found, &COUNTS), None);
        let ahead = Counts { commits: 10, ..COUNTS };
        assert_eq!(newly_missing(&found, &ahead), None, "a late count is no loss");

        let behind = Counts { commits: 5, events: 300, ..COUNTS };
        let loss = Loss { commits: 4, events: 300, ..Loss::default() };
        assert_eq!(newly_missing(&found, &behind), Some(loss));
        let mut file = CountFile::start(directory.path(), &found, behind).unwrap();
        file.close();
        let found = CountFile::read(directory.path()).unwrap();
        assert_eq!(newly_missing(&found, &behind), None, "it is said to be new once");
        assert_eq!(missing(&found, &behind), loss, "but it is not forgotten");
        let Found::Record(record) = found else { panic!("{found:?}") };
        assert!(record.closed);
    }

    #[test]
    fn a_damaged_file_is_no_evidence() {
        let directory = tempfile::tempdir().unwrap();
        CountFile::start(directory.path(), &Found::Nothing, COUNTS).unwrap();
        let path = directory.path().join(FILE);
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(whole.len(), LEN);
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            std::fs::write(&path, &changed).unwrap();
            assert_eq!(CountFile::read(directory.path()).unwrap(), Found::Unreadable, "byte {at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            let cut = CountFile::read(directory.path()).unwrap();
            assert_eq!(cut, if at == 0 { Found::Nothing } else { Found::Unreadable }, "{at} bytes");
        }
        assert_eq!(missing(&Found::Unreadable, &Counts::default()), Loss::default());
    }
}
