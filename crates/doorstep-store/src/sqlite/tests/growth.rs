//! What is counted is what is there, and no table grows for ever.

use doorstep_core::delivery::BehindDead;
use doorstep_core::event::NewEvent;
use doorstep_core::quota::{Quota, Usage};
use doorstep_core::store::{Ages, Purged, Refusal};
use doorstep_core::time::{Millis, Timestamp};

use super::*;
use crate::conformance::samples::{DEAD, RETRY};

fn days(n: u64) -> Millis {
    Millis::from_hours(24 * n)
}

fn older_than(at: Timestamp) -> Ages {
    Ages {
        delivered: at,
        dead: at,
        attempts: at,
        events: at,
        activity: at,
        audit: at,
        keys: at,
        sessions: at,
        idle: at,
    }
}

fn purge(store: &SqliteStore, at: Timestamp) {
    while ask(store.purge(older_than(at), 100)) != Purged::default() {}
}

/// Rows of every table that grows with traffic.
fn rows(directory: &Path) -> Vec<(String, i64)> {
    let sql = database(directory);
    let tables = "select name from sqlite_schema where type = 'table' and name not like 'sqlite%' order by name";
    let names: Vec<String> =
        sql.prepare(tables).unwrap().query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let count = |name: String| {
        let n = sql.query_row(&format!("select count(*) from {name}"), [], |row| row.get(0)).unwrap();
        (name, n)
    };
    names.into_iter().map(count).collect()
}

/// Stretches of 1,024 numbers go as a whole, with all their owners.
fn slack(table: &str) -> i64 {
    if table.ends_with("stretches") { 2 * 1_024 } else { 8 }
}

/// A destination that comes, and goes after a week; events whose keys are never used again; some of every end.
#[test]
fn after_a_year_no_table_has_more_rows_than_after_a_season() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    meddle(&store, |sql| sql.pragma_update(None, "synchronous", "off").unwrap());
    let id = |day: u64| DestinationId(1_000 + u128::from(day));
    let (mut season, mut n) = (Vec::new(), 0u128);
    for day in 0..365u64 {
        let now = NOW + days(day);
        let mut writes = vec![put(id(day))];
        if let Some(gone) = day.checked_sub(7) {
            writes.push(Write::RemoveDestination { destination_id: id(gone) });
        }
        for _ in 0..6 {
            n += 1;
            let event = event(&format!("event-{n}"), Some(&format!("key-{n}")), now);
            writes.push(Write::Accept(Box::new(NewEvent {
                event,
                key: None,
                deliveries: vec![new_delivery(n, id(day))],
            })));
        }
        let written = ask(store.write(writes, now));
        let made = written.iter().filter_map(|written| match written {
            Written::Accepted { available, .. } => available.first(),
            _ => None,
        });
        let ends = [Decision::Delivered, DEAD, RETRY].into_iter().cycle();
        let settled = made.zip(ends).map(|(delivery, end)| settle(delivery, end, BehindDead::Hold, now));
        ask(store.write(settled.collect(), now));
        purge(&store, now - days(30));
        if day == 90 {
            season = rows(directory.path());
        }
    }
    for ((name, before), (_, after)) in season.iter().zip(rows(directory.path())) {
        assert!(after <= before + slack(name), "{name}: {before} rows after a season, {after} after a year");
    }
    let rest = (358..365).map(|day| Write::RemoveDestination { destination_id: id(day) });
    ask(store.write(rest.collect(), NOW + days(365)));
    purge(&store, NOW + days(10_000));
    let left: Vec<_> = rows(directory.path()).into_iter().filter(|(name, n)| *n > slack(name)).collect();
    assert_eq!(left, [], "of destinations, keys and events of a year nothing is left");
}

