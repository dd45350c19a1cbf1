//! What only a store on disk can get wrong.

mod damage;
mod erasing;
mod growth;

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use doorstep_core::audit::{Action, Actor};
use doorstep_core::delivery::{BehindDead, Track};
use doorstep_core::event::{Event, NewEvent};
use doorstep_core::id::{DeliveryId, DestinationId, TenantId};
use doorstep_core::reach::Reach;
use doorstep_core::retry::Decision;
use doorstep_core::search::read_types;
use doorstep_core::store::{
    AuditFilter, DeliveryFilter, DueQuery, Page, Refusal, Store, StoreError, StoredEvent, Write, Written,
};
use rusqlite::Connection;
use serde_json::json;

use super::{DataDir, OpenError, Rotated, SqliteLimits, SqliteStore};
use crate::conformance::samples::{DST, NOW, TENANT, accept, event, new_delivery, put, settle};
use crate::conformance::{ask, wait};
use crate::seal::{KEY_LEN, Keyring, MasterKey};

fn open(directory: &Path) -> Result<SqliteStore, OpenError> {
    SqliteStore::open(directory, keys(1), &SqliteLimits::default())
}

fn keys(n: u8) -> Keyring {
    Keyring::new(MasterKey::new(&[n; KEY_LEN]))
}

fn database(directory: &Path) -> Connection {
    Connection::open(directory.join("doorstep.db")).unwrap()
}

fn one(store: &SqliteStore, write: Write) -> Result<Written, StoreError> {
    wait(store.write(vec![write], NOW)).map(|mut written| written.pop().unwrap())
}

/// Does something to the connection that writes.
fn meddle(store: &SqliteStore, with: impl FnOnce(&Connection) + Send + 'static) {
    ask(store.writer.ask(move |writer| {
        with(&writer.connection);
        Ok(())
    }));
}

fn is_unavailable<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> bool {
    match answer {
        Ok(written) => panic!("it should have failed, but {written:?}"),
        Err(StoreError::Unavailable(_)) => true,
        Err(StoreError::Corrupt(_) | StoreError::TookTooLong) => false,
    }
}

#[test]
fn a_second_store_is_kept_out_of_the_directory_until_the_first_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path()).unwrap();
    let refused = open(directory.path()).unwrap_err().to_string();
    assert!(refused.contains(&*directory.path().to_string_lossy()) && refused.contains("in use"), "{refused}");
    drop(first);
    open(directory.path()).unwrap();
}

#[test]
fn what_a_newer_version_wrote_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()).unwrap());
    database(directory.path()).pragma_update(None, "user_version", 99).unwrap();
    let refused = open(directory.path()).unwrap_err();
    assert!(matches!(refused, OpenError::Newer { found: 99, .. }), "{refused:?}");
    assert!(refused.to_string().contains("written by a newer Doorstep (schema 99"), "{refused}");
}

#[cfg(unix)]
#[test]
fn nobody_else_may_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("data");
    let store = open(&directory).unwrap();
    one(&store, put(DST)).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    let files: Vec<_> = directory.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[test]
fn every_commit_is_synced_before_it_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    meddle(&store, |sql| {
        let pragma = |name| sql.pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0)).unwrap();
        assert_eq!(pragma("journal_mode"), "wal".to_owned().into());
        assert_eq!(pragma("synchronous"), 2.into());
    });
}

