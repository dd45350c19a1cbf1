//! What is noted a little later: refused requests, and when keys were used. Nobody waits for it, and it is bounded.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use doorstep_core::audit::{Action, AuditEntry, AuditOutcome};
use doorstep_core::store::Write;
use doorstep_core::time::Timestamp;

use super::caller::Caller;
use crate::app::App;

/// So many refused requests are noted between two writes; more are the work of a program, and tell nothing new.
const DENIALS_MAX: usize = 100;
/// What has gathered is written this often.
const WRITTEN_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Vec<AuditEntry>>);

impl Notes {
    /// Somebody who is known asked for what is not theirs to ask.
    pub(crate) fn denied(&self, caller: &Caller, now: Timestamp, resource: String) {
        let tenant_id = caller.reach.tenant_id();
        let entry = caller.entry(now, Action::RequestDenied, tenant_id, resource, AuditOutcome::Denied);
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < DENIALS_MAX {
            waiting.push(entry);
        }
    }

    fn take(&self) -> Vec<AuditEntry> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl App {
    /// Writes from time to time what has gathered, until it is dropped.
    pub async fn keep_notes(&self) {
        loop {
            tokio::time::sleep(WRITTEN_EVERY).await;
            self.write_notes().await;
        }
    }

    /// Writes what has gathered now.
    pub async fn write_notes(&self) {
        let used = self.keys.to_note();
        let mut writes: Vec<Write> = self.notes.take().into_iter().map(|entry| Write::Audit(Box::new(entry))).collect();
        if !used.is_empty() {
            writes.push(Write::UsedApiKeys(used));
        }
        if writes.is_empty() {
            return;
        }
        if let Err(fault) = self.engine.write(writes).await {
            tracing::warn!(error = %fault, "refused requests and uses of keys could not be noted");
        }
    }
}
