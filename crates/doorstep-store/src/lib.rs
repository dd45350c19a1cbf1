//! What Doorstep remembers: the [`Store`](doorstep_core::store::Store) that core asks for, several times over.
//!
//! - [`memory`] is the runnable specification: the plainest code that keeps the promises. Other stores are compared with it.
//! - [`sqlite`] is the one that needs nothing else installed.
//! - [`seal`] encrypts what is secret before any of them writes it to disk.
//! - `conformance`, behind the feature of that name, says what a store promises, as tests.
//!
//! ```
//! use doorstep_store::seal::{Keyring, MasterKey};
//! use doorstep_store::sqlite::{SqliteLimits, SqliteStore};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = tempfile::tempdir()?;
//! let keys = || Keyring::new(MasterKey::new(&[7; 32])); // in earnest: 32 random bytes, kept safe
//! let store = SqliteStore::open(directory.path(), keys(), &SqliteLimits::default())?;
//! // One process owns a directory, and says so to the next.
//! assert!(SqliteStore::open(directory.path(), keys(), &SqliteLimits::default()).is_err());
//! # drop(store);
//! # Ok(())
//! # }
//! ```

pub mod seal;
pub mod memory;
pub mod sqlite;
#[cfg(feature = "conformance")]
pub mod conformance;

mod minute;
