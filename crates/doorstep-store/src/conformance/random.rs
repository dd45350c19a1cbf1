//! Random verbs, given to a store and to memory alike.

use std::sync::Arc;

use doorstep_core::api_key::{ApiKey, KeyHash};
use doorstep_core::attempt::Answer;
use doorstep_core::audit::{Action, Mandate};
use doorstep_core::delivery::{BehindDead, Delivery, Ordering, Settlement, Track};
use doorstep_core::destination::{Destination, Tenant};
use doorstep_core::event::{KeyDigest, NewDelivery, NewEvent};
use doorstep_core::id::{DeliveryId, DestinationId, KeyId, SessionId, TenantId};
use doorstep_core::outcome::{Fault, Outcome};
use doorstep_core::portal::PortalSession;
use doorstep_core::quota::OwnQuota;
use doorstep_core::reach::Reach;
use doorstep_core::retry::{Charge, DeadReason, Decision};
use doorstep_core::search::read_types;
use doorstep_core::store::{
    ActivityQuery, Ages, AuditFilter, ByHand, Codes, DeliveryFilter, DueQuery, EventFilter, Page, Settled, Statuses,
    Store, Write,
};
use doorstep_core::time::{Millis, Timestamp};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::samples::{
    NOW, a_consent, a_gate, api_key, attempt, audit_entry, destination, event, portal_session, registered, tenant,
};
use super::{Subject, ask};
use crate::memory::MemoryStore;

/// How many sequences are tried, and how long they are.
const CASES: u32 = 48;
const STEPS_MAX: usize = 24;

/// Gives random verbs to a store and to memory. Every answer has to be the same, and all that can be read after each.
pub fn agrees_with_memory(fresh: impl Fn() -> Box<dyn Subject>) {
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&vec(step(), 1..STEPS_MAX), |steps| {
        let mut pair =
            Pair { subject: fresh(), memory: MemoryStore::default(), seen: Vec::new(), last_id: 0, now: NOW };
        pair.take(Step::Write((0..4).map(|to| Change::Put { to, version: 1 }).collect()))?;
        for step in steps {
            pair.take(step)?;
        }
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

/// The last of the ends that a settlement may have: there was nothing to send, or it could not be read.
const VOID: u8 = 7;
const SET_ASIDE: u8 = 8;

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<Change>),
    Purge { back: u64, limit: usize },
    Restart,
}

/// A write, with numbers that stand for what is there by then.
#[derive(Clone, Debug)]
enum Change {
    Accept { name: u8, body: u8, sent_with: Option<(u8, bool)>, key: Option<u8>, to: Vec<(u8, bool)>, window: u64 },
    Settle { nth: usize, fresh: bool, end: u8, hold: bool, answer: Option<u8> },
    Revive { nth: usize, window: u64 },
    Abandon { nth: usize },
    SaveGate { to: u8 },
    Consented { to: u8, n: u32, late: bool },
    PutTenant { name: u8, version: u64, quota: Option<(u64, u64)> },
    Put { to: u8, version: u64 },
    Add { to: u8, version: u64, max: usize },
    Remove { to: u8 },
    PutKey { n: u8, expires: Option<u64> },
    RevokeKey { n: u8 },
    UsedKey { n: u8 },
    PutSession { n: u8, lasts: u64 },
    OpenSession { n: u8, code: u8 },
    EndSession { n: u8 },
    EndSessions { tenant: u8 },
    Audit { n: u8 },
    ByHand { reach: usize, n: u8, change: Box<Change> },
    PutType { name: u8, version: u64 },
    RemoveType { name: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => vec(change(), 1..6).prop_map(Step::Write),
        2 => (0u64..200, 0usize..4).prop_map(|(back, limit)| Step::Purge { back, limit }),
        1 => Just(Step::Restart),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let by_hand = (0..REACHES.len(), 0u8..4, prop_oneof![plain_change(), access_change()]);
    let by_hand = by_hand.prop_map(|(reach, n, change)| Change::ByHand { reach, n, change: Box::new(change) });
    prop_oneof![6 => plain_change(), 1 => access_change(), 2 => by_hand]
}

fn access_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (0u8..4, option::of(0u64..200)).prop_map(|(n, expires)| Change::PutKey { n, expires }),
        1 => (0u8..4).prop_map(|n| Change::RevokeKey { n }),
        1 => (0u8..4).prop_map(|n| Change::UsedKey { n }),
        4 => (0u8..4, 0u64..200).prop_map(|(n, lasts)| Change::PutSession { n, lasts }),
        3 => (0u8..4, 0u8..2).prop_map(|(n, code)| Change::OpenSession { n, code }),
        1 => (0u8..4).prop_map(|n| Change::EndSession { n }),
        1 => (0u8..2).prop_map(|tenant| Change::EndSessions { tenant }),
        1 => (0u8..4).prop_map(|n| Change::Audit { n }),
    ]
}

