//! Many deliveries that wait: what they cost while they do, and how fast they leave (C4).
//!
//! They wait because their destinations allow next to nothing a second, and leave once these allow everything: no
//! throttle, no breaker and no ramp is in the way.

use std::time::Duration;

use serde_json::json;

use super::super::children::{fastest, load};
use super::super::load::{Route, Shape};
use super::super::table::{Row, Target};
use super::super::{Bench, HOSTS, say};
use super::{BATCH, BATCHES_AT_ONCE, PATIENCE, Pace, plan};

/// In MB.
const MEMORY_MAX: f64 = 150.0;
/// However slow the disk is.
const INGESTED_WITHIN: Duration = Duration::from_secs(1_800);

impl Bench {
    pub(super) async fn backlog(&mut self) -> anyhow::Result<()> {
        let mut engine = self.engine().await?;
        let live = engine.unlimited(HOSTS, &self.receiver, "/0").await?;
        let mut held = Vec::new();
        let mut routes = Vec::new();
        for at in 0..HOSTS {
            let tenant_id = engine.tenant(&format!("held {at}")).await?;
            let settings = json!({
                "tenant_id": tenant_id, "url": self.receiver.url(at, "/1"), "concurrency": 64,
                "rate_limit": { "per_second": 0.001, "burst": 1 },
            });
            held.push(engine.destination(&settings).await?);
            routes.push(Route { tenant_id, event_type: "bench.event".to_owned() });
        }
        let empty = self.saturate(&engine, Shape::Single { routes: live.clone() }, 1, 0).await?.group.rate();

        self.receiver.reset().await?;
        let count = self.scale.backlog.div_ceil(BATCH as u64);
        let pace = Pace::Closed { within: INGESTED_WITHIN, count };
        let report = load(&engine.plan(plan(Shape::Batch { routes, size: BATCH }, BATCHES_AT_ONCE, pace))).await?;
        let went = self.receiver.arrivals().await?.groups[1].count;
        say(&format!("{} wait, {:.0}/s came in", report.taken - went, report.rate()));
        if let Some((now, most)) = engine.memory() {
            let what = format!("memory with {} waiting", report.taken);
            self.row(Row::new(&what, now, "MB").target(Target::AtMost(MEMORY_MAX)));
            self.row(Row::new(format!("{what}, at most so far"), most, "MB"));
        }

        let beside = self.saturate(&engine, Shape::Single { routes: live }, 1, 0).await?.group.rate();
        say(&format!("end to end {empty:.0}/s with an empty queue, {beside:.0}/s beside the backlog"));
        let row = Row::new("end to end beside the backlog, to empty", beside / empty, "×");
        self.row(row.target(Target::AtLeast(0.8)));

        self.receiver.reset().await?;
        for id in &held {
            engine.change(id, &json!({ "rate_limit": fastest() })).await?;
        }
        let drained = self.receiver.wait_for(1, report.taken - went, PATIENCE).await?.groups[1].rate();
        self.row(Row::new("backlog's way out", drained, "/s").of_raw(self.raw));
        self.row(
            Row::new("backlog's way out, to end to end when empty", drained / empty, "×").target(Target::AtLeast(0.8)),
        );
        if let Some((now, most)) = engine.memory() {
            self.row(Row::new("memory after the backlog", now, "MB").target(Target::AtMost(MEMORY_MAX)));
            self.row(Row::new("memory after the backlog, at most so far", most, "MB"));
        }
        Ok(())
    }
}
