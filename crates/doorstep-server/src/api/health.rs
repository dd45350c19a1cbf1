//! Whether it lives, whether it can be used, and how it is doing.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use doorstep_core::engine::Health;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::{App, Counts};

/// The engine is asked how it is doing this often at most, however many ask here: it makes the writer and the run loop work.
pub(crate) const ASKED_EVERY: Duration = Duration::from_secs(1);
/// Without an answer by then, it is not well.
pub(crate) const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// These need no key.
pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(alive)).routes(routes!(ready))
}

/// On the API's own listener these need a key: they tell how much traffic there is.
pub(crate) fn guarded_routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(metrics))
}

/// How the engine was doing when it was last asked; `None`: it did not answer.
#[derive(Debug, Default)]
pub(crate) struct LastHealth(tokio::sync::Mutex<Option<(Instant, Option<Health>)>>);

impl LastHealth {
    /// Asked at the same time, one asks and the others wait for its answer.
    async fn get<E>(&self, ask: impl Future<Output = Result<Health, E>>) -> Option<Health> {
        let mut last = self.0.lock().await;
        if let Some((at, health)) = *last
            && at.elapsed() < ASKED_EVERY
        {
            return health;
        }
        let health = tokio::time::timeout(ANSWERED_WITHIN, ask).await.ok().and_then(Result::ok);
        *last = Some((Instant::now(), health));
        health
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Readiness {
    ready: bool,
    /// Why not.
    reasons: Vec<&'static str>,
    /// What an operator should look at, though events are taken and delivered.
    warnings: Vec<String>,
}

/// The process lives
#[utoipa::path(get, path = "/healthz", tag = "health", security(()), responses((status = 200, body = String, content_type = "text/plain")))]
async fn alive() -> &'static str {
    "ok\n"
}

/// It takes events and delivers them
#[utoipa::path(get, path = "/readyz", tag = "health", security(()),
    responses((status = 200, body = Readiness), (status = 503, body = Readiness)))]
async fn ready(State(app): State<Arc<App>>) -> Response {
    let (mut reasons, mut warnings) = (Vec::new(), app.warnings.clone());
    match app.health.get(app.engine.health()).await {
        Some(health) => {
            if !health.writes {
                reasons.push("the store does not take writes");
            }
            if !health.sends {
                reasons.push("deliveries are not running: the process is shutting down");
            }
            if health.unreadable_payloads > 0 {
                warnings.push(format!(
                    "payloads could not be read {} times since the start, and their deliveries wait: see the log, or run `doorstep check --deep`",
                    health.unreadable_payloads
                ));
            }
            if health.damage_met > 0 {
                warnings.push(format!(
                    "the database is damaged, which was met {} times since the start: see the log, and run `doorstep check --deep`",
                    health.damage_met
                ));
            }
        }
        None => reasons.push("the engine does not answer"),
    }
    let ready = reasons.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, axum::Json(Readiness { ready, reasons, warnings })).into_response()
}

/// Figures for Prometheus
///
/// Where the server has a listener of its own for them (`metrics_listen`), they need no key there.
#[utoipa::path(get, path = "/metrics", tag = "health", responses((status = 200, body = String, content_type = "text/plain")))]
async fn metrics(State(app): State<Arc<App>>) -> Response {
    let health = app.health.get(app.engine.health()).await;
    let text = figures(&app.counts, app.warnings.len(), health.as_ref());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

fn figures(counts: &Counts, n_warnings: usize, health: Option<&Health>) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: &[(&str, u64)]| {
        // Writing to a string does not fail.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let version = concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\"}");
    family("doorstep_build_info", "gauge", "The version that runs.", &[(version, 1)]);
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let results = [
        ("{result=\"accepted\"}", count(&counts.events_accepted)),
        ("{result=\"duplicate\"}", count(&counts.events_repeated)),
        ("{result=\"refused\"}", count(&counts.events_refused)),
    ];
    family("doorstep_events_total", "counter", "Events that producers have sent, by what became of them.", &results);
    let help = "Problems found in the stored data at the start: see /readyz.";
    family("doorstep_store_warnings", "gauge", help, &[("", n_warnings as u64)]);
    // A counter that shows 0 for a while would be taken for a restart.
    if let Some(health) = health {
        let in_flight = [("", health.in_flight as u64)];
        family("doorstep_in_flight_requests", "gauge", "Requests to receivers that are under way.", &in_flight);
        let help = "How often a payload could not be read when its delivery was due.";
        family("doorstep_unreadable_payloads_total", "counter", help, &[("", health.unreadable_payloads)]);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::FutureExt;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn however_many_ask_the_engine_is_asked_once_a_second() {
        let (last, asked) = (LastHealth::default(), Cell::new(0));
        let ask = async || {
            asked.set(asked.get() + 1);
            tokio::task::yield_now().await;
            Ok::<_, ()>(Health {
                writes: true,
                sends: true,
                in_flight: asked.get(),
                unreadable_payloads: 0,
                damage_met: 0,
            })
        };
        let seen = futures_util::future::join_all((0..1_000).map(|_| last.get(ask()))).await;
        assert_eq!((asked.get(), seen.iter().flatten().count()), (1, 1_000));
        tokio::time::advance(ASKED_EVERY - Duration::from_millis(1)).await;
        assert_eq!(last.get(ask()).await.unwrap().in_flight, 1);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(last.get(ask()).await.unwrap().in_flight, 2, "what is older is asked for anew");
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_does_not_answer_is_not_waited_for_without_end() {
        let last = LastHealth::default();
        assert!(last.get(std::future::pending::<Result<_, ()>>()).await.is_none());
        assert!(last.get(async { Err(()) }).await.is_none());
    }
    #[test]
    fn what_the_engine_does_not_say_is_left_out_and_not_taken_for_0() {
        let health = Health { writes: true, sends: true, in_flight: 3, unreadable_payloads: 7, damage_met: 0 };
        let told = figures(&Counts::default(), 2, Some(&health));
        for line in
            ["doorstep_in_flight_requests 3", "doorstep_unreadable_payloads_total 7", "doorstep_store_warnings 2"]
        {
            assert!(told.lines().any(|told| told == line), "{told}");
        }
        let told = figures(&Counts::default(), 2, None);
        assert!(!told.contains("doorstep_in_flight_requests"), "{told}");
        assert!(!told.contains("doorstep_unreadable_payloads_total"), "{told}");
        assert!(told.contains("doorstep_events_total{result=\"accepted\"} 0"), "{told}");
    }

    /// On the listener for metrics too: otherwise a client that hangs up at once has the engine asked as often as it likes.
    #[tokio::test]
    async fn whoever_hangs_up_before_the_answer_has_asked_all_the_same() {
        let app = crate::auth::world::World::new().await.app;
        let router = TowerToHyperService::new(crate::router::metrics_router(Arc::clone(&app)));
        let request = http::Request::get("/readyz").body(axum::body::Body::empty()).unwrap();
        let mut answer = Box::pin(router.call(request));
        assert!(answer.as_mut().now_or_never().is_none());
        drop(answer);
        let mut yields = 0;
        while app.health.0.lock().await.is_none() {
            tokio::task::yield_now().await;
            yields += 1;
            assert!(yields < 10_000, "its question was dropped with it");
        }
    }
}