fn plain_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        8 => (0u8..60, 0u8..12, sent_with(), option::weighted(0.8, 0u8..2), vec((to(), prop::bool::weighted(0.9)), 0..4), 0u64..300)
            .prop_map(|(name, body, sent_with, key, to, window)| Change::Accept { name, body, sent_with, key, to, window }),
        12 => (any::<usize>(), prop::bool::weighted(0.8), 0u8..=SET_ASIDE, any::<bool>(), option::weighted(0.8, 0u8..6))
            .prop_map(|(nth, fresh, end, hold, answer)| Change::Settle { nth, fresh, end, hold, answer }),
        4 => (any::<usize>(), 0u64..300).prop_map(|(nth, window)| Change::Revive { nth, window }),
        2 => any::<usize>().prop_map(|nth| Change::Abandon { nth }),
        1 => (0u8..4).prop_map(|to| Change::SaveGate { to }),
        1 => (0u8..4, 0u32..3, prop::bool::weighted(0.2)).prop_map(|(to, n, late)| Change::Consented { to, n, late }),
        2 => (0u8..3, 0u64..4, option::of((0u64..12, 0u64..20_000)))
            .prop_map(|(name, version, quota)| Change::PutTenant { name, version, quota }),
        4 => (0u8..4, 1u64..4).prop_map(|(to, version)| Change::Put { to, version }),
        2 => (0u8..6, 1u64..3, 0usize..4).prop_map(|(to, version, max)| Change::Add { to, version, max }),
        1 => (0u8..4).prop_map(|to| Change::Remove { to }),
        1 => (0u8..2, 1u64..3).prop_map(|(name, version)| Change::PutType { name, version }),
        1 => (0u8..2).prop_map(|name| Change::RemoveType { name }),
    ]
}

/// A producer's key, few enough to meet again, and whether it names the event.
fn sent_with() -> impl Strategy<Value = Option<(u8, bool)>> {
    option::weighted(0.4, (0u8..8, prop::bool::weighted(0.3)))
}

/// Whom the reads and the people's writes are limited to.
const REACHES: [Reach; 4] =
    [Reach::All, Reach::Tenant(TenantId(0)), Reach::Tenant(TenantId(1)), Reach::Tenant(TenantId(5))];

fn owner(n: u8) -> Option<TenantId> {
    [None, Some(TenantId(0)), Some(TenantId(1))][usize::from(n % 3)]
}

/// Most go to one destination, so that they meet there.
fn to() -> impl Strategy<Value = u8> {
    prop_oneof![3 => Just(0), 1 => 0u8..4]
}

struct Pair {
    subject: Box<dyn Subject>,
    memory: MemoryStore,
    /// Deliveries as they were told of at some time.
    seen: Vec<Delivery>,
    last_id: u128,
    now: Timestamp,
}

/// Asks both, and returns the answer that they agree on.
macro_rules! both {
    ($pair:expr, $verb:ident $args:tt) => {{
        let (theirs, ours) = (ask($pair.subject.store().$verb $args), ask($pair.memory.$verb $args));
        prop_assert_eq!(&theirs, &ours, "the store and memory differ in {}", stringify!($verb));
        ours
    }};
}

