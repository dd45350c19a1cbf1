//! From the producer to the receiver: how many, and how fast.

use serde_json::json;

use super::super::children::{fastest, load};
use super::super::load::{Route, Shape};
use super::super::table::{Row, Target};
use super::super::{Bench, HOSTS, say};
use super::{BATCH, PATIENCE, Saturated, open};

/// The ceiling and the engine take turns, so that what else the machine does meets both.
const ROUNDS: usize = 3;
const FANOUT: usize = 10;
/// In MB.
const MEMORY_MAX: f64 = 150.0;

impl Bench {
    pub(super) async fn deliver(&mut self) -> anyhow::Result<()> {
        let mut engine = self.engine().await?;
        let routes = engine.unlimited(HOSTS, &self.receiver, "/0").await?;
        let mut rounds: Vec<(f64, Saturated)> = Vec::new();
        for _ in 0..ROUNDS {
            let raw = self.raw_ceiling().await?;
            let one = self.saturate(&engine, Shape::Single { routes: routes.clone() }, 1, 0).await?;
            say(&format!("{:.0}/s, {:.2} of {raw:.0}/s", one.group.rate(), one.group.rate() / raw));
            rounds.push((raw, one));
        }
        rounds.sort_by(|(raw, one), (other_raw, other)| {
            (one.group.rate() / raw).total_cmp(&(other.group.rate() / other_raw))
        });
        let (raw, middle) = rounds.swap_remove(ROUNDS / 2);
        let rate = middle.group.rate();
        self.saturation = Some(rate);
        self.row(Row::new("end to end, one event each", rate, "/s").of_raw(raw).ratio_target(Target::AtLeast(0.18)));
        self.row(Row::new("end to end: accepted meanwhile", middle.report.rate(), "/s").of_raw(raw));
        if let Some(cpu) = middle.cpu {
            self.row(Row::new("end to end: the engine's processor time each", cpu, "µs"));
        }
        if let Some((now, most)) = middle.memory {
            self.row(Row::new("memory under load", now, "MB").target(Target::AtMost(MEMORY_MAX)));
            self.row(Row::new("memory under load, at most so far", most, "MB"));
        }
        let batches = self.saturate(&engine, Shape::Batch { routes, size: BATCH }, 1, 0).await?;
        self.row(Row::new("end to end, batches of 100", batches.group.rate(), "/s").of_raw(self.raw));
        Ok(())
    }

    pub(super) async fn latency(&mut self) -> anyhow::Result<()> {
        let saturation = self.saturation().await?;
        let mut engine = self.engine().await?;
        let routes = engine.unlimited(HOSTS, &self.receiver, "/0").await?;
        for (what, per_second, targets) in [
            ("at 200/s", 200.0, Some((2.0, 10.0))),
            ("at half of saturation", saturation / 2.0, None),
            ("at saturation", saturation, None),
        ] {
            self.receiver.reset().await?;
            let report = load(&engine.plan(open(routes.clone(), per_second, self.third()))).await?;
            let arrivals = self.receiver.wait_for(0, report.taken, PATIENCE).await?;
            let group = &arrivals.groups[0];
            for (name, value, target) in
                [("p50", group.p50, targets.map(|(p50, _)| p50)), ("p99", group.p99, targets.map(|(_, p99)| p99))]
            {
                let row = Row::new(format!("sent to arrived {what}, {name}"), value, "ms");
                self.row(if let Some(most) = target { row.target(Target::AtMost(most)) } else { row });
            }
        }
        Ok(())
    }

    pub(super) async fn fanout(&mut self) -> anyhow::Result<()> {
        let mut engine = self.engine().await?;
        let tenant_id = engine.tenant("many listen").await?;
        for at in 0..FANOUT {
            let url = self.receiver.url(at, "/0");
            let settings = json!({ "tenant_id": tenant_id, "url": url, "concurrency": 100, "rate_limit": fastest() });
            engine.destination(&settings).await?;
        }
        let routes = vec![Route { tenant_id, event_type: "bench.event".to_owned() }];
        let all = self.saturate(&engine, Shape::Single { routes }, FANOUT as u64, 0).await?;
        self.row(Row::new("one event to ten destinations", all.group.rate(), "/s").of_raw(self.raw));
        Ok(())
    }
}
