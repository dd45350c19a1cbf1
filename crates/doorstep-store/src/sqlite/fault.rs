//! What SQLite says, in the words of the seam.

use doorstep_core::store::StoreError;
use rusqlite::ErrorCode;
use thiserror::Error;

/// What can go wrong while a verb runs. Whatever is not SQLite's own trouble is something stored that cannot be read.
#[derive(Debug, Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error("{what} cannot be read")]
    Unreadable { what: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{what} is missing")]
    Missing { what: &'static str },
}

impl Fault {
    pub(super) fn unreadable(
        what: &'static str,
    ) -> impl FnOnce(Box<dyn std::error::Error + Send + Sync>) -> Self + Copy {
        move |source| Self::Unreadable { what, source }
    }
}

/// Whether waiting may help: the disk is full or away, or somebody else has the file.
fn may_pass(error: &rusqlite::Error) -> bool {
    let Some(code) = error.sqlite_error_code() else { return false };
    matches!(
        code,
        ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::OutOfMemory
            | ErrorCode::CannotOpen
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::OperationAborted
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::SchemaChanged
    )
}

pub(super) fn told(fault: Fault) -> StoreError {
    match &fault {
        Fault::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            StoreError::TookTooLong
        }
        Fault::Sqlite(error) if may_pass(error) => StoreError::Unavailable(Box::new(fault)),
        Fault::Sqlite(_) | Fault::Unreadable { .. } | Fault::Missing { .. } => StoreError::Corrupt(Box::new(fault)),
    }
}
