//! What is noted a little later: refused requests, and when keys were used. Nobody waits for it, and it is bounded.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use doorstep_core::audit::{Action, AuditEntry, AuditOutcome};
use doorstep_core::store::Write;
use doorstep_core::time::Timestamp;

use super::caller::Caller;
use crate::app::App;

/// So many refused requests of one actor are noted between two writes; more are the work of a program, and tell nothing new.
const DENIALS_PER_ACTOR_MAX: usize = 20;
/// And of all together.
const DENIALS_MAX: usize = 1_000;
/// What has gathered is written this often.
const WRITTEN_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Denials>);

#[derive(Debug, Default)]
struct Denials {
    entries: Vec<AuditEntry>,
    /// By the actor's name: whoever is noisy does not hide the others.
    of_actor: HashMap<String, usize>,
    left_out: usize,
}

impl Notes {
    /// Somebody who is known asked for what is not theirs to ask.
    pub(crate) fn denied(&self, caller: &Caller, now: Timestamp, resource: String) {
        let tenant_id = caller.reach.tenant_id();
        let entry = caller.entry(now, Action::RequestDenied, tenant_id, resource, AuditOutcome::Denied);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(entry);
    }

    fn take(&self) -> Denials {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Denials {
    fn add(&mut self, entry: AuditEntry) {
        let name = entry.actor.name();
        let n = self.of_actor.get(&name).copied().unwrap_or(0);
        if self.entries.len() >= DENIALS_MAX || n >= DENIALS_PER_ACTOR_MAX {
            self.left_out += 1;
            return;
        }
        self.of_actor.insert(name, n + 1);
        self.entries.push(entry);
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
        let Denials { entries, left_out, .. } = self.notes.take();
        if left_out > 0 {
            tracing::warn!(left_out, "more requests were refused than are noted in the audit log");
        }
        self.strangers.tell_of_the_rest();
        let mut writes: Vec<Write> = entries.into_iter().map(|entry| Write::Audit(Box::new(entry))).collect();
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

#[cfg(test)]
mod tests {
    use doorstep_core::audit::Actor;
    use doorstep_core::id::KeyId;
    use serde_json::Map;

    use super::*;

    fn entry(n: u128) -> AuditEntry {
        AuditEntry {
            at: Timestamp(0),
            actor: Actor::Key { id: KeyId(n), name: "k".to_owned() },
            from: None,
            tenant_id: None,
            action: Action::RequestDenied,
            resource: String::new(),
            outcome: AuditOutcome::Denied,
            changes: Map::new(),
        }
    }

    #[test]
    fn a_noisy_actor_does_not_hide_the_others_and_all_together_are_bounded() {
        let mut denials = Denials::default();
        (0..DENIALS_MAX * 2).for_each(|_| denials.add(entry(1)));
        denials.add(entry(2));
        let kept = |denials: &Denials| (denials.entries.len(), denials.left_out);
        let n = DENIALS_PER_ACTOR_MAX + 1;
        assert_eq!(kept(&denials), (n, DENIALS_MAX * 2 - DENIALS_PER_ACTOR_MAX));
        (0..DENIALS_MAX * 2).for_each(|actor| denials.add(entry(actor as u128 + 3)));
        assert_eq!(denials.entries.len(), DENIALS_MAX);
        assert!(denials.of_actor.len() <= DENIALS_MAX, "what is remembered of actors is bounded too");
    }
}
