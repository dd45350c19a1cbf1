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
    seals_payloads: bool,
}

fn fresh() -> Fresh {
    fresh_with(false)
}

fn fresh_with(seals_payloads: bool) -> Fresh {
    let directory = tempfile::tempdir().expect("a directory");
    let mut fresh = Fresh { store: None, directory, seals_payloads };
    fresh.restart();
    fresh
}

impl Subject for Fresh {
    fn store(&self) -> &dyn Store {
        self.store.as_ref().expect("it is open")
    }

    fn restart(&mut self) {
        self.store = None;
        let keys = Keyring::new(MasterKey::new(&[7; 32])).sealing_payloads(self.seals_payloads);
        self.store = Some(SqliteStore::open(self.directory.path(), keys, &SqliteLimits::default()).expect("it opens"));
    }

    fn damage(&mut self, event_seq: u64) {
        let sql = rusqlite::Connection::open(self.directory.path().join("doorstep.db")).expect("it opens");
        let changed = "update events set payload = zeroblob(length(payload)) where seq = ?1";
        assert_eq!(sql.execute(changed, [event_seq.cast_signed()]).expect("it can be changed"), 1);
    }
}

doorstep_store::store_conforms!(fresh);

/// The same with encrypted payloads.
mod sealed {
    use super::{Fresh, fresh_with};

    fn fresh() -> Fresh {
        fresh_with(true)
    }

    doorstep_store::store_conforms!(fresh);

    #[test]
    fn erased_payloads_are_gone_and_what_comes_later_is_not() {
        doorstep_store::conformance::cases::erased_payloads_are_gone_and_what_comes_later_is_not(&mut fresh());
    }

    #[test]
    fn what_was_captured_of_attempts_goes_with_the_payload() {
        doorstep_store::conformance::cases::what_was_captured_of_attempts_goes_with_the_payload(&mut fresh());
    }
}