/// A limit on the pages stands in for the end of the disk: SQLite answers both with `SQLITE_FULL`.
#[test]
fn a_full_disk_loses_nothing_that_was_acknowledged_and_is_no_trouble_once_there_is_room() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    one(&store, put(DST)).unwrap();
    meddle(&store, |sql| {
        let pages: i64 = sql.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        sql.pragma_update(None, "max_page_count", pages + 20).unwrap();
    });
    let batch = |n: u128| (n * 10..n * 10 + 10).map(|id| accept(id, Some("key"))).collect::<Vec<Write>>();
    let mut acknowledged = 0u128;
    let failed = loop {
        match wait(store.write(batch(acknowledged), NOW)) {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 10_000, "the disk never fills");
    };
    assert!(is_unavailable::<()>(Err(failed)));
    assert!(acknowledged > 0);
    let kept = |store: &SqliteStore| {
        ask(store.deliveries(Reach::All, DeliveryFilter::default(), Page { before_seq: None, limit: 100_000 })).len()
            as u128
    };
    assert_eq!(kept(&store), acknowledged * 10, "all of a batch or none");
    assert!(is_unavailable(wait(store.write(batch(acknowledged), NOW))), "it fails again, and lives on");
    meddle(&store, |sql| sql.pragma_update(None, "max_page_count", 1_000_000).unwrap());
    ask(store.write(batch(acknowledged), NOW));
    assert_eq!(kept(&store), acknowledged * 10 + 10);
    drop(store);
    let store = open(directory.path()).unwrap();
    assert_eq!(kept(&store), acknowledged * 10 + 10);
    let newest = ask(store.deliveries(Reach::All, DeliveryFilter::default(), Page { before_seq: None, limit: 1 }))
        .pop()
        .unwrap();
    assert_eq!(u128::from(newest.delivery.seq), acknowledged * 10 + 10, "failed batches leave no gap in the numbers");
    assert_eq!(newest.delivery.ordering.unwrap().sequence, newest.delivery.seq);
}

#[test]
fn a_database_in_somebody_elses_hands_is_waited_for_and_not_fatal() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    meddle(&store, |sql| sql.busy_timeout(Duration::ZERO).unwrap());
    let other = database(directory.path());
    other.execute_batch("begin immediate").unwrap();
    assert!(is_unavailable(one(&store, put(DST))));
    other.execute_batch("rollback").unwrap();
    assert_eq!(one(&store, put(DST)).unwrap(), Written::Saved);
}

#[test]
fn what_cannot_be_read_is_said_to_be_corrupt_and_the_rest_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    let (bad, good) = (DestinationId(1), DestinationId(2));
    let made = ask(store.write(vec![put(bad), put(good), accept(1, None), accept(2, None)], NOW));
    let damage = |sql: &str| database(directory.path()).execute_batch(sql).unwrap();
    damage("update deliveries set requests = -1 where seq = 1");
    damage("update events set event_type = 'no type' where seq = 1");
    damage("update destinations set settings = x'7b' where id = x'00000000000000000000000000000001'");
    let due =
        |destination_id| wait(store.due(vec![DueQuery { destination_id, track: Track::First, after: None, limit: 9 }]));
    assert!(matches!(due(bad), Err(StoreError::Corrupt(_))));
    assert!(due(good).is_ok());
    assert!(matches!(ask(store.events(vec![1]))[..], [StoredEvent::Unreadable(_)]));
    assert!(ask(store.events(vec![2]))[0].readable().is_some());
    assert!(matches!(wait(store.destinations(None, 9)), Err(StoreError::Corrupt(_))));
    assert_eq!(ask(store.destinations(Some(bad), 9)).len(), 1);
    assert!(matches!(wait(store.delivery(Reach::All, DeliveryId(1))), Err(StoreError::Corrupt(_))));
    let Written::Accepted { available, .. } = &made[3] else { panic!("{made:?}") };
    one(&store, settle(&available[0], Decision::Delivered, BehindDead::Skip, NOW)).unwrap();
    assert_eq!(one(&store, accept(1, None)).unwrap(), Written::Refused(Refusal::EventUnreadable));
    one(&store, accept(3, None)).unwrap();
}

#[test]
fn whoever_asks_and_goes_away_is_no_trouble() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    drop(store.write(vec![put(DST)], NOW));
    let queued = one(&store, accept(1, None)).unwrap();
    assert!(matches!(queued, Written::Accepted { deliveries: 1, .. }), "writes take effect in the order of asking");
}

