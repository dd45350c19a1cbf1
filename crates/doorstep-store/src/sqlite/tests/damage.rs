//! Files that were damaged, cut, changed or lost.

use std::path::PathBuf;

use super::*;
use crate::sqlite::{CheckResult, Loss};

/// Has these in it: `DST`, and so many events with one delivery each.
fn filled(directory: &Path, n: u128) -> SqliteStore {
    let store = open(directory).unwrap();
    one(&store, put(DST)).unwrap();
    for id in 1..=n {
        one(&store, accept(id, None)).unwrap();
    }
    store
}

/// The files as they are now, as `kill -9` would leave them.
fn copy_of(directory: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in directory.read_dir().unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    copy
}

fn log(directory: &Path) -> PathBuf {
    directory.join("doorstep.db-wal")
}

fn n_events(store: &SqliteStore) -> usize {
    ask(store.event_list(
        Reach::All,
        doorstep_core::store::EventFilter::default(),
        Page { before_seq: None, limit: 9_999 },
    ))
    .len()
}

#[test]
fn a_log_that_was_cut_is_told_with_numbers_and_the_rest_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(directory.path(), 60);
    let whole = std::fs::read(log(directory.path())).unwrap();
    // Cut in the middle of a page, between two, and down to nothing; a byte flipped in the middle; the file gone.
    let half = whole.len() / 2;
    let mut flipped = whole.clone();
    flipped[half] ^= 1;
    let cases: [(&str, Option<&[u8]>); 5] = [
        ("cut in a page", Some(&whole[..half])),
        ("cut between pages", Some(&whole[..32 + (half - 32) / 4_120 * 4_120])),
        ("empty", Some(&[])),
        ("flipped", Some(&flipped)),
        ("gone", None),
    ];
    for (case, content) in cases {
        let copy = copy_of(directory.path());
        let _ = std::fs::remove_file(copy.path().join("doorstep.db-shm"));
        match content {
            Some(bytes) => std::fs::write(log(copy.path()), bytes).unwrap(),
            None => std::fs::remove_file(log(copy.path())).unwrap(),
        }
        let damaged = open(copy.path()).unwrap_or_else(|error| panic!("{case}: {error}"));
        let (loss, left) = (damaged.state().loss.unwrap_or_default(), n_events(&damaged) as u64);
        assert_eq!(loss.events, 60 - left, "{case}: every acknowledged event is there or known to be missing");
        assert!(loss.events > 0 && loss.commits >= loss.events, "{case}: {loss:?}");
        assert!(
            damaged.state().check.as_ref().is_some_and(|check| check.faults.is_empty()),
            "{case}: what is left is sound"
        );
        let kept = copy.path().read_dir().unwrap().map(Result::unwrap);
        let kept = kept.filter(|file| file.file_name().to_string_lossy().contains("-wal.kept-at-")).count();
        assert_eq!(
            kept,
            usize::from(content.is_some_and(|bytes| !bytes.is_empty())),
            "{case}: what was left of the log"
        );
        one(&damaged, accept(1_000, None)).unwrap();
        drop(damaged);

        let again = open(copy.path()).unwrap();
        assert_eq!(again.state().loss, Some(loss), "{case}: it is not forgotten");
        assert_eq!(again.state().check, None, "{case}: it was closed in good order");
        drop(again);
        std::fs::remove_file(copy.path().join("doorstep.commits")).unwrap();
        assert_eq!(open(copy.path()).unwrap().state().loss, None, "{case}: until somebody says so");
    }
    drop(store);
}

#[test]
fn a_process_that_was_killed_has_lost_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(directory.path(), 10);
    let copy = copy_of(directory.path());
    drop(store);
    let store = open(copy.path()).unwrap();
    assert_eq!((store.state().loss, n_events(&store)), (None, 10));
    let check = store.state().check.clone().expect("it was not closed");
    assert!(check.faults.is_empty() && check.unchecked.is_empty() && check.checked.len() > 20, "{check:?}");
    drop(store);
    let store = open(directory.path()).unwrap();
    assert_eq!((store.state().loss, store.state().check.clone()), (None, None));
}

