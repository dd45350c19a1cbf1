//! Whether it lives, whether it can be used, and how it is doing.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(alive)).routes(routes!(ready)).routes(routes!(metrics))
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Readiness {
    ready: bool,
    /// Why not.
    reasons: Vec<&'static str>,
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
    let mut reasons = Vec::new();
    match app.engine.health().await {
        Ok(health) => {
            if !health.writes {
                reasons.push("the store does not take writes");
            }
            if !health.sends {
                reasons.push("deliveries are not running: the process is shutting down");
            }
        }
        Err(_) => reasons.push("the engine does not answer"),
    }
    let ready = reasons.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, axum::Json(Readiness { ready, reasons })).into_response()
}

/// Figures for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "health", security(()), responses((status = 200, body = String, content_type = "text/plain")))]
async fn metrics(State(app): State<Arc<App>>) -> Response {
    let counts = &app.counts;
    let in_flight = app.engine.health().await.map_or(0, |health| health.in_flight as u64);
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
    let count = |of: &std::sync::atomic::AtomicU64| of.load(Ordering::Relaxed);
    let results = [
        ("{result=\"accepted\"}", count(&counts.events_accepted)),
        ("{result=\"duplicate\"}", count(&counts.events_repeated)),
        ("{result=\"refused\"}", count(&counts.events_refused)),
    ];
    family("doorstep_events_total", "counter", "Events that producers have sent, by what became of them.", &results);
    family("doorstep_in_flight_requests", "gauge", "Requests to receivers that are under way.", &[("", in_flight)]);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