/// Lists of one destination or tenant are gathered from stretches of numbers: pages have to fit together across them.
#[test]
fn a_list_goes_on_across_stretches_and_leaves_none_out() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    let rare = DestinationId(2);
    ask(store.write(vec![put(DST), put(rare)], NOW));
    let n_all = 3 * super::stretch::STRETCH + 10;
    let is_rare = |n: i64| n % 700 == 3 || n == n_all;
    let new = |n: i64| {
        let mut event = event(&format!("e{n}"), None, NOW);
        event.tenant_id = TenantId(if is_rare(n) { 20 } else { 10 });
        let deliveries = vec![new_delivery(n.try_into().unwrap(), if is_rare(n) { rare } else { DST })];
        Write::Accept(Box::new(NewEvent { event, key: None, deliveries }))
    };
    let written = ask(store.write((1..=n_all).map(new).collect(), NOW));
    let some = written.iter().step_by(3).filter_map(|written| match written {
        Written::Accepted { available, .. } => available.first(),
        _ => None,
    });
    let settled = some.map(|delivery| settle(delivery, Decision::Delivered, BehindDead::Skip, NOW));
    ask(store.write(settled.collect(), NOW));
    for (filter, wanted_rare) in [
        (DeliveryFilter { destination_id: Some(rare), ..DeliveryFilter::default() }, true),
        (DeliveryFilter { destination_id: Some(DST), ..DeliveryFilter::default() }, false),
        (DeliveryFilter { tenant_id: Some(TenantId(20)), ..DeliveryFilter::default() }, true),
        (DeliveryFilter { tenant_id: Some(TenantId(10)), ..DeliveryFilter::default() }, false),
    ] {
        let mut found: Vec<i64> = Vec::new();
        loop {
            let before_seq = found.last().map(|seq| seq.cast_unsigned());
            let limit = if wanted_rare { 2 } else { 1_000 };
            let page = ask(store.deliveries(Reach::All, filter.clone(), Page { before_seq, limit }));
            found.extend(page.iter().map(|line| line.delivery.seq.cast_signed()));
            if page.is_empty() {
                break;
            }
        }
        let expected: Vec<i64> = (1..=n_all).rev().filter(|n| is_rare(*n) == wanted_rare).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
}

#[test]
fn a_search_that_takes_too_long_is_cut_off_and_the_next_one_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    let limits = SqliteLimits { search_max: Duration::ZERO, readers: 1, ..SqliteLimits::default() };
    let store = SqliteStore::open(directory.path(), keys(1), &limits).unwrap();
    one(&store, put(DST)).unwrap();
    ask(store.write((1..=2_000).map(|id| accept(id, None)).collect(), NOW));
    let page = Page { before_seq: None, limit: 9 };
    let any = DeliveryFilter::default;
    let rare = DeliveryFilter { codes: Some(doorstep_core::store::Codes::one(599)), ..any() };
    let of_no_type = DeliveryFilter { types: read_types("order.*,*.sent").ok(), ..any() };
    for filter in [rare, of_no_type] {
        let cut = wait(store.deliveries(Reach::All, filter, page));
        assert!(matches!(cut, Err(StoreError::TookTooLong)), "{cut:?}");
        assert_eq!(ask(store.deliveries(Reach::All, DeliveryFilter::default(), page)).len(), 9, "this one is quick");
    }
    let query = DueQuery { destination_id: DST, track: Track::First, after: None, limit: 2_000 };
    assert_eq!(ask(store.due(vec![query]))[0].deliveries.len(), 2_000, "the engine is not hurried");
}

#[test]
fn a_mistake_of_ours_costs_one_batch_and_not_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    let failed: Result<(), _> = wait(store.writer.ask(|writer| {
        writer.connection.execute_batch("begin; delete from counters").unwrap();
        panic!("on purpose");
    }));
    assert!(is_unavailable(failed));
    assert_eq!(one(&store, put(DST)).unwrap(), Written::Saved);
    one(&store, accept(1, None)).unwrap();
    drop(store);
    open(directory.path()).unwrap();
}

/// The key was rolled back with the rest: what is sealed with it could never be read.
#[test]
fn a_mistake_of_ours_leaves_no_key_behind_that_is_on_no_disk() {
    let directory = tempfile::tempdir().unwrap();
    let open =
        || SqliteStore::open(directory.path(), keys(1).sealing_payloads(true), &SqliteLimits::default()).unwrap();
    let store = open();
    one(&store, put(DST)).unwrap();
    let failed: Result<(), _> = wait(store.writer.ask(|writer| {
        writer.transact(|batch| {
            batch.write(accept(1, None), NOW)?;
            panic!("on purpose");
        })
    }));
    assert!(is_unavailable(failed));
    one(&store, accept(2, None)).unwrap();
    drop(store);
    let found = ask(open().event(Reach::All, None, "event-2".parse().unwrap()));
    assert_eq!(found.len(), 1, "it was accepted, so it can be read");
}