/// Whoever puts an old copy back has lost what came since.
#[test]
fn an_older_copy_of_the_database_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    drop(filled(directory.path(), 10));
    let before = copy_of(directory.path());
    let store = open(directory.path()).unwrap();
    ask(store.write((11..=25).map(|id| accept(id, None)).collect(), NOW));
    drop(store);
    std::fs::copy(before.path().join("doorstep.db"), directory.path().join("doorstep.db")).unwrap();
    let store = open(directory.path()).unwrap();
    let expected = Loss { commits: 1, events: 15, deliveries: 15, attempts: 0 };
    assert_eq!(store.state().loss, Some(expected));
    assert!(expected.to_string().contains("at least 1 commits are missing, with 15 acknowledged events"));
}

#[test]
fn what_changes_nothing_is_not_counted() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(directory.path(), 1);
    let commits = || -> i64 {
        database(directory.path()).query_row("select commits from counters", [], |row| row.get(0)).unwrap()
    };
    let before = commits();
    ask(store.write(Vec::new(), NOW));
    one(&store, accept(1, None)).unwrap();
    assert_eq!(commits(), before, "a repetition and a barrier cost no write");
    one(&store, accept(2, None)).unwrap();
    assert_eq!(commits(), before + 1);
}

#[test]
fn what_somebody_changed_on_disk_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    drop(filled(directory.path(), 8));
    let changes = [
        "update events set payload = cast('{\"amount\":1000000}' as blob) where seq = 1",
        "update events set content_type = 'text/html' where seq = 2",
        "update events set headers = null where seq = 3",
        "update events set payload = (select payload from events where seq = 8), digest = (select digest from events where seq = 8) where seq = 4",
        "update events set digest = null where seq = 5",
        "update events set digest = zeroblob(16) where seq = 6",
        "update events set tenant_id = x'00000000000000000000000000000008' where seq = 7",
    ];
    for change in changes {
        assert_eq!(database(directory.path()).execute(change, []).unwrap(), 1, "{change}");
    }
    let store = open(directory.path()).unwrap();
    for (event, change) in ask(store.events((1..=8).collect())).iter().zip(changes) {
        let StoredEvent::Unreadable(what) = event else { panic!("{change}: {event:?}") };
        assert!(
            what.event_id.is_some() && what.why.starts_with("a payload cannot be read: "),
            "{change}: {}",
            what.why
        );
    }
    assert!(ask(store.events(vec![8]))[0].readable().is_some(), "which was left alone");
}

/// Stored by an earlier version.
#[test]
fn events_without_a_digest_are_read_if_they_are_older_than_digests() {
    let directory = tempfile::tempdir().unwrap();
    drop(filled(directory.path(), 2));
    let older = "delete from digest_keys; update events set digest = null";
    database(directory.path()).execute_batch(older).unwrap();
    let store = open(directory.path()).unwrap();
    one(&store, accept(3, None)).unwrap();
    assert!(ask(store.events(vec![1, 2, 3])).iter().all(|event| event.readable().is_some()));
    database(directory.path()).execute_batch("update events set digest = null").unwrap();
    let read: Vec<bool> = ask(store.events(vec![1, 2, 3])).iter().map(|event| event.readable().is_some()).collect();
    assert_eq!(read, [true, true, false], "the third one has had a digest");
}

#[test]
fn a_database_of_another_program_is_left_alone_and_told_in_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let tables = ["accounts", "books", "cars", "dogs", "eggs", "figs"];
    let sql: String = tables.map(|name| format!("create table {name} (n integer);")).concat();
    database(directory.path()).execute_batch(&sql).unwrap();
    let refused = open(directory.path()).unwrap_err().to_string();
    assert!(refused.contains("has tables (accounts, books, cars, dogs, eggs, …), but no schema version"), "{refused}");
    assert!(refused.len() < 500, "{refused}");

    let directory = tempfile::tempdir().unwrap();
    drop(filled(directory.path(), 1));
    database(directory.path()).pragma_update(None, "user_version", 0).unwrap();
    let refused = open(directory.path()).unwrap_err().to_string();
    assert!(refused.contains("has tables (activity, api_keys, attempts") && refused.len() < 500, "{refused}");
    database(directory.path()).pragma_update(None, "user_version", 5).unwrap();
    assert_eq!(n_events(&open(directory.path()).unwrap()), 1, "nothing was changed");
}

#[test]
fn what_is_no_database_is_said_to_be_none() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("doorstep.db"), "this is no database, but a letter".repeat(100)).unwrap();
    let refused = open(directory.path()).unwrap_err();
    let cause = std::error::Error::source(&refused).unwrap().to_string();
    assert_eq!(cause, "it is no SQLite database, or its first page is damaged");
}

