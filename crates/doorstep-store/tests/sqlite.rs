//! SQLite keeps the promises of every store, in real files.

use doorstep_core::store::Store;
use doorstep_store::conformance::Subject;
use doorstep_store::seal::{Keyring, MasterKey};
use doorstep_store::sqlite::{SqliteLimits, SqliteStore};
use tempfile::TempDir;

struct Fresh {
    // Closed before its directory is removed.
    store: Option<SqliteStore>,
    directory: TempDir,
}

fn fresh() -> Fresh {
    let directory = tempfile::tempdir().expect("a directory");
    let mut fresh = Fresh { store: None, directory };
    fresh.restart();
    fresh
}

impl Subject for Fresh {
    fn store(&self) -> &dyn Store {
        self.store.as_ref().expect("it is open")
    }

    fn restart(&mut self) {
        self.store = None;
        let keys = Keyring::new(MasterKey::new(&[7; 32]));
        self.store = Some(SqliteStore::open(self.directory.path(), keys, &SqliteLimits::default()).expect("it opens"));
    }
}

doorstep_store::store_conforms!(fresh);