impl Pair {
    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        self.now = self.now + Millis(17);
        match step {
            Step::Restart => self.subject.restart(),
            Step::Purge { back, limit } => {
                let at = self.now - Millis(back);
                // Days pass for keys while milliseconds do for the rest.
                let idle = if back % 2 == 0 { at } else { at + Millis::from_hours(24) };
                let ages = Ages {
                    delivered: at,
                    dead: at,
                    attempts: at,
                    events: at,
                    activity: at,
                    audit: at,
                    keys: at,
                    sessions: at,
                    idle,
                };
                both!(self, purge(ages, limit));
            }
            Step::Write(changes) => {
                let batch: Vec<Write> = changes.into_iter().filter_map(|change| self.write(change)).collect();
                both!(self, write(batch.clone(), self.now));
            }
        }
        self.look_around();
        self.compare()
    }

    /// Remembers every delivery as it is when it is first there, and a few as they are later.
    fn look_around(&mut self) {
        for line in
            ask(self.memory.deliveries(Reach::All, DeliveryFilter::default(), Page { before_seq: None, limit: 200 }))
        {
            let known = self.seen.iter().filter(|seen| seen.id == line.delivery.id).count();
            if known == 0 || known < 3 && line.delivery.seq.is_multiple_of(3) {
                self.seen.push(line.delivery);
            }
        }
    }

    fn nth(&self, nth: usize) -> Option<&Delivery> {
        (!self.seen.is_empty()).then(|| &self.seen[nth % self.seen.len()])
    }

    fn write(&mut self, change: Change) -> Option<Write> {
        let to_id = |to: u8| DestinationId(u128::from(to) + 1);
        Some(match change {
            Change::Accept { name, body, sent_with, key, to, window } => {
                let mut event = event(&format!("e{name}"), key.map(|k| ["a", "b"][usize::from(k)]), self.now);
                event.tenant_id = TenantId(u128::from(name % 2));
                // Most repetitions are faithful.
                event.payload = if body == 0 { "other".into() } else { "{}".into() };
                let sent_with = sent_with.map(|(n, names_it)| (KeyDigest(n.into()), names_it));
                if let Some((digest, true)) = sent_with {
                    event.id = digest.event_id();
                }
                event.event_type = ["a.b", "a.c"][usize::from(name / 2 % 2)].parse().ok()?;
                let give_up_at = self.now + Millis(window);
                let deliveries = to.into_iter().map(|(to, ordered)| {
                    self.last_id += 1;
                    NewDelivery { id: DeliveryId(self.last_id), destination_id: to_id(to), ordered, give_up_at }
                });
                Write::Accept(Box::new(NewEvent {
                    event,
                    key: sent_with.map(|(digest, _)| digest),
                    deliveries: deliveries.collect(),
                }))
            }
            Change::Settle { nth, fresh, end, hold, answer } => self.settle(nth, fresh, end, hold, answer)?,
            Change::Revive { nth, window } => {
                Write::Revive { delivery_id: self.nth(nth)?.id, give_up_at: self.now + Millis(window) }
            }
            Change::Abandon { nth } => Write::Abandon { delivery_id: self.nth(nth)?.id, note: format!("note {nth}") },
            Change::SaveGate { to } => Write::SaveGate { destination_id: to_id(to), state: Box::new(a_gate()) },
            Change::Consented { to, n, late } => {
                let mut consent = Box::new(a_consent(n));
                if late {
                    consent.url.push_str("/before");
                }
                Write::Consented { destination_id: to_id(to), consent }
            }
            Change::PutTenant { name, version, quota } => {
                let (queued_deliveries, stored_bytes) = quota.unzip();
                let quota = OwnQuota { queued_deliveries, stored_bytes };
                Write::PutTenant(Box::new(Tenant { quota, ..tenant(TenantId(name.into()), version) }))
            }
            Change::Put { to, version } => {
                let tenant_id = TenantId(u128::from(to % 2));
                Write::PutDestination(Box::new(Destination { tenant_id, ..destination(to_id(to), version) }))
            }
            Change::Add { to, version, max } => {
                let tenant_id = TenantId(u128::from(to % 2));
                let destination = Box::new(Destination { tenant_id, ..destination(to_id(to), version) });
                Write::AddDestination { destination, of_tenant_max: max }
            }
            Change::PutType { name, version } => {
                Write::PutEventType(Box::new(registered(["a.b", "a.c"][usize::from(name)], version)))
            }
            Change::RemoveType { name } => {
                Write::RemoveEventType { name: ["a.b", "a.c"][usize::from(name)].parse().ok()? }
            }
            Change::Remove { to } => Write::RemoveDestination { destination_id: to_id(to) },
            Change::PutKey { n, expires } => {
                let expires_at = expires.map(|after| self.now + Millis(after));
                Write::PutApiKey(Box::new(ApiKey { expires_at, ..api_key(KeyId(n.into()), owner(n)) }))
            }
            Change::RevokeKey { n } => Write::RevokeApiKey { key_id: KeyId(n.into()) },
            Change::UsedKey { n } => Write::UsedApiKeys(vec![(KeyId(n.into()), self.now), (KeyId(9), self.now)]),
            Change::PutSession { n, lasts } => {
                let expires_at = self.now + Millis(lasts);
                let session = portal_session(SessionId(n.into()), TenantId(u128::from(n % 2)), self.now);
                Write::PutPortalSession(Box::new(PortalSession { expires_at, ..session }))
            }
            Change::OpenSession { n, code } => {
                let code = KeyHash::of(["code", "other"][usize::from(code)]);
                Write::OpenPortalSession { session_id: SessionId(n.into()), code, token: KeyHash::of("token") }
            }
            Change::EndSession { n } => Write::EndPortalSession { session_id: SessionId(n.into()) },
            Change::EndSessions { tenant } => Write::EndPortalSessions { tenant_id: TenantId(tenant.into()) },
            Change::Audit { n } => Write::Audit(Box::new(audit_entry(n, owner(n), self.now))),
            Change::ByHand { reach, n, change } => {
                let mandate = Mandate { reach: REACHES[reach], entry: audit_entry(n, owner(n), self.now) };
                Write::ByHand(Box::new(ByHand { mandate, change: self.write(*change)? }))
            }
        })
    }

    /// Settles a delivery as it is, or as it was once.
    fn settle(&self, nth: usize, fresh: bool, end: u8, hold: bool, answer: Option<u8>) -> Option<Write> {
        let mut delivery = self.nth(nth)?.clone();
        if fresh && let Some(history) = ask(self.memory.delivery(Reach::All, delivery.id)) {
            delivery = history.summary.delivery;
        }
        let now = self.now;
        let (decision, outcome) = match end {
            0 | 1 => (Decision::Delivered, Outcome::Accepted { quota: None }),
            2 => (Decision::RetryAt(now + Millis(40)), Outcome::TimedOut),
            3 => (Decision::Requeue, Outcome::Throttled { wait: None }),
            4 => (Decision::Dead(DeadReason::Exhausted), Outcome::Ambiguous { status: 404, wait: None }),
            5 => (Decision::Dead(DeadReason::Rejected), Outcome::Gone),
            _ => (Decision::Dead(DeadReason::Expired), Outcome::Unreachable),
        };
        let outcome = answer.map(|_| outcome);
        if let Some(outcome) = &outcome {
            delivery = delivery.after(outcome, decision, Charge::Attempt, now);
        }
        let answer = answer.map(|answer| match answer {
            0 => Answer::Fault(Fault::ALL[nth % Fault::ALL.len()]),
            n => Answer::Status(200 + u16::from(n)),
        });
        let attempt = answer.map(|answer| attempt(delivery.requests, answer, now));
        let ordering = Ordering::ByKey { behind_dead: if hold { BehindDead::Hold } else { BehindDead::Skip } };
        let settlement = match end {
            VOID if attempt.is_none() => Settlement::void(delivery, ordering, now),
            SET_ASIDE if attempt.is_none() => Settlement::set_aside(delivery, ordering, now),
            _ => Settlement::new(delivery, outcome, decision, ordering, now),
        };
        Some(Write::Settle(Arc::new(Settled { settlement, attempt })))
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        let all = || (0..5u128).map(DestinationId);
        let after = self.seen.last().map(Delivery::place);
        for after in [None, after] {
            let query = |destination_id, track| DueQuery { destination_id, track, after, limit: 3 };
            let queries: Vec<DueQuery> = all().flat_map(|id| Track::ALL.map(|track| query(id, track))).collect();
            both!(self, due(queries.clone()));
        }
        both!(self, overdue(self.now, 5));
        both!(self, next_give_up_at());
        both!(self, events((0..20).collect()));
        both!(self, tenants(None, 9));
        both!(self, event_types(None, 9));
        both!(self, destinations(Some(DestinationId(1)), 9));
        both!(self, destinations(None, 2));
        let (from, until) = (self.now - Millis(100_000), self.now + Millis(1));
        for reach in REACHES {
            both!(self, backlogs(reach, all().collect()));
            both!(self, usage(reach, TenantId(0)));
            both!(self, usage(reach, TenantId(1)));
            both!(self, activity(reach, ActivityQuery { destination_id: None, from, until, limit: 9 }));
            both!(
                self,
                activity(reach, ActivityQuery { destination_id: Some(DestinationId(2)), from, until, limit: 1 })
            );
            both!(self, api_keys(reach, None, 9));
            both!(self, api_keys(reach, Some(KeyId(1)), 1));
            both!(self, portal_sessions(reach, None, 9));
            both!(self, portal_sessions(reach, Some(SessionId(1)), 1));
            both!(self, event(reach, None, event("e2", None, self.now).id));
            both!(self, event(reach, Some(TenantId(0)), event("e2", None, self.now).id));
        }
        for id in self.seen.iter().rev().map(|delivery| delivery.id).take(6).collect::<Vec<_>>() {
            for reach in REACHES {
                both!(self, delivery(reach, id));
            }
        }
        self.compare_lists()
    }

    fn compare_lists(&self) -> Result<(), TestCaseError> {
        for tenant_id in [None, Some(TenantId(1))] {
            for types in ["a.b", "*.c,x", "a.*"] {
                let filter = EventFilter { tenant_id, types: read_types(types).ok(), ..EventFilter::default() };
                both!(self, event_list(Reach::All, filter.clone(), Page { before_seq: None, limit: 200 }));
                both!(
                    self,
                    event_list(Reach::Tenant(TenantId(1)), filter.clone(), Page { before_seq: Some(3), limit: 2 })
                );
            }
        }
        let of_a_key = EventFilter { ordering_key: Some("a".into()), ..EventFilter::default() };
        both!(self, event_list(Reach::All, of_a_key.clone(), Page { before_seq: None, limit: 200 }));
        let any = DeliveryFilter::default;
        let filters = [
            any(),
            DeliveryFilter { statuses: Statuses::QUEUED, ..any() },
            DeliveryFilter { statuses: Statuses::RETRY_SCHEDULED, destination_id: Some(DestinationId(1)), ..any() },
            DeliveryFilter { statuses: Statuses::DELIVERED, tenant_id: Some(TenantId(1)), ..any() },
            DeliveryFilter { statuses: Statuses::DEAD, types: read_types("a.b").ok(), ..any() },
            DeliveryFilter { types: read_types("x.y,*.c").ok(), ..any() },
            DeliveryFilter { event_id: "e2".parse().ok(), ..any() },
            DeliveryFilter { event_id: "e3".parse().ok(), tenant_id: Some(TenantId(1)), ..any() },
            DeliveryFilter { event_id: "e1".parse().ok(), destination_id: Some(DestinationId(1)), ..any() },
            DeliveryFilter { statuses: Statuses::RETRY_SCHEDULED.or(Statuses::DEAD), ..any() },
            DeliveryFilter { codes: Some(Codes { from: 202, to: 203 }), ..any() },
            DeliveryFilter { reason: Some(DeadReason::Abandoned), ..any() },
            DeliveryFilter { codes: Some(Codes::one(201)), destination_id: Some(DestinationId(2)), ..any() },
            DeliveryFilter {
                created_after: Some(self.now - Millis(100)),
                created_before: Some(self.now - Millis(17)),
                ..any()
            },
        ];
        for filter in filters {
            for before_seq in [None, Some(6)] {
                for reach in REACHES {
                    both!(self, deliveries(reach, filter.clone(), Page { before_seq, limit: 5 }));
                }
            }
        }
        self.compare_audit()
    }

    fn compare_audit(&self) -> Result<(), TestCaseError> {
        let any = AuditFilter::default;
        let filters = [
            any(),
            AuditFilter { tenant_id: Some(TenantId(1)), ..any() },
            AuditFilter { actor: Some("bootstrap".to_owned()), action: Some(Action::KeyCreate), ..any() },
            AuditFilter { resource: Some("thing 1".to_owned()), after: Some(self.now - Millis(50)), ..any() },
            AuditFilter { before: Some(self.now - Millis(30)), ..any() },
        ];
        for filter in filters {
            for reach in REACHES {
                both!(self, audit(reach, filter.clone(), Page { before_seq: None, limit: 9 }));
                both!(self, audit(reach, filter.clone(), Page { before_seq: Some(3), limit: 1 }));
            }
        }
        Ok(())
    }
}
