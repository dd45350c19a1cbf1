//! `doorstep bench-receiver`: answers as cheaply as it can, and keeps count of what arrives.
//!
//! `/0` and `/1` are answered with 200 and counted apart; `/503` and `/429` with that status; `/hang` never.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::histogram::Histogram;
use super::payload;
use crate::failure::Failure;
use crate::{output, runtime};

/// Numbers that are told apart. Bounds the memory: a bit each.
const NUMBERS_MAX: usize = 1 << 27;
/// So many of what is missing are told.
const MISSING_TOLD_MAX: usize = 10_000;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Ports to listen on
    #[arg(long, default_value_t = 1)]
    ports: usize,
}

/// What has arrived since the last reset.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Arrivals {
    pub(super) groups: [Group; 2],
    /// Requests that were not answered with 200.
    pub(super) sick: u64,
    /// Different numbers.
    pub(super) distinct: u64,
    /// Nanoseconds since the epoch: the last number that had not been there before.
    pub(super) last_new_at: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Group {
    pub(super) count: u64,
    /// Nanoseconds since the epoch.
    pub(super) first_at: u64,
    pub(super) last_at: u64,
    /// From when it was due to be sent to when it had arrived, in milliseconds.
    pub(super) p50: f64,
    pub(super) p99: f64,
}

impl Group {
    /// Per second, between the first and the last.
    pub(super) fn rate(&self) -> f64 {
        let spent = Duration::from_nanos(self.last_at.saturating_sub(self.first_at)).as_secs_f64();
        if spent > 0.0 { self.count.saturating_sub(1) as f64 / spent } else { 0.0 }
    }
}

#[derive(Default)]
struct Book {
    arrivals: Arrivals,
    latencies: [Histogram; 2],
    seen: Vec<u64>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    runtime::run(1, async {
        let book = Arc::new(Mutex::new(Book::default()));
        let mut ports = Vec::new();
        for _ in 0..args.ports {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot listen")?;
            ports.push(listener.local_addr().context("cannot tell the port")?.port());
            tokio::spawn(accept(listener, Arc::clone(&book)));
        }
        output::print(&format!("{}\n", serde_json::to_string(&ports).context("cannot tell the ports")?))?;
        // Ends together with whoever started it.
        let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
        Ok(())
    })
}

async fn accept(listener: TcpListener, book: Arc<Mutex<Book>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let book = Arc::clone(&book);
        tokio::spawn(async move {
            let service = service_fn(|request| answer(&book, request));
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

async fn answer(book: &Mutex<Book>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return Ok(Response::new(Full::default())) };
    let body = body.to_bytes();
    let book = || -> MutexGuard<'_, Book> { book.lock().unwrap_or_else(PoisonError::into_inner) };
    match head.uri.path() {
        "/0" => book().note(0, &body),
        "/1" => book().note(1, &body),
        "/503" => return Ok(book().sick(StatusCode::SERVICE_UNAVAILABLE)),
        "/429" => return Ok(book().sick(StatusCode::TOO_MANY_REQUESTS)),
        "/hang" => {
            book().sick(StatusCode::OK);
            std::future::pending::<()>().await;
        }
        "/reset" => *book() = Book::default(),
        "/arrivals" => return Ok(json(&book().arrivals())),
        // How many there should be is asked for in the query.
        "/missing" => {
            let wanted = head.uri.query().and_then(|n| n.parse().ok()).unwrap_or(0);
            return Ok(json(&book().missing(wanted)));
        }
        _ => {}
    }
    Ok(Response::new(Full::default()))
}

fn json(value: &impl Serialize) -> Response<Full<Bytes>> {
    Response::new(Full::new(serde_json::to_vec(value).unwrap_or_default().into()))
}

impl Book {
    fn note(&mut self, group: usize, body: &[u8]) {
        let (now, arrived) = (payload::now(), payload::read(body));
        let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let entry = &mut self.arrivals.groups[group];
        entry.count += 1;
        entry.last_at = nanos;
        if entry.first_at == 0 {
            entry.first_at = nanos;
        }
        let Some((n, sent_at)) = arrived else { return };
        self.latencies[group].add(now.saturating_sub(sent_at));
        if self.is_new(n) {
            self.arrivals.distinct += 1;
            self.arrivals.last_new_at = nanos;
        }
    }

    fn is_new(&mut self, n: u64) -> bool {
        let n = usize::try_from(n).unwrap_or(usize::MAX).min(NUMBERS_MAX);
        if self.seen.len() <= n / 64 {
            self.seen.resize(n / 64 + 1, 0);
        }
        let (word, bit) = (&mut self.seen[n / 64], 1 << (n % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    fn sick(&mut self, status: StatusCode) -> Response<Full<Bytes>> {
        self.arrivals.sick += 1;
        let mut response = Response::new(Full::default());
        *response.status_mut() = status;
        response
    }

    fn arrivals(&self) -> Arrivals {
        let mut arrivals = self.arrivals.clone();
        for (group, latency) in arrivals.groups.iter_mut().zip(&self.latencies) {
            (group.p50, group.p99) = (latency.quantile(0.5), latency.quantile(0.99));
        }
        arrivals
    }

    /// Those of the first `wanted` numbers that have not arrived.
    fn missing(&self, wanted: u64) -> Vec<u64> {
        let seen = |n: &u64| {
            let word = usize::try_from(n / 64).ok().and_then(|at| self.seen.get(at));
            word.is_some_and(|word| word & (1 << (n % 64)) != 0)
        };
        (0..wanted).filter(|n| !seen(n)).take(MISSING_TOLD_MAX).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_and_what_came_twice_is_known() {
        let mut book = Book::default();
        for n in [0, 2, 2, 200] {
            let mut body = Vec::new();
            payload::write(&mut body, n, payload::now());
            book.note(0, &body);
        }
        let arrivals = book.arrivals();
        assert_eq!((arrivals.groups[0].count, arrivals.distinct), (4, 3));
        assert_eq!(book.missing(4), [1, 3]);
        assert_eq!(book.missing(202).len(), 199);
    }

    #[test]
    fn a_rate_is_measured_between_the_first_and_the_last() {
        let group = Group { count: 101, first_at: 1_000_000_000, last_at: 3_000_000_000, ..Group::default() };
        assert!((group.rate() - 50.0).abs() < 1e-9);
        assert!(Group::default().rate() == 0.0);
    }
}
