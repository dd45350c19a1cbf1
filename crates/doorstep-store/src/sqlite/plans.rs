//! Every statement finds its rows by the index that was made for it, however many there are.

use doorstep_core::audit::Action;
use doorstep_core::search::read_types;
use doorstep_core::store::{AuditFilter, DeliveryFilter, EventFilter, Page, Statuses};
use rusqlite::{Connection, StatementStatus};

use super::list::{Table, search};
use super::{
    accept, access, activity, audit, by_hand, catalog, due, event_list, event_types, key, list, mandate, payload,
    purge, settle, stretch, sweep, usage,
};
use crate::conformance::samples::{DST, TENANT};

/// Unfinished deliveries; a tenth as many have ended.
const ROWS: u32 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };

fn seeded(n: u32) -> Connection {
    let mut sql = Connection::open_in_memory().unwrap();
    super::migrate::migrate(&mut sql).unwrap();
    super::type_match::register(&sql).unwrap();
    let fill = "
        begin;
        create temp table n as with recursive n(n) as (select 1 union all select n + 1 from n where n < $rows) select n from n;
        insert into destinations select randomblob(16), randomblob(16), 1, x'7b7d', x'7b7d', 0, 0 from n where n <= 1000;
        create temp table dst as select row_number() over () as n, id from destinations;
        insert into events (seq, tenant_id, id, event_type, accepted_at, n_deliveries, n_kept, first_seq, content_type, ordering_key, produced_at,
            schema_version, headers, ttl, traceparent, idempotency_key, payload_key, payload)
            select n, x'00', 'e' || n, 'a.b', n, 1, 1, n, 'text/plain', null, null, null, null, null, null, iif(n % 10 = 0, randomblob(16), null), null, x'00' from n;
        insert into delivery_seqs select randomblob(16), n from n;
        insert into deliveries
            select n.n, randomblob(16), n.n, dst.id, n.n % 2, n.n % 10 = 0, n.n, 0, 0, 0, 0, n.n + 1000,
                iif(n.n % 5 = 0, 'k' || n.n % 100, null), iif(n.n % 5 = 0, n.n, null), iif(n.n % 5 = 0, n.n, null), null, 0
            from n join dst on dst.n = n.n % 1000 + 1;
        insert into delivered
            select n.n, randomblob(16), n.n, dst.id, n.n, 1, 1, 0, 0, 0, null, null, 200, n.n, 0
            from n join dst on dst.n = n.n % 1000 + 1 where n.n % 10 = 0;
        insert into dead
            select n.n, randomblob(16), n.n, dst.id, n.n, 1, 1, 0, 0, 0, 'k', n.n, 400, n.n, 0, null, 1, n.n, 0
            from n join dst on dst.n = n.n % 1000 + 1 where n.n % 10 = 0;
        insert into attempts (n, delivery_seq, id, number, started_at, status, fault, took_dns, took_connect, took_tls, took_first_byte, took_total,
            request_headers, response_headers, response_truncated, sealed_with, response_body)
            select n, n, randomblob(16), 1, n, 200, null, null, null, null, null, 1, null, null, 0, null, x'00' from n where n % 10 = 0;
        insert into ordering_keys select dst.id, 'k' || n.n, 1, 1, n.n / 10 from n join dst on dst.n = n.n % 1000 + 1 where n.n % 10 = 0;
        insert into removed_destinations select randomblob(16), 1, n from n where n % 10 = 0;
        insert into activity select n / 100, randomblob(16), 1, 0, 0, 0, 0, 0, 0, 0, 1, 1 from n where n % 10 = 0;
        commit;";
    sql.execute_batch(&fill.replace("$rows", &n.to_string())).unwrap();
    sql
}

fn plan(sql: &Connection, text: &str) -> Vec<String> {
    let mut explained = sql.prepare(&format!("explain query plan {text}")).unwrap();
    explained.raw_query().mapped(|row| row.get(3)).collect::<Result<_, _>>().unwrap()
}

