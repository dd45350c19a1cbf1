//! What SQLite says, in the words of the seam.

use doorstep_core::id::{DestinationId, TenantId};
use doorstep_core::store::StoreError;
use rusqlite::ErrorCode;
use thiserror::Error;

/// What can go wrong while a verb runs. Whatever is not SQLite's own trouble is something stored that cannot be read.
#[derive(Debug, Error)]
pub(super) enum Fault {
    #[error("{}", said(.0))]
    Sqlite(rusqlite::Error),
    #[error("{what} cannot be read")]
    Unreadable { what: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{what} is missing")]
    Missing { what: &'static str },
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl Fault {
    pub(super) fn unreadable(
        what: &'static str,
    ) -> impl FnOnce(Box<dyn std::error::Error + Send + Sync>) -> Self + Copy {
        move |source| Self::Unreadable { what, source }
    }

    /// Whether what is stored is at fault. Otherwise SQLite is in trouble, and waiting may help.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Sqlite(error) => {
                !may_pass(error) && error.sqlite_error_code() != Some(ErrorCode::OperationInterrupted)
            }
            Self::Unreadable { .. } | Self::Missing { .. } => true,
        }
    }

    /// With its causes, for the log.
    pub(super) fn in_full(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }
}

/// A row of a destination without which the server does not start: it could not know where to send, or whether somebody has paused it.
#[derive(Clone, Copy, Debug)]
pub(super) enum DamagedRow {
    Destination,
    Gate,
    Consent,
}

impl DamagedRow {
    /// Names the destination and what to do. The row is named by its key, since nobody can tell that from the ID.
    pub(super) fn fault(self, what: &'static str, (tenant_id, id): (TenantId, DestinationId), why: String) -> Fault {
        let (from, then) = match self {
            Self::Destination => ("destinations where id", "and make the destination anew"),
            Self::Gate => ("gates where destination_id", "and pause the destination again if it was paused"),
            Self::Consent => ("consents where destination_id", "and have the receiver asked again"),
        };
        let key = id.0;
        let told = format!(
            "{id} of {tenant_id}: {why}; restore its row from a backup, or delete it (delete from {from} = x'{key:032x}') {then}"
        );
        Fault::unreadable(what)(told.into())
    }
}

/// What SQLite says, in a line. Its own form repeats the whole statement, which helps nobody who reads a log.
pub(super) fn said(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        error if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            "it is no SQLite database, or its first page is damaged".to_owned()
        }
        error if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {
            format!("the database file is damaged: {error}")
        }
        error => error.to_string(),
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
