//! A thousand destinations and nothing to do.

use anyhow::Context;
use tokio::time::{Instant, sleep};

use super::super::Bench;
use super::super::table::{Row, Target};

const DESTINATIONS: usize = 1_000;
/// In percent of one core.
const CPU_MAX: f64 = 1.0;

impl Bench {
    pub(super) async fn idle(&mut self) -> anyhow::Result<()> {
        let mut engine = self.engine().await?;
        engine.unlimited(DESTINATIONS, &self.receiver, "/0").await?;
        let no_proc = "this system does not say what a process uses";
        let (before, began) = (engine.cpu().context(no_proc)?, Instant::now());
        sleep(self.scale.each).await;
        let used = engine.cpu().context(no_proc)? - before;
        let share = 100.0 * used / began.elapsed().as_secs_f64();
        self.row(Row::new("idle: processor", share, "%").target(Target::AtMost(CPU_MAX)));
        let (now, _) = engine.memory().context(no_proc)?;
        self.row(Row::new("idle: memory", now, "MB").target(Target::AtMost(150.0)));
        Ok(())
    }
}