/// Counts again, from all rows, what was counted as they changed.
fn truth(directory: &Path) -> Vec<(Vec<u8>, i64, i64)> {
    let sql = "
        select tenant_id, sum(queued), sum(bytes) from (
            select d.tenant_id, count(*) as queued, 0 as bytes
                from deliveries q join destinations d on d.id = q.destination_id group by 1
            union all select tenant_id, 0, coalesce(stored_bytes, 512 + length(payload) + coalesce(length(headers), 0)) + 256 * n_kept from events
            union all select tenant_id, 0, stored_bytes from attempts where tenant_id is not null)
        group by 1 order by 1";
    let connection = database(directory);
    let mut counted = connection.prepare(sql).unwrap();
    counted.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap().map(Result::unwrap).collect()
}

fn counted(directory: &Path) -> Vec<(Vec<u8>, i64, i64)> {
    let connection = database(directory);
    let sql =
        "select tenant_id, queued, stored_bytes from tenant_usage where queued != 0 or stored_bytes != 0 order by 1";
    let mut counted = connection.prepare(sql).unwrap();
    counted.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap().map(Result::unwrap).collect()
}

/// A database from before anything was counted.
#[test]
fn what_was_there_before_is_counted_by_the_migration() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    let made = ask(store.write(vec![put(DST), accept(1, Some("k")), accept(2, None), accept(3, None)], NOW));
    let Written::Accepted { available, .. } = &made[1] else { panic!("{made:?}") };
    one(&store, settle(&available[0], Decision::Delivered, BehindDead::Skip, NOW)).unwrap();
    drop(store);
    let sql = database(directory.path());
    sql.execute_batch(
        "drop table clock; alter table events drop column wall_offset;
         drop table tenant_usage; drop index ordering_keys_by_day; drop index removed_by_time;
         alter table events drop column stored_bytes; alter table attempts drop column stored_bytes; alter table attempts drop column tenant_id;
         alter table ordering_keys drop column used_day; alter table removed_destinations drop column removed_at;
         alter table deliveries drop column unreadable; alter table delivered drop column unreadable; alter table dead drop column unreadable;
         alter table counters drop column commits; alter table events drop column digest; drop table digest_keys;
         pragma user_version = 1",
    )
    .unwrap();
    drop(sql);
    let store = open(directory.path()).unwrap();
    assert_eq!(counted(directory.path()), truth(directory.path()));
    let usage = ask(store.usage(Reach::All, TENANT));
    assert!(usage.queued_deliveries == 2 && usage.stored_bytes > 3 * 768, "{usage:?}");
    let again = one(&store, accept(4, Some("k"))).unwrap();
    let Written::Accepted { available, .. } = again else { panic!("{again:?}") };
    assert_eq!(available[0].ordering.as_ref().map(|slot| slot.sequence), Some(2), "its key was not idle");
    one(&store, Write::RemoveDestination { destination_id: DST }).unwrap();
    purge(&store, Timestamp::MAX);
    assert_eq!(ask(store.usage(Reach::All, TENANT)), Usage::default());
}

#[test]
fn what_is_counted_is_what_is_there_also_after_a_write_that_failed() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    one(&store, put(DST)).unwrap();
    one(&store, accept(1, None)).unwrap();
    meddle(&store, |sql| {
        sql.execute_batch("create trigger t before insert on delivery_seqs begin select raise(abort, 'no'); end")
            .unwrap()
    });
    assert!(one(&store, accept(2, None)).is_err());
    meddle(&store, |sql| sql.execute_batch("drop trigger t").unwrap());
    one(&store, accept(3, None)).unwrap();
    assert_eq!(counted(directory.path()), truth(directory.path()));
    assert_eq!(ask(store.usage(Reach::All, TENANT)).queued_deliveries, 2);
}

#[test]
fn the_operators_quota_is_for_tenants_that_have_none() {
    let directory = tempfile::tempdir().unwrap();
    let quota = Quota { queued_deliveries: Some(1), stored_bytes: None };
    let store =
        SqliteStore::open(directory.path(), keys(1), &SqliteLimits { quota, ..SqliteLimits::default() }).unwrap();
    one(&store, put(DST)).unwrap();
    one(&store, accept(1, None)).unwrap();
    assert!(matches!(one(&store, accept(2, None)).unwrap(), Written::Refused(Refusal::QuotaExceeded(_))));
}
