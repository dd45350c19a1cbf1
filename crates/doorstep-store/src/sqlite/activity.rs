//! What was sent and what came of it, counted by the minute.

use doorstep_core::id::DestinationId;
use doorstep_core::reach::Reach;
use doorstep_core::store::{Activity, ActivityQuery, Tally};
use doorstep_core::time::Timestamp;
use rusqlite::{Connection, Row, params};

use super::batch::Batch;
use super::fault::Fault;
use super::mandate::may_see;
use super::row;
use crate::minute::minute_of;

pub(super) const SAVE_MINUTE: &str = "
    insert into activity (minute, destination_id, succeeded, transient, throttled, ambiguous, permanent, first, delivered,
        dead, took_sum, took_max)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
    on conflict do update set succeeded = succeeded + excluded.succeeded, transient = transient + excluded.transient,
        throttled = throttled + excluded.throttled, ambiguous = ambiguous + excluded.ambiguous,
        permanent = permanent + excluded.permanent, first = first + excluded.first,
        delivered = delivered + excluded.delivered, dead = dead + excluded.dead,
        took_sum = took_sum + excluded.took_sum, took_max = max(took_max, excluded.took_max)";

macro_rules! activity {
    ($and:literal) => {
        concat!(
            "select minute, destination_id, succeeded, transient, throttled, ambiguous, permanent, first, delivered, \
             dead, took_sum, took_max from activity where ?1 <= minute and minute < ?2",
            $and,
            " order by minute, destination_id limit ?3"
        )
    };
}

pub(super) const OF_ALL: &str = activity!("");
/// Of a tenant's destinations.
pub(super) const OF_TENANT: &str =
    activity!(" and (select tenant_id from destinations where id = destination_id) = ?4");
pub(super) const OF_ONE: &str = activity!(" and destination_id = ?4");

impl Batch<'_> {
    pub(super) fn save_minute(
        &self,
        minute: Timestamp,
        destination_id: DestinationId,
        tally: &Tally,
    ) -> Result<(), Fault> {
        self.execute(
            SAVE_MINUTE,
            params![
                minute.0,
                destination_id.0.to_be_bytes(),
                row::number(tally.succeeded),
                row::number(tally.transient),
                row::number(tally.throttled),
                row::number(tally.ambiguous),
                row::number(tally.permanent),
                row::number(tally.first),
                row::number(tally.delivered),
                row::number(tally.dead),
                row::number(tally.took_sum.0),
                row::number(tally.took_max.0),
            ],
        )?;
        Ok(())
    }
}

pub(super) fn activity(sql: &Connection, reach: Reach, query: &ActivityQuery) -> Result<Vec<Activity>, Fault> {
    let (from, until, limit) = (minute_of(query.from).0, query.until.0, row::number(query.limit));
    let found = match (query.destination_id, reach) {
        (None, Reach::All) => sql.prepare_cached(OF_ALL)?.query_map(params![from, until, limit], read)?.collect(),
        (None, Reach::Tenant(own)) => {
            let of = params![from, until, limit, own.0.to_be_bytes()];
            sql.prepare_cached(OF_TENANT)?.query_map(of, read)?.collect::<Result<_, _>>()
        }
        (Some(id), _) if !may_see(sql, reach, id)? => Ok(Vec::new()),
        (Some(id), _) => {
            let of = params![from, until, limit, id.0.to_be_bytes()];
            sql.prepare_cached(OF_ONE)?.query_map(of, read)?.collect::<Result<_, _>>()
        }
    };
    Ok(found?)
}

fn read(row: &Row<'_>) -> rusqlite::Result<Activity> {
    let n = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
    Ok(Activity {
        minute: Timestamp(row.get(0)?),
        destination_id: DestinationId(row::id(row, 1)?),
        tally: Tally {
            succeeded: n(2)?,
            transient: n(3)?,
            throttled: n(4)?,
            ambiguous: n(5)?,
            permanent: n(6)?,
            first: n(7)?,
            delivered: n(8)?,
            dead: n(9)?,
            took_sum: row::millis(row.get(10)?),
            took_max: row::millis(row.get(11)?),
        },
    })
}