/// It was damaged on disk. Settlements are written until they are through, so one that never is would stop all writing.
#[test]
fn a_delivery_is_settled_although_its_tenants_key_cannot_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let open =
        || SqliteStore::open(directory.path(), keys(1).sealing_payloads(true), &SqliteLimits::default()).unwrap();
    let store = open();
    one(&store, put(DST)).unwrap();
    let made = one(&store, accept(1, None)).unwrap();
    let Written::Accepted { available, .. } = &made else { panic!("{made:?}") };
    drop(store);
    assert_eq!(database(directory.path()).execute("update tenant_keys set sealed = zeroblob(60)", []).unwrap(), 1);
    let store = open();
    one(&store, settle(&available[0], Decision::Delivered, BehindDead::Skip, NOW)).unwrap();
    let history = ask(store.delivery(Reach::All, DeliveryId(1))).unwrap();
    assert!(history.summary.ended_at.is_some() && history.attempts.len() == 1);
    assert!(history.attempts[0].request_headers.is_empty(), "nothing that should be sealed is kept in the clear");
}

#[test]
fn a_full_queue_makes_callers_wait_and_loses_none_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let limits = SqliteLimits { writes_queued_max: 2, reads_queued_max: 1, ..SqliteLimits::default() };
    let store = SqliteStore::open(directory.path(), keys(1), &limits).unwrap();
    one(&store, put(DST)).unwrap();
    let replies: Vec<_> = (1..=50).map(|id| store.write(vec![accept(id, None)], NOW)).collect();
    for reply in replies {
        ask(reply);
    }
    assert_eq!(ask(store.backlogs(Reach::All, vec![DST]))[0].queued, 50);
}

#[test]
fn secrets_are_on_disk_only_sealed() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    one(&store, put(DST)).unwrap();
    let kept = ask(store.destinations(None, 9)).pop().unwrap().destination.secrets;
    assert_eq!((kept.signing[0].text.as_str(), kept.headers[0].1.as_str()), ("whsec_c2VjcmV0", "Bearer x"));
    let bytes: Vec<u8> =
        directory.path().read_dir().unwrap().flat_map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    let holds = |part: &str| bytes.windows(part.len()).any(|window| window == part.as_bytes());
    assert!(holds("example.com/hook"), "what is not secret is found");
    assert!(!holds("c2VjcmV0") && !holds("Bearer x"));
    drop(store);
}

#[test]
fn another_master_key_is_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()).unwrap());
    let refused = SqliteStore::open(directory.path(), keys(2), &SqliteLimits::default()).unwrap_err();
    assert!(matches!(refused, OpenError::OtherKey { .. }), "{refused:?}");
    let told = refused.to_string();
    for id in [keys(1).current(), keys(2).current()] {
        assert!(told.contains(&id.to_string()), "{told}");
    }
    let taken = DataDir::take(directory.path()).unwrap();
    assert_eq!(taken.master_keys().unwrap(), [keys(1).current()]);
    drop(taken);
    database(directory.path()).execute("update master_keys set sealed = zeroblob(120)", []).unwrap();
    assert!(matches!(open(directory.path()).unwrap_err(), OpenError::Database { .. }));
    database(directory.path()).execute("drop table master_keys", []).unwrap();
    assert!(matches!(open(directory.path()).unwrap_err(), OpenError::Unsealed { .. }));
}

#[test]
fn secrets_that_were_moved_to_another_row_do_not_open() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    ask(store.write(vec![put(DST), put(DestinationId(2))], NOW));
    let moved = "update destinations set secrets = (select secrets from destinations where id = ?1) where id = ?2";
    database(directory.path()).execute(moved, [DST.0.to_be_bytes(), 2u128.to_be_bytes()]).unwrap();
    assert!(matches!(wait(store.destinations(Some(DST), 9)), Err(StoreError::Corrupt(_))));
    assert_eq!(ask(store.destinations(None, 1)).len(), 1);
}

