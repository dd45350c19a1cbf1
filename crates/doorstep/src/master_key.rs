//! The master key: given, or made in the data directory at the first start. What is stored is sealed with it.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use doorstep_store::seal::{KEY_LEN, KeyId, Keyring, MasterKey};
use doorstep_store::sqlite::DataDir;
use zeroize::Zeroizing;

use crate::private_file;

/// Where it is kept unless it is given.
pub(crate) const FILE: &str = "master.key";
/// The one to come, while it is changed.
const NEXT_FILE: &str = "master.key.next";
/// A key and a line break, and some room.
const FILE_BYTES_MAX: usize = 256;

pub(crate) type KeyBytes = Zeroizing<[u8; KEY_LEN]>;

/// What opens this directory: the given key; else the one made at an earlier start; else, if nothing is sealed yet, a new one.
pub(crate) fn keyring(given: Option<&KeyBytes>, directory: &DataDir) -> anyhow::Result<Keyring> {
    if let Some(key) = given {
        return Ok(Keyring::new(MasterKey::new(key)));
    }
    let (files, needed) = (Files::of(directory), directory.master_keys()?);
    if let Some(next) = files.read_next()?
        && needed.contains(&MasterKey::new(&next).id())
    {
        bail!(
            "the master key in {} was being changed: finish with `doorstep keys rotate-master --generate`",
            directory.path().display()
        );
    }
    match files.read_current()? {
        Some(_) if directory.is_new()? => bail!(without_data(&files.current)),
        Some(key) => Ok(Keyring::new(MasterKey::new(&key))),
        None if needed.is_empty() => {
            // The database comes first: a start that is interrupted here is not taken for one that has lost its data.
            directory.prepare()?;
            make(&files.current)
        }
        None => bail!(lost(&files.current, &needed)),
    }
}

fn make(path: &Path) -> anyhow::Result<Keyring> {
    let key = new_key()?;
    write(path, &key)?;
    let keys = Keyring::new(MasterKey::new(&key));
    tracing::info!(
        path = %path.display(), key_id = %keys.current(),
        "made a master key: keep a copy of it, apart from the backups of the data, which are of no use without it"
    );
    Ok(keys)
}

/// The key is made behind the database: where it is alone, the database has been there.
pub(crate) fn without_data(path: &Path) -> String {
    format!(
        "{} is there, but the database doorstep.db beside it is missing or empty: restore the database from a backup; or, to begin anew, move \
         the key away (keep it: backups cannot be read without it), or give it as DOORSTEP_MASTER_KEY",
        path.display()
    )
}

pub(crate) fn lost(path: &Path, needed: &[KeyId]) -> String {
    let needed: Vec<String> = needed.iter().map(KeyId::to_string).collect();
    format!(
        "{} is not there, and what is stored is sealed with it (key {}): put it back, or give it as DOORSTEP_MASTER_KEY; a new one would \
         not open anything",
        path.display(),
        needed.join(", ")
    )
}

/// The files in which a directory keeps its key, if it was not given one.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) current: PathBuf,
    pub(crate) next: PathBuf,
}

impl Files {
    pub(crate) fn of(directory: &DataDir) -> Self {
        Self { current: directory.path().join(FILE), next: directory.path().join(NEXT_FILE) }
    }

    pub(crate) fn read_current(&self) -> anyhow::Result<Option<KeyBytes>> {
        read_if_there(&self.current)
    }

    pub(crate) fn read_next(&self) -> anyhow::Result<Option<KeyBytes>> {
        read_if_there(&self.next)
    }

    /// From now on the next one is current, and the one before is gone.
    pub(crate) fn next_is_current(&self) -> anyhow::Result<()> {
        private_file::rename(&self.next, &self.current)
            .with_context(|| format!("cannot put {} in the place of {}", self.next.display(), self.current.display()))
    }
}

pub(crate) fn write(path: &Path, key: &KeyBytes) -> anyhow::Result<()> {
    let text = Zeroizing::new(STANDARD.encode(key) + "\n");
    private_file::write(path, &text).with_context(|| format!("cannot write {}", path.display()))
}

pub(crate) fn read(path: &Path) -> anyhow::Result<KeyBytes> {
    read_if_there(path)?.with_context(|| format!("{} is not there", path.display()))
}

