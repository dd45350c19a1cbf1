//! The first administrator's key: given, or made at the first start and printed once.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use doorstep_server::auth::KeyHash;

use crate::private_file;

/// What is kept of a key that was made here: its hash.
const FILE: &str = "admin-key.sha256";
/// Bytes of chance in a key.
const KEY_LEN: usize = 32;

#[derive(Debug)]
pub(crate) struct AdminKey {
    pub(crate) hash: KeyHash,
    /// Set when it was made just now.
    pub(crate) made: Option<Made>,
}

/// A key that was made just now. It is to be shown first and its hash kept then: if the start fails before, or nobody saw it, the next start makes
/// another one, and nobody is locked out.
pub(crate) struct Made {
    pub(crate) key: String,
    path: PathBuf,
}

impl Made {
    /// From now on it is the key.
    pub(crate) fn keep(&self) -> anyhow::Result<()> {
        let text = format!("{}\n", KeyHash::of(&self.key));
        private_file::write(&self.path, &text).with_context(|| {
            let path = self.path.display();
            format!(
                "cannot write {path}, so the admin key that was printed is not valid; the next start prints another one"
            )
        })
    }
}

/// Without the key.
impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Made").field("path", &self.path).finish_non_exhaustive()
    }
}

impl AdminKey {
    /// The given key; else the one made at an earlier start; else a new one.
    pub(crate) fn of(given: Option<&str>, data_dir: &Path) -> anyhow::Result<Self> {
        if let Some(key) = given {
            return Ok(Self { hash: KeyHash::of(key), made: None });
        }
        let path = data_dir.join(FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let hash = text.trim().parse().ok().with_context(|| unreadable(&path))?;
                Ok(Self { hash, made: None })
            }
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => Self::make(path),
            Err(fault) => Err(fault).with_context(|| unreadable(&path)),
        }
    }

    fn make(path: PathBuf) -> anyhow::Result<Self> {
        let key = new_key()?;
        Ok(Self { hash: KeyHash::of(&key), made: Some(Made { key, path }) })
    }
}

/// A key that nobody can guess.
pub(crate) fn new_key() -> anyhow::Result<String> {
    let mut bytes = [0; KEY_LEN];
    getrandom::fill(&mut bytes).context("the machine gives no random numbers")?;
    Ok(format!("dsk_{}", URL_SAFE_NO_PAD.encode(bytes)))
}

fn unreadable(path: &Path) -> String {
    format!("{} cannot be read; delete it to have a new key made, or set DOORSTEP_ADMIN_KEY", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_recognised_afterwards() {
        let directory = tempfile::tempdir().unwrap();
        let first = AdminKey::of(None, directory.path()).unwrap();
        let made = first.made.expect("it is the first start");
        assert!(made.key.len() > 40 && made.key.starts_with("dsk_"));
        let again = AdminKey::of(None, directory.path()).unwrap().made.expect("the first one was not kept yet");
        assert_ne!(again.key, made.key);
        made.keep().unwrap();
        let made = made.key;
        let second = AdminKey::of(None, directory.path()).unwrap();
        assert!(second.made.is_none());
        assert_eq!(second.hash.to_string(), KeyHash::of(&made).to_string());
        let kept = std::fs::read_to_string(directory.path().join(FILE)).unwrap();
        assert!(!kept.contains(&made), "the key itself is not kept");
    }

    #[test]
    fn a_given_key_is_taken_and_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let given = AdminKey::of(Some("given"), directory.path()).unwrap();
        assert!(given.made.is_none() && given.hash.to_string() == KeyHash::of("given").to_string());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_broken_file_is_said_to_be_so() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE), "nonsense").unwrap();
        let fault = AdminKey::of(None, directory.path()).unwrap_err().to_string();
        assert!(fault.contains("delete it"), "{fault}");
    }
}
