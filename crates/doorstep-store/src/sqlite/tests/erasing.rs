//! Keys that were erased, and the log that may still hold them.

use std::path::Path;
use std::sync::Arc;

use doorstep_core::audit::Mandate;
use doorstep_core::delivery::BehindDead;
use doorstep_core::event::{Event, NewEvent};
use doorstep_core::id::{DeliveryId, TenantId};
use doorstep_core::reach::Reach;
use doorstep_core::store::{Ages, ByHand, Store, Write, Written};
use doorstep_core::time::Timestamp;

use super::super::{SqliteLimits, SqliteStore};
use super::{database, holds, keys, on_disk, one};
use crate::conformance::ask;
use crate::conformance::samples::{DST, NOW, RETRY, TENANT, accept, audit_entry, event, new_delivery, put, settle};

/// As the API asks for it: with somebody's leave, and a line in the audit log.
fn erase_by_hand() -> Write {
    let change = Write::ErasePayloads { tenant_id: TENANT };
    let entry = audit_entry(1, Some(TENANT), NOW);
    Write::ByHand(Box::new(ByHand { mandate: Mandate { reach: Reach::All, entry }, change }))
}

/// An open store that seals payloads and has taken in one, and the sealed key of its tenant.
fn with_a_sealed_payload(directory: &Path) -> (SqliteStore, Vec<u8>) {
    let store = SqliteStore::open(directory, keys(1).sealing_payloads(true), &SqliteLimits::default()).unwrap();
    ask(store.write(vec![put(DST), accept(1, None)], NOW));
    let sealed: Vec<u8> =
        database(directory).query_row("select sealed from tenant_keys", [], |row| row.get(0)).unwrap();
    assert!(holds(&on_disk(directory), &sealed));
    (store, sealed)
}

#[test]
fn no_trace_of_a_key_stays_that_a_person_erased() {
    let directory = tempfile::tempdir().unwrap();
    let (store, sealed) = with_a_sealed_payload(directory.path());
    assert_eq!(one(&store, erase_by_hand()).unwrap(), Written::Saved);
    assert!(!holds(&on_disk(directory.path()), &sealed), "neither in unused pages nor in the log");
}

/// Headers may hold a token, and receivers repeat what they were sent.
#[test]
fn headers_of_events_and_captured_answers_are_on_disk_only_sealed() {
    for seals in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let open = |n, seals: bool| {
            SqliteStore::open(directory.path(), keys(n).sealing_payloads(seals), &SqliteLimits::default()).unwrap()
        };
        let store = open(1, seals);
        let event = Event { headers: vec![("authorization".into(), "hush-event".into())], ..event("e", None, NOW) };
        let new = NewEvent { event: event.clone(), key: None, deliveries: vec![new_delivery(1, DST)] };
        ask(store.write(vec![put(DST), Write::Accept(Box::new(new))], NOW));
        let Write::Settle(settled) = settle(
            &ask(store.delivery(Reach::All, DeliveryId(1))).unwrap().summary.delivery,
            RETRY,
            BehindDead::Skip,
            NOW,
        ) else {
            unreachable!()
        };
        let mut settled = Arc::unwrap_or_clone(settled);
        let attempt = settled.attempt.as_mut().unwrap();
        attempt.request_headers = [("x-token", "hush-request")].into_iter().collect();
        attempt.response_headers = [("x-echo", "hush-response")].into_iter().collect();
        attempt.response_body = "hush-body".into();
        let attempt = attempt.clone();
        one(&store, Write::Settle(Arc::new(settled))).unwrap();
        let bytes = on_disk(directory.path());
        for part in ["hush-event", "hush-request", "hush-response", "hush-body"] {
            assert_eq!(holds(&bytes, part.as_bytes()), !seals, "{part}");
        }
        drop(store);
        let store = open(1, false);
        assert_eq!(ask(store.events(vec![1]))[0].readable().map(|event| &**event), Some(&event));
        assert_eq!(ask(store.delivery(Reach::All, DeliveryId(1))).unwrap().attempts, [attempt]);
        let again = settle(
            &ask(store.delivery(Reach::All, DeliveryId(1))).unwrap().summary.delivery,
            RETRY,
            BehindDead::Skip,
            NOW,
        );
        one(&store, again).unwrap();
        let sealed = "select count(*) from attempts where sealed_with is not null";
        let n: u32 = database(directory.path()).query_row(sealed, [], |row| row.get(0)).unwrap();
        assert_eq!(
            n,
            if seals { 2 } else { 0 },
            "what belongs to a sealed event is sealed, also after it was turned off"
        );
    }
}

