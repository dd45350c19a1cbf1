//! Events that nobody subscribed to: what it takes to have them on disk.

use super::super::Bench;
use super::super::children::load;
use super::super::load::{Route, Shape};
use super::super::table::Row;
use super::{BATCH, closed};

impl Bench {
    pub(super) async fn ingest(&mut self) -> anyhow::Result<()> {
        let mut engine = self.engine().await?;
        let tenant_id = engine.tenant("nobody listens").await?;
        let routes = vec![Route { tenant_id, event_type: "bench.event".to_owned() }];
        for (what, shape) in [
            ("durable ingest, one event each", Shape::Single { routes: routes.clone() }),
            ("durable ingest, batches of 100", Shape::Batch { routes: routes.clone(), size: BATCH }),
        ] {
            let report = load(&engine.plan(closed(shape, self.third()))).await?;
            self.row(Row::new(what, report.rate(), "/s").of_raw(self.raw));
            self.row(Row::new(format!("{what}: answered, p99"), report.p99, "ms"));
        }
        Ok(())
    }
}