fn searches() -> Vec<(String, Vec<&'static str>)> {
    let of_one = DeliveryFilter { destination_id: Some(DST), statuses: Statuses::ANY, ..DeliveryFilter::default() };
    let found = vec!["d USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)", "e USING INTEGER PRIMARY KEY (rowid=?)"];
    let text = |table| search(table, &of_one, &(0..1_024), 50).0;
    let mut searches: Vec<_> = Table::ALL.map(|table| (text(table), found.clone())).into();
    for types in ["invoice.paid", "invoice.*,*.paid"] {
        let of_types = DeliveryFilter { types: read_types(types).ok(), ..DeliveryFilter::default() };
        searches.extend(Table::ALL.map(|table| (search(table, &of_types, &(0..1_024), 50).0, found.clone())));
        let of_one = EventFilter { tenant_id: Some(TENANT), types: read_types(types).ok(), ..EventFilter::default() };
        let (text, _) = event_list::search(&of_one, &(0..1_024), 50);
        searches.push((text, vec!["e USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]));
    }
    for action in [None, Some(Action::DestinationUpdate)] {
        let of_one = AuditFilter { tenant_id: Some(TENANT), action, ..AuditFilter::default() };
        let (text, _) = audit::search(of_one, Page { before_seq: Some(9), limit: 50 });
        searches.push((text, vec!["audit USING INDEX audit_by_tenant (tenant_id=? AND rowid<?)"]));
    }
    searches
}

#[test]
fn every_statement_uses_the_index_that_was_made_for_it() {
    let sql = seeded(ROWS);
    let mut expected: Vec<(String, Vec<&str>)> = [
        (due::DUE, vec!["d USING INDEX deliveries_due (destination_id=? AND track=? AND due_at>?)"]),
        (due::DUE_LATER, vec!["d USING INDEX deliveries_due (destination_id=? AND track=? AND due_at>?)"]),
        (due::DUE_AT_ONCE, vec!["d USING INDEX deliveries_due (destination_id=? AND track=? AND due_at=? AND seq>?)"]),
        (due::OVERDUE, vec!["d USING INDEX deliveries_by_give_up (give_up_at<?)"]),
        (due::NEXT_GIVE_UP, vec!["d USING INDEX deliveries_by_give_up (give_up_at>?)"]),
        (accept::EVENT_BY_SEQ, vec!["e USING INTEGER PRIMARY KEY (rowid=?)"]),
        (accept::EVENT_BY_ID, vec!["e USING INDEX events_by_id (id=? AND tenant_id=?)"]),
        (payload::KEY_OF_EVENT, vec!["events USING INTEGER PRIMARY KEY (rowid=?)"]),
        (accept::EVENT_OF_KEY, vec!["events USING INDEX events_by_key (tenant_id=? AND idempotency_key=?)"]),
        (accept::IS_EVENT, vec!["events USING COVERING INDEX events_by_id (id=? AND tenant_id=?)"]),
        (accept::NAME_OF_EVENT, vec!["events USING INTEGER PRIMARY KEY (rowid=?)"]),
        (accept::EVENTS_BY_ID, vec!["e USING INDEX events_by_id (id=?)"]),
        (list::OF_EVENT, vec!["e USING INDEX events_by_id (id=? AND tenant_id=?)"]),
        (list::OF_NAMESAKES, vec!["e USING INDEX events_by_id (id=?)"]),
        (stretch::OF_EVENT_OWNER, vec!["event_stretches USING PRIMARY KEY (owner=? AND stretch<?)"]),
        (
            purge::PURGE_EVENT_STRETCHES,
            vec![
                "event_stretches USING COVERING INDEX event_stretches_by_age (stretch=? AND owner=?)",
                "event_stretches USING COVERING INDEX event_stretches_by_age (stretch<?)",
            ],
        ),
        (mandate::TENANT_OF, vec!["destinations USING PRIMARY KEY (id=?)"]),
        (
            mandate::OWNER_OF,
            vec!["events USING INTEGER PRIMARY KEY (rowid=?)", "dead USING INTEGER PRIMARY KEY (rowid=?)"],
        ),
        (activity::OF_TENANT, vec!["activity USING PRIMARY KEY (minute>? AND minute<?)"]),
        (accept::IS_DESTINATION, vec!["destinations USING PRIMARY KEY (id=?)"]),
        (
            key::FIRST_OF_KEY,
            vec![
                "deliveries USING COVERING INDEX deliveries_by_key (destination_id=? AND ordering_key=?)",
                "dead USING COVERING INDEX dead_by_key (destination_id=? AND ordering_key=?)",
            ],
        ),
        (
            key::AT_KEY_PLACE,
            vec!["d USING INDEX deliveries_by_key (destination_id=? AND ordering_key=? AND key_place=?)"],
        ),
        (settle::STANDING, vec!["deliveries USING INTEGER PRIMARY KEY (rowid=?)"]),
        (settle::RETRY, vec!["deliveries USING INTEGER PRIMARY KEY (rowid=?)"]),
        (settle::REMOVE, vec!["deliveries USING INTEGER PRIMARY KEY (rowid=?)"]),
        (by_hand::SEQ_OF, vec!["delivery_seqs USING PRIMARY KEY (id=?)"]),
        (by_hand::DEAD, vec!["d USING INTEGER PRIMARY KEY (rowid=?)"]),
        (by_hand::UNFINISHED, vec!["d USING INTEGER PRIMARY KEY (rowid=?)"]),
        (
            catalog::DESTINATIONS,
            vec![
                "d USING PRIMARY KEY (id>?)",
                "g USING PRIMARY KEY (destination_id=?)",
                "b USING PRIMARY KEY (destination_id=?)",
            ],
        ),
        (
            catalog::OLDEST,
            vec![
                "events USING INTEGER PRIMARY KEY (rowid=?)",
                "deliveries USING INTEGER PRIMARY KEY (rowid=?)",
                "deliveries USING COVERING INDEX deliveries_due (destination_id=?)",
                "deliveries USING COVERING INDEX deliveries_by_key (destination_id=? AND ordering_key>?)",
            ],
        ),
        (catalog::OF_TENANT, vec!["destinations USING COVERING INDEX destinations_by_tenant (tenant_id=?)"]),
        (
            access::PURGE_KEYS,
            vec![
                "api_keys USING PRIMARY KEY (id=?)",
                "api_keys USING COVERING INDEX api_keys_by_end (ended_at>? AND ended_at<?)",
            ],
        ),
        (
            access::PURGE_SESSIONS,
            vec![
                "portal_sessions USING PRIMARY KEY (id=?)",
                "portal_sessions USING COVERING INDEX portal_sessions_by_end (expires_at<?)",
            ],
        ),
        (access::END_SESSIONS, vec!["portal_sessions USING INDEX portal_sessions_by_tenant (tenant_id=?)"]),
        (event_types::EVENT_TYPES, vec!["event_types USING PRIMARY KEY (name>?)"]),
        (catalog::QUEUED, vec!["backlogs USING PRIMARY KEY (destination_id=?)"]),
        (
            key::OLD_KEYS,
            vec!["k USING COVERING INDEX ordering_keys_by_day (used_day<?)", "d EXISTS USING PRIMARY KEY (id=?)"],
        ),
        (
            sweep::FORGET_REMOVED,
            vec![
                "removed_destinations USING PRIMARY KEY (id=?)",
                "removed_destinations USING COVERING INDEX removed_by_time (removed_at<?)",
            ],
        ),
        (usage::USAGE, vec!["tenant_usage USING PRIMARY KEY (tenant_id=?)"]),
        (purge::BYTES_OF_ATTEMPTS, vec!["attempts USING INTEGER PRIMARY KEY (rowid<?)"]),
        (sweep::LEFT_DUE, vec!["deliveries USING INDEX deliveries_due (destination_id=?)"]),
        (sweep::LEFT_BEHIND, vec!["deliveries USING INDEX deliveries_by_key (destination_id=? AND ordering_key>?)"]),
        (
            sweep::SWEEP_KEYS,
            vec![
                "ordering_keys USING PRIMARY KEY (destination_id=? AND ordering_key=?)",
                "ordering_keys USING PRIMARY KEY (destination_id=?)",
            ],
        ),
        (stretch::OF_OWNER, vec!["stretches USING PRIMARY KEY (owner=? AND stretch<?)"]),
        (
            purge::PURGE_STRETCHES,
            vec![
                "stretches USING COVERING INDEX stretches_by_age (stretch=? AND owner=?)",
                "stretches USING COVERING INDEX stretches_by_age (stretch<?)",
            ],
        ),
        (purge::FIRST_SEQ, vec!["deliveries", "delivered", "dead"]),
        (list::ATTEMPTS, vec!["attempts USING INDEX attempts_by_delivery (delivery_seq=?)"]),
        (list::EARLIER_ATTEMPTS, vec!["attempts USING INDEX attempts_by_delivery (delivery_seq=?)"]),
        (list::ATTEMPT, vec!["attempts USING INDEX attempts_by_delivery (delivery_seq=?)"]),
        (activity::OF_ALL, vec!["activity USING PRIMARY KEY (minute>? AND minute<?)"]),
        (activity::OF_ONE, vec!["activity USING PRIMARY KEY (minute>? AND minute<?)"]),
        (purge::OLD_DELIVERED, vec!["d USING INDEX delivered_by_end (ended_at<?)"]),
        (purge::OLD_DEAD, vec!["d USING INDEX dead_by_end (ended_at<?)"]),
        (
            purge::PURGE_EVENTS,
            vec![
                "events USING INTEGER PRIMARY KEY (rowid=?)",
                "events USING COVERING INDEX events_to_purge (accepted_at<?)",
            ],
        ),
        (
            purge::PURGE_ACTIVITY,
            vec!["activity USING PRIMARY KEY (minute=? AND destination_id=?)", "activity USING PRIMARY KEY (minute<?)"],
        ),
    ]
    .map(|(text, plan)| (text.to_owned(), plan))
    .into();
    expected.extend(searches());
    for (text, expected) in expected {
        let plan = plan(&sql, &text);
        for wanted in expected {
            assert!(plan.iter().any(|line| line.contains(&format!("SEARCH {wanted}"))), "{text}\n{wanted}\n{plan:#?}");
        }
        let lazy =
            plan.iter().find(|line| line.contains("SCAN") && !line.contains("CONSTANT ROW") || line.contains("B-TREE"));
        assert_eq!(lazy, None, "{text}\n{plan:#?}");
    }
    // The front of the table is all that it looks at.
    assert_eq!(plan(&sql, purge::OLD_ATTEMPTS), ["SCAN attempts"]);
    assert_eq!(plan(&sql, sweep::TO_SWEEP), ["SCAN removed_destinations USING COVERING INDEX removed_to_sweep"]);
}

/// Counts what SQLite does, not the time it takes.
#[test]
fn a_page_costs_as_much_among_many_as_among_few() {
    let steps = |n: u32| {
        let sql = seeded(n);
        let id: Vec<u8> = sql.query_row("select id from dst where n = 7", [], |row| row.get(0)).unwrap();
        let mut due = sql.prepare(due::DUE).unwrap();
        let n_found = due.query((&id, 0, 5, i64::MIN)).unwrap().mapped(|_| Ok(())).count();
        assert_eq!((n_found, due.get_status(StatementStatus::FullscanStep)), (5, 0));
        due.get_status(StatementStatus::VmStep)
    };
    assert_eq!(steps(10_000), steps(ROWS));
}

#[test]
fn the_age_of_a_large_backlog_is_found_at_the_front() {
    let n = 20_000;
    let mut sql = Connection::open_in_memory().unwrap();
    super::migrate::migrate(&mut sql).unwrap();
    super::type_match::register(&sql).unwrap();
    let fill = "
        begin;
        create temp table n as with recursive n(n) as (select 1 union all select n + 1 from n where n < $rows) select n from n;
        insert into backlogs values (x'00000000000000000000000000000001', $rows);
        insert into events (seq, tenant_id, id, event_type, accepted_at, n_deliveries, n_kept, first_seq, content_type, ordering_key, produced_at,
            schema_version, headers, ttl, traceparent, idempotency_key, payload_key, payload)
            select n, x'00', 'e' || n, 'a.b', n, 1, 1, n, 'text/plain', null, null, null, null, null, null, null, null, x'00' from n;
        insert into deliveries
            select n, randomblob(16), n, iif(n <= $others, x'09', x'00000000000000000000000000000001'), n % 2, 0, -n, 0, 0, 0, 0, n,
                null, null, null, null, 0
            from n;
        commit;";
    sql.execute_batch(&fill.replace("$rows", &n.to_string()).replace("$others", "500")).unwrap();
    let steps = |text: &str, params: &[&dyn rusqlite::ToSql]| {
        let mut oldest = sql.prepare(text).unwrap();
        let found: Option<i64> = oldest.query_row(params, |row| row.get(0)).unwrap();
        (found, oldest.get_status(StatementStatus::VmStep))
    };
    let id = DST.0.to_be_bytes();
    let (front, front_steps) = steps(catalog::OLDEST_AT_THE_FRONT, &[&id, &10_000]);
    let (found, all_steps) = steps(catalog::OLDEST, &[&id]);
    assert_eq!((front, found), (Some(501), Some(501)));
    assert!(front_steps * 10 < all_steps, "{front_steps} {all_steps}");
    let backlog = catalog::backlogs(&sql, doorstep_core::reach::Reach::All, &[DST]).unwrap()[0];
    assert_eq!((backlog.queued, backlog.oldest_created_at), (n, Some(doorstep_core::time::Timestamp(501))));
}