fn read_if_there(path: &Path) -> anyhow::Result<Option<KeyBytes>> {
    let text = match std::fs::read(path) {
        Ok(bytes) => Zeroizing::new(bytes),
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(fault) => return Err(fault).with_context(|| format!("cannot read {}", path.display())),
    };
    let key = std::str::from_utf8(&text).ok().filter(|text| text.len() <= FILE_BYTES_MAX);
    let key = key.and_then(|text| from_text(text.trim_end()));
    key.map(Some).with_context(|| format!("{} does not hold a key: 32 bytes in base64", path.display()))
}

/// A key as people write it: base64.
pub(crate) fn from_text(text: &str) -> Option<KeyBytes> {
    let bytes = Zeroizing::new(STANDARD.decode(text).ok()?);
    let mut key = Zeroizing::new([0; KEY_LEN]);
    if bytes.len() != KEY_LEN {
        return None;
    }
    key.copy_from_slice(&bytes);
    Some(key)
}

pub(crate) fn new_key() -> anyhow::Result<KeyBytes> {
    let mut key = Zeroizing::new([0; KEY_LEN]);
    getrandom::fill(&mut *key).context("the machine gives no random numbers")?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use doorstep_store::sqlite::SqliteLimits;

    use super::*;

    fn open(directory: &Path, given: Option<&KeyBytes>) -> anyhow::Result<KeyId> {
        let directory = DataDir::take(directory)?;
        let keys = keyring(given, &directory)?;
        let id = keys.current();
        directory.open(keys, &SqliteLimits::default())?;
        Ok(id)
    }

    #[test]
    fn a_key_is_made_once_and_used_from_then_on() {
        let directory = tempfile::tempdir().unwrap();
        let id = open(directory.path(), None).unwrap();
        let path = directory.path().join(FILE);
        let kept = std::fs::read_to_string(&path).unwrap();
        assert_eq!(open(directory.path(), None).unwrap(), id);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), kept);
        assert_eq!(MasterKey::new(&from_text(kept.trim_end()).unwrap()).id(), id);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        let other = tempfile::tempdir().unwrap();
        assert_ne!(open(other.path(), None).unwrap(), id, "no two are alike");
    }

    #[test]
    fn a_key_whose_database_is_gone_does_not_open_an_empty_one() {
        for leave_it_empty in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            open(directory.path(), None).unwrap();
            for file in ["doorstep.db", "doorstep.db-wal", "doorstep.db-shm", "doorstep.commits"] {
                let _ = std::fs::remove_file(directory.path().join(file));
            }
            let database = directory.path().join("doorstep.db");
            if leave_it_empty {
                std::fs::write(&database, "").unwrap();
            }
            let refused = open(directory.path(), None).unwrap_err().to_string();
            assert!(refused.contains("is missing or empty: restore"), "{refused}");
            assert!(!database.exists() || database.metadata().unwrap().len() == 0, "nothing is made");
            std::fs::rename(directory.path().join(FILE), directory.path().join("old.key")).unwrap();
            open(directory.path(), None).expect("that is the way out");
        }
    }

    /// Killed anywhere in its first start, it starts the next time.
    #[test]
    fn a_first_start_that_was_interrupted_is_no_loss() {
        let directory = tempfile::tempdir().unwrap();
        let taken = DataDir::take(directory.path()).unwrap();
        taken.prepare().unwrap();
        drop(taken);
        open(directory.path(), None).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let taken = DataDir::take(directory.path()).unwrap();
        keyring(None, &taken).unwrap();
        drop(taken);
        open(directory.path(), None).unwrap();
    }

    #[test]
    fn a_given_key_is_used_and_not_written_down() {
        let directory = tempfile::tempdir().unwrap();
        let key = new_key().unwrap();
        let id = open(directory.path(), Some(&key)).unwrap();
        assert_eq!(id, MasterKey::new(&key).id());
        assert!(!directory.path().join(FILE).exists());
        let lost = open(directory.path(), None).unwrap_err().to_string();
        assert!(lost.contains("is not there") && lost.contains(&id.to_string()), "{lost}");
        assert!(!directory.path().join(FILE).exists(), "a new one would hide that the right one is missing");
        let other = open(directory.path(), Some(&new_key().unwrap())).unwrap_err().to_string();
        assert!(other.contains(&id.to_string()), "{other}");
    }

    #[test]
    fn a_broken_file_is_told_and_left_as_it_is() {
        for text in ["", "nonsense", "aHVudGVyMg==\n", &"A".repeat(100_000)] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join(FILE);
            std::fs::write(&path, text).unwrap();
            let fault = open(directory.path(), None).unwrap_err().to_string();
            assert!(fault.contains("does not hold a key") && !fault.contains("aHVudGVyMg"), "{fault}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