/// The erasure is on disk all the same: nobody in its batch may be told otherwise.
#[test]
fn a_reader_in_the_way_of_the_log_fails_nothing_and_the_log_is_emptied_once_it_is_gone() {
    for purges in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (store, sealed) = with_a_sealed_payload(directory.path());
        let reader = database(directory.path());
        reader.execute_batch("begin; select count(*) from events").unwrap();
        let written = ask(store.write(vec![accept(2, None), erase_by_hand()], NOW));
        assert!(matches!(written[..], [Written::Accepted { .. }, Written::Saved]), "{written:?}");
        assert!(ask(store.events(vec![1]))[0].readable().is_none());
        assert!(holds(&on_disk(directory.path()), &sealed), "the reader needs it still");
        reader.execute_batch("commit").unwrap();
        if purges {
            let never = Timestamp(0);
            let ages = Ages {
                delivered: never,
                dead: never,
                attempts: never,
                events: never,
                activity: never,
                audit: never,
                keys: never,
                sessions: never,
                idle: never,
            };
            ask(store.purge(ages, 9));
        } else {
            one(&store, accept(3, None)).unwrap();
        }
        assert!(!holds(&on_disk(directory.path()), &sealed), "purges: {purges}");
    }
}

/// Killed between the erasure and the emptying of the log: the next start finishes it.
#[test]
fn a_log_that_was_left_behind_is_emptied_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = with_a_sealed_payload(directory.path());
    let copy = tempfile::tempdir().unwrap();
    for file in directory.path().read_dir().unwrap().map(|file| file.unwrap()) {
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    drop(store);
    let log = copy.path().join("doorstep.db-wal");
    assert!(log.metadata().unwrap().len() > 0);
    let store = SqliteStore::open(copy.path(), keys(1), &SqliteLimits::default()).unwrap();
    assert_eq!(log.metadata().unwrap().len(), 0);
    assert_eq!(ask(store.events(vec![1])).len(), 1);
}

/// Rows move between pages as others come and go, and leave copies of themselves behind.
#[test]
fn no_trace_of_a_key_stays_where_its_row_once_was() {
    let directory = tempfile::tempdir().unwrap();
    let keys = keys(1).sealing_payloads(true);
    let store = SqliteStore::open(directory.path(), keys, &SqliteLimits::default()).unwrap();
    let tenants = || (1..=300u128).map(|n| TenantId(n * 7_919 % 301));
    let new = |tenant_id| {
        let event = Event { tenant_id, ..event("an-event", None, NOW) };
        Write::Accept(Box::new(NewEvent { event, key: None, deliveries: Vec::new() }))
    };
    ask(store.write(tenants().map(new).collect(), NOW));
    let sql = database(directory.path());
    let mut rows = sql.prepare("select sealed from tenant_keys").unwrap();
    let sealed: Vec<Vec<u8>> = rows.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(sealed.len(), 300);
    // As text, in which the search is fast.
    let text = |bytes: &[u8]| bytes.iter().map(|byte| char::from(*byte)).collect::<String>();
    let n_left = || {
        let all = text(&on_disk(directory.path()));
        sealed.iter().filter(|sealed| all.contains(&text(sealed))).count()
    };
    assert_eq!(n_left(), 300);
    let erased = ask(store.write(tenants().map(|tenant_id| Write::ErasePayloads { tenant_id }).collect(), NOW));
    assert!(erased.iter().all(|written| *written == Written::Saved));
    assert_eq!(n_left(), 0);
}