/// Interrupted in the middle, then finished: at every moment both keys open everything, and in the end the new one alone does.
#[test]
fn the_master_key_is_changed_a_little_at_a_time_and_goes_on_where_it_was_interrupted() {
    let directory = tempfile::tempdir().unwrap();
    let ids = (1..=25).map(DestinationId);
    let store = open(directory.path()).unwrap();
    ask(store.write(ids.map(put).collect(), NOW));
    let before = ask(store.destinations(None, 99));
    drop(store);
    let both = || keys(2).and_opens(MasterKey::new(&[1; KEY_LEN]));
    let limits = SqliteLimits::default();

    let taken = DataDir::take(directory.path()).unwrap();
    let mut steps = 0;
    let interrupted = taken.rotate(
        &both(),
        4,
        |_| NOW,
        |n| {
            assert_eq!(n, 4);
            steps += 1;
            if steps == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
    );
    assert_eq!(interrupted.unwrap(), Rotated { moved: 12, finished: false });
    let mut needed = [keys(1).current(), keys(2).current()];
    needed.sort_unstable();
    assert_eq!(taken.master_keys().unwrap(), needed);
    drop(taken);
    for alone in [1, 2] {
        let refused = SqliteStore::open(directory.path(), keys(alone), &limits).unwrap_err();
        assert!(matches!(refused, OpenError::KeyChangeUnfinished { .. }), "{refused:?}");
        assert!(refused.to_string().contains(&keys(3 - alone).current().to_string()), "{refused}");
    }
    let store = SqliteStore::open(directory.path(), both(), &limits).unwrap();
    assert_eq!(ask(store.destinations(None, 99)), before);
    drop(store);

    let taken = DataDir::take(directory.path()).unwrap();
    let go_on = |_| ControlFlow::Continue(());
    assert_eq!(taken.rotate(&both(), 4, |_| NOW, go_on).unwrap(), Rotated { moved: 14, finished: true });
    assert_eq!(taken.rotate(&both(), 4, |_| NOW, go_on).unwrap(), Rotated { moved: 0, finished: true });
    drop(taken);
    assert!(matches!(open(directory.path()).unwrap_err(), OpenError::OtherKey { .. }));
    let store = SqliteStore::open(directory.path(), keys(2), &limits).unwrap();
    assert_eq!(ask(store.destinations(None, 99)), before);

    let lines = ask(store.audit(Reach::All, AuditFilter::default(), Page { before_seq: None, limit: 9 }));
    let [(_, line)] = lines.as_slice() else { panic!("noted once, when it was finished: {lines:?}") };
    assert_eq!((line.at, &line.actor, line.action), (NOW, &Actor::Console, Action::MasterKeyRotate));
    let [old, new] = [1, 2].map(|n| keys(n).current().to_string());
    assert_eq!((&line.resource, &line.changes["id"]), (&new, &json!({ "before": old, "after": new })));
}

#[test]
fn the_master_key_is_not_changed_by_somebody_who_does_not_have_it() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()).unwrap());
    let taken = DataDir::take(directory.path()).unwrap();
    let stranger = keys(3).and_opens(MasterKey::new(&[2; KEY_LEN]));
    let refused = taken.rotate(&stranger, 4, |_| NOW, |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(refused, OpenError::OtherKey { .. }), "{refused:?}");
    assert_eq!(taken.master_keys().unwrap(), [keys(1).current()]);
}

fn on_disk(directory: &Path) -> Vec<u8> {
    directory.read_dir().unwrap().flat_map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn payloads_are_sealed_if_asked_for_and_no_trace_of_an_erased_key_stays() {
    let directory = tempfile::tempdir().unwrap();
    let open =
        |seals, n| SqliteStore::open(directory.path(), keys(n).sealing_payloads(seals), &SqliteLimits::default());
    let store = open(false, 1).unwrap();
    ask(store.write(vec![put(DST), accept(1, None)], NOW));
    drop(store);
    let store = open(true, 1).unwrap();
    one(&store, accept(2, None)).unwrap();
    let of = |n: u128| event(&format!("event-{n}"), None, NOW).payload;
    let bytes = on_disk(directory.path());
    assert!(holds(&bytes, &of(1)) && !holds(&bytes, &of(2)));
    drop(store);

    // Whether it is on or off, and after a change of the master key, all can be read.
    let both = keys(2).and_opens(MasterKey::new(&[1; KEY_LEN]));
    let taken = DataDir::take(directory.path()).unwrap();
    let rotated = taken.rotate(&both, 4, |_| NOW, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(rotated, Rotated { moved: 3, finished: true }, "a destination, a tenant's key and the digests' key");
    drop(taken);
    let store = open(false, 2).unwrap();
    for (event, n) in ask(store.events(vec![1, 2])).iter().zip(1..) {
        assert_eq!(event.readable().unwrap().payload, of(n));
        assert_eq!(event.readable().unwrap().headers.len(), 1);
    }

    let sealed: Vec<u8> =
        database(directory.path()).query_row("select sealed from tenant_keys", [], |row| row.get(0)).unwrap();
    assert!(holds(&on_disk(directory.path()), &sealed));
    assert_eq!(one(&store, Write::ErasePayloads { tenant_id: TENANT }).unwrap(), Written::Saved);
    assert!(!holds(&on_disk(directory.path()), &sealed), "neither in unused pages nor in the log");
    let left = ask(store.events(vec![1, 2]));
    assert!(left[0].readable().is_some() && left[1] == StoredEvent::Gone, "what was not encrypted stays");
}

#[test]
fn a_payload_that_was_moved_to_another_event_does_not_open() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path(), keys(1).sealing_payloads(true), &SqliteLimits::default()).unwrap();
    ask(store.write(vec![put(DST), accept(1, None), accept(2, None)], NOW));
    let moved = "update events set payload = (select payload from events where seq = 1) where seq = 2";
    database(directory.path()).execute(moved, []).unwrap();
    assert!(matches!(ask(store.events(vec![2]))[..], [StoredEvent::Unreadable(_)]));
    assert!(ask(store.events(vec![1]))[0].readable().is_some());
}

