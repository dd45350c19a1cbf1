//! Killed under load: how soon it is back, and whether all that was acknowledged arrives (C3).

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::super::children::{Engine, Load};
use super::super::load::Shape;
use super::super::payload;
use super::super::table::{Row, Target};
use super::super::{Bench, HOSTS};
use super::{PATIENCE, PRODUCERS, Plan, closed};

const LOOK_EVERY: Duration = Duration::from_millis(5);

impl Bench {
    pub(super) async fn restart(&mut self) -> anyhow::Result<()> {
        let mut engine = self.engine().await?;
        let routes = engine.unlimited(HOSTS, &self.receiver, "/0").await?;
        let plan = Plan {
            may_fail: true,
            connections: PRODUCERS,
            ..engine.plan(closed(Shape::Single { routes }, self.scale.each))
        };
        let load = Load::start(&plan).await?;
        sleep(self.third()).await;
        engine.kill().await?;
        let report = load.report().await?;
        anyhow::ensure!(report.taken > 0, "nothing was acknowledged before the engine was killed");
        let unknown: HashSet<u64> = report.unknown.iter().copied().collect();

        let began = Instant::now();
        let engine = Engine::start(&self.data_dir()).await?;
        let (ready, ready_at) = (began.elapsed(), payload::now());
        let acknowledged = |missing: Vec<u64>| missing.into_iter().filter(|n| !unknown.contains(n)).count();
        let mut lost = acknowledged(self.receiver.missing(report.numbered).await?);
        let left = lost;
        let waiting = Instant::now();
        while lost > 0 && waiting.elapsed() < PATIENCE {
            sleep(LOOK_EVERY).await;
            lost = acknowledged(self.receiver.missing(report.numbered).await?);
        }
        let arrivals = self.receiver.arrivals().await?;
        let after = Duration::from_nanos(arrivals.last_new_at).saturating_sub(ready_at);
        drop(engine);
        self.row(Row::new("restart: acknowledged before", report.taken as f64, ""));
        self.row(Row::new("restart: ready", ready.as_secs_f64() * 1e3, "ms"));
        self.row(Row::new("restart: acknowledged and still missing when ready", left as f64, ""));
        let row = Row::new("restart: all acknowledged has arrived after", after.as_secs_f64() * 1e3, "ms");
        self.row(row.target(Target::AtMost(2_000.0)));
        let twice = arrivals.groups[0].count - arrivals.distinct;
        self.row(Row::new("restart: arrived twice", twice as f64, ""));
        self.row(Row::new("restart: acknowledged and lost", lost as f64, "").target(Target::AtMost(0.0)));
        Ok(())
    }
}
