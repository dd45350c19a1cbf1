//! A thousand destinations, half of them sick: what the healthy half notices (G13).

use serde_json::json;

use super::super::children::{Engine, Load, load};
use super::super::load::{Route, Shape};
use super::super::table::{Row, Target};
use super::super::{Bench, say};
use super::{BATCH, BATCHES_AT_ONCE, PATIENCE, Pace, open, plan};

/// Each with two healthy destinations and two sick ones.
const TENANTS: usize = 250;
const SICK: [&str; 3] = ["/hang", "/503", "/429"];
/// Short, so that hanging ones run into it while they are measured.
const TIMEOUT_MS: u32 = 2_000;
/// Deliveries that wait for each sick destination before the measurement.
const QUEUED_EACH: u64 = 20;
/// Alone and mixed in turn, so that whatever else the machine does meets both alike.
const ROUNDS: usize = 3;

impl Bench {
    pub(super) async fn mix(&mut self) -> anyhow::Result<()> {
        let tenth = self.saturation().await? / 10.0;
        let mut engine = self.engine().await?;
        let (mut healthy, mut sick) = (Vec::new(), Vec::new());
        for at in 0..TENANTS {
            let tenant_id = engine.tenant(&format!("tenant {at}")).await?;
            for (n, event_type) in ["mix.a", "mix.b", "mix.c", "mix.d"].into_iter().enumerate() {
                let path = if n < 2 { "/0" } else { SICK[(2 * at + n) % SICK.len()] };
                let settings = json!({
                    "tenant_id": tenant_id, "url": self.receiver.url(4 * at + n, path),
                    "event_types": [event_type], "timeout_ms": TIMEOUT_MS,
                });
                engine.destination(&settings).await?;
                let routes = if n < 2 { &mut healthy } else { &mut sick };
                routes.push(Route { tenant_id: tenant_id.clone(), event_type: event_type.to_owned() });
            }
        }
        let steadily = |routes: &[Route], bench: &Self| open(routes.to_vec(), tenth, bench.third());
        let healthy_ones = Shape::Single { routes: healthy.clone() };
        // Gates shut within seconds: each measurement has its own share of the sick ones to find out about.
        let mut shares = sick.chunks(sick.len() / (2 * ROUNDS));
        let (mut alone, mut mixed) = (0.0, 0.0);
        let (mut alone_p99, mut mixed_p99) = (0.0_f64, 0.0_f64);
        for round in 1..=ROUNDS {
            let before = self.saturate(&engine, healthy_ones.clone(), 1, 0).await?.group.rate();
            self.queue(&engine, shares.next().unwrap_or_default()).await?;
            let beside = self.saturate(&engine, healthy_ones.clone(), 1, 0).await?.group.rate();
            let sick_meanwhile = self.receiver.arrivals().await?.sick;
            say(&format!("round {round}: alone {before:.0}/s, {beside:.0}/s beside {sick_meanwhile} sick requests"));
            (alone, mixed) = (alone + before / ROUNDS as f64, mixed + beside / ROUNDS as f64);

            self.receiver.reset().await?;
            let report = load(&engine.plan(steadily(&healthy, self))).await?;
            let before = self.receiver.wait_for(0, report.taken, PATIENCE).await?.groups[0].p99;
            self.receiver.reset().await?;
            let share = shares.next().unwrap_or_default();
            self.queue(&engine, share).await?;
            // Events for these sick ones come in at the same rate as those for the healthy ones.
            let others = Load::start(&engine.plan(steadily(share, self))).await?;
            let report = load(&engine.plan(steadily(&healthy, self))).await?;
            let arrivals = self.receiver.wait_for(0, report.taken, PATIENCE).await?;
            others.report().await?;
            let (beside, n_sick) = (arrivals.groups[0].p99, arrivals.sick);
            say(&format!("round {round}: p99 {before:.2} ms alone, {beside:.2} ms beside {n_sick} sick requests"));
            (alone_p99, mixed_p99) = (alone_p99 + before / ROUNDS as f64, mixed_p99 + beside / ROUNDS as f64);
        }

        self.row(Row::new("500 healthy destinations alone", alone, "/s").of_raw(self.raw));
        self.row(Row::new("the same among 500 sick ones", mixed, "/s").of_raw(self.raw));
        self.row(Row::new("healthy throughput, mixed to alone", mixed / alone, "×").target(Target::AtLeast(0.9)));
        self.row(Row::new("healthy p99 alone", alone_p99, "ms"));
        self.row(Row::new("healthy p99 among sick ones", mixed_p99, "ms"));
        let ratio = mixed_p99 / alone_p99;
        self.row(Row::new("healthy p99, mixed to alone", ratio, "×").target(Target::AtMost(2.0)));
        Ok(())
    }

    /// Has so many wait for each of these.
    async fn queue(&mut self, engine: &Engine, routes: &[Route]) -> anyhow::Result<()> {
        let count = routes.len() as u64 * QUEUED_EACH / BATCH as u64;
        let shape = Shape::Batch { routes: routes.to_vec(), size: BATCH };
        load(&engine.plan(plan(shape, BATCHES_AT_ONCE, Pace::Closed { within: PATIENCE, count }))).await?;
        Ok(())
    }
}