/// A key that was made in a batch that failed is not on disk: nothing may be sealed with it afterwards.
#[test]
fn a_tenants_key_goes_with_the_batch_that_made_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path(), keys(1).sealing_payloads(true), &SqliteLimits::default()).unwrap();
    one(&store, put(DST)).unwrap();
    meddle(&store, |sql| sql.execute_batch("alter table counters rename to away").unwrap());
    assert!(one(&store, accept(1, None)).is_err());
    meddle(&store, |sql| sql.execute_batch("alter table away rename to counters").unwrap());
    one(&store, accept(1, None)).unwrap();
    assert!(ask(store.events(vec![1]))[0].readable().is_some());
}

/// Its master key was lost, or its row was damaged: that is one tenant's trouble.
#[test]
fn a_tenants_key_that_cannot_be_opened_fails_that_tenants_events_alone() {
    let directory = tempfile::tempdir().unwrap();
    let open =
        || SqliteStore::open(directory.path(), keys(1).sealing_payloads(true), &SqliteLimits::default()).unwrap();
    let of = |n: u128, tenant_id| {
        let event = Event { tenant_id, ..event(&format!("event-{n}"), None, NOW) };
        Write::Accept(Box::new(NewEvent { event, key: None, deliveries: vec![new_delivery(n, DST)] }))
    };
    let (broken, well) = (TENANT, TenantId(8));
    let store = open();
    let made = ask(store.write(vec![put(DST), of(1, broken), of(2, well), of(3, broken)], NOW));
    drop(store);
    let changed = database(directory.path())
        .execute("update tenant_keys set sealed = zeroblob(109) where tenant_id = ?1", [broken.0.to_be_bytes()]);
    assert_eq!(changed.unwrap(), 1);
    let store = open();
    let read = ask(store.events(vec![1, 2, 3]));
    assert!(matches!(read[..], [StoredEvent::Unreadable(_), StoredEvent::Readable(_), StoredEvent::Unreadable(_)]));
    let StoredEvent::Unreadable(what) = &read[0] else { unreachable!() };
    assert_eq!((what.event_id.as_ref().unwrap().as_str(), what.tenant_id), ("event-1", Some(broken)));
    assert!(what.why.starts_with("a tenant's key cannot be read: "), "{}", what.why);
    let Written::Accepted { available, .. } = &made[1] else { panic!("{made:?}") };
    let settled = settle(&available[0], Decision::Delivered, BehindDead::Skip, NOW);
    let written = ask(store.write(vec![of(4, well), of(5, broken), of(1, broken), settled, of(6, well)], NOW));
    let refused = Written::Refused(Refusal::TenantKeyUnreadable);
    assert!(matches!(written[0], Written::Accepted { duplicate: false, .. }), "{written:?}");
    assert_eq!(written[1..3], [refused.clone(), refused]);
    assert!(matches!(written[3..], [Written::Settled { .. }, Written::Accepted { .. }]), "{written:?}");
    assert!(ask(store.events(vec![4, 5])).iter().all(|event| event.readable().is_some()), "no gap in the numbers");
}