#[test]
fn a_database_that_is_gone_is_not_made_anew() {
    for (keep, evidence) in [("doorstep.commits", "doorstep.commits"), ("doorstep.db-wal", "doorstep.db-wal")] {
        let directory = tempfile::tempdir().unwrap();
        let store = filled(directory.path(), 3);
        let copy = copy_of(directory.path());
        drop(store);
        for file in copy.path().read_dir().unwrap().map(Result::unwrap) {
            if file.file_name() != keep {
                std::fs::remove_file(file.path()).unwrap();
            }
        }
        std::fs::write(copy.path().join("doorstep.db"), "").unwrap();
        let refused = open(copy.path()).unwrap_err();
        assert!(matches!(refused, OpenError::Emptied { .. }), "{refused:?}");
        assert!(refused.to_string().contains(&format!("is missing or empty, but {evidence} shows")), "{refused}");
        assert!(copy.path().join(keep).metadata().unwrap().len() > 0, "the evidence is still there");
        std::fs::rename(copy.path().join(keep), copy.path().join("away")).unwrap();
        open(copy.path()).expect("that is the way out");
    }
}

/// SQLite makes such a file of a database whose log is lost before the first checkpoint; so does whoever opens a new one by hand.
#[test]
fn a_database_without_tables_is_empty_too() {
    let directory = tempfile::tempdir().unwrap();
    drop(filled(directory.path(), 3));
    std::fs::remove_file(directory.path().join("doorstep.db")).unwrap();
    database(directory.path()).execute_batch("create table t (n integer); drop table t").unwrap();
    assert!(directory.path().join("doorstep.db").metadata().unwrap().len() > 0);
    let refused = open(directory.path()).unwrap_err();
    assert!(matches!(refused, OpenError::Emptied { .. }), "{refused:?}");
    let found = faulty(directory.path(), None);
    assert!(found.iter().any(|(check, ..)| *check == "database"), "{found:?}");
}

/// A backup from before commits were counted.
#[test]
fn an_older_copy_of_an_older_version_is_noticed_at_its_first_start() {
    let directory = tempfile::tempdir().unwrap();
    drop(filled(directory.path(), 3));
    std::fs::remove_file(directory.path().join("doorstep.db")).unwrap();
    let sql = database(directory.path());
    sql.execute_batch(include_str!("../migrations/0001_start.sql")).unwrap();
    sql.pragma_update(None, "user_version", 1).unwrap();
    drop(sql);
    let store = open(directory.path()).unwrap();
    let loss = store.state().loss.expect("nothing of it is there");
    assert_eq!((loss.events, loss.deliveries), (3, 3));
    assert_eq!(store.state().check, None);
    drop(store);
    assert_eq!(open(directory.path()).unwrap().state().loss, Some(loss), "it is counted once");
}

#[test]
fn a_deep_check_does_not_take_a_lost_database_for_a_new_one() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(faulty(directory.path(), None), [], "nothing was ever stored here");
    drop(filled(directory.path(), 3));
    std::fs::remove_file(directory.path().join("doorstep.db")).unwrap();
    let found = faulty(directory.path(), None);
    let [("database", 1, named)] = &found[..] else { panic!("{found:?}") };
    assert!(named.contains("doorstep.db is missing or empty, but doorstep.commits shows"), "{named}");
}

/// Bytes changed all over the files: whatever is said of it, nothing panics, and nothing wrong is handed out.
#[test]
fn a_file_that_was_damaged_anywhere_is_refused_or_read_as_far_as_it_is_sound() {
    let directory = tempfile::tempdir().unwrap();
    drop(filled(directory.path(), 40));
    let whole = std::fs::read(directory.path().join("doorstep.db")).unwrap();
    let mut dice = 7u64;
    for _ in 0..60 {
        let copy = copy_of(directory.path());
        let mut bytes = whole.clone();
        for _ in 0..8 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (dice >> 16) as usize % bytes.len();
            bytes[at] ^= 0x55;
        }
        std::fs::write(copy.path().join("doorstep.db"), &bytes).unwrap();
        let _ = DataDir::inspect(copy.path(), Some(keys(1)), &mut |_| {});
        let Ok(store) = open(copy.path()) else { continue };
        let Ok(found) = wait(store.events((1..=40).collect())) else { continue };
        for (stored, n) in found.iter().zip(1u128..) {
            if let Some(read) = stored.readable() {
                assert_eq!(**read, event(&format!("event-{n}"), None, NOW), "a damaged event was handed out");
            }
        }
        let _ = one(&store, accept(100, None));
    }
}

/// What a check finds, by its name.
fn faulty(directory: &Path, keys: Option<Keyring>) -> Vec<(&'static str, u64, String)> {
    let found = DataDir::inspect(directory, keys, &mut |_| {}).unwrap();
    let faults = found.into_iter().filter_map(|finding| match finding.result {
        CheckResult::Faulty { n, named, .. } => Some((finding.check, n, named.join("; "))),
        CheckResult::Sound(_) | CheckResult::Skipped(_) => None,
    });
    faults.collect()
}

#[test]
fn a_deep_check_finds_each_kind_of_fault_and_nothing_in_what_is_sound() {
    let plant: [(&str, &str, &str); 11] = [
        ("deliveries", "delete from events where seq = 1", "dlv_"),
        ("destinations", "update deliveries set destination_id = zeroblob(16) where seq = 2", "dlv_"),
        ("names", "delete from delivery_seqs where seq = 2", "dlv_"),
        ("ordering keys", "update deliveries set behind = 1 where ordering_key = 'k'", "(key \"k\")"),
        ("numbers", "update counters set last_seq = 2", "deliveries"),
        ("backlogs", "update backlogs set queued = 77", "77 counted"),
        ("events", "update events set n_kept = 9 where seq = 2", "event-2 (9 counted, 1 kept)"),
        ("waiting", "update deliveries set unreadable = 3 where seq = 2", "of event-2 (tried 3 times)"),
        ("secrets", "update destinations set secrets = zeroblob(200)", "dst_"),
        ("payloads", "update events set payload = zeroblob(3) where seq = 2", "event-2: a payload cannot be read"),
        ("commits", "update counters set commits = 1", "commits are missing"),
    ];
    for (check, sql, named) in plant {
        let directory = tempfile::tempdir().unwrap();
        let store = filled(directory.path(), 3);
        ask(store.write(vec![accept(4, Some("k")), accept(5, Some("k"))], NOW));
        one(&store, settle(&read(&store, 3), Decision::Delivered, BehindDead::Skip, NOW)).unwrap();
        assert_eq!(faulty(directory.path(), Some(keys(1))), [], "beside a store that is open");
        drop(store);
        assert_eq!(faulty(directory.path(), Some(keys(1))), []);
        database(directory.path()).execute_batch(sql).unwrap();
        let found = faulty(directory.path(), Some(keys(1)));
        let of_check = found.iter().find(|(of, ..)| *of == check);
        let Some((_, n, names)) = of_check else { panic!("{check}: {found:?}") };
        assert!(*n > 0 && names.contains(named), "{check}: {found:?}");
    }
}

fn read(store: &SqliteStore, id: u128) -> doorstep_core::delivery::Delivery {
    ask(store.delivery(Reach::All, DeliveryId(id))).unwrap().summary.delivery
}

#[test]
fn a_deep_check_changes_nothing_and_says_what_it_could_not_check() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(directory.path(), 3);
    let copy = copy_of(directory.path());
    drop(store);
    let files = |of: &Path| {
        let mut files: Vec<_> = of.read_dir().unwrap().map(|file| file.unwrap().path()).collect();
        files.retain(|path| !path.to_string_lossy().ends_with("-shm"));
        files.sort();
        files.into_iter().map(|path| std::fs::read(path).unwrap()).collect::<Vec<_>>()
    };
    let before = files(copy.path());
    let mut seen = Vec::new();
    let found = DataDir::inspect(copy.path(), None, &mut |progress| seen.push(progress.check)).unwrap();
    assert_eq!(files(copy.path()), before);
    assert!(seen.contains(&"structure") && seen.contains(&"backlogs"), "{seen:?}");
    let skipped = |keys| {
        let found = DataDir::inspect(copy.path(), keys, &mut |_| {}).unwrap();
        found.into_iter().filter(|finding| matches!(finding.result, CheckResult::Skipped(_))).count()
    };
    assert_eq!([skipped(None), skipped(Some(keys(2))), skipped(Some(keys(1)))], [3, 3, 0], "{found:?}");
}
