//! `doorstep serve`: takes events in, delivers them, and ends without losing any.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use doorstep_server::connections::{self, ConnectionLimits};
use doorstep_server::router::{metrics_router, router};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::admin_key::AdminKey;
use crate::config::{self, Config};
use crate::failure::{Exit, Failure};
use crate::{logging, output, private_file, runtime, wire};

/// Connections to the listener for metrics: a scraper or two, and whoever looks after the machine.
const METRICS_CONNECTIONS_MAX: usize = 64;

pub(crate) fn run(args: &config::Args) -> Result<(), Failure> {
    let config = config::load_here(args)?.config;
    logging::start(&config);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // Never on the caller's own thread: the engine goes on while somebody is answered.
    runtime::run(threads.max(2), serve(&config))
}

async fn serve(config: &Config) -> Result<(), Failure> {
    let end = runtime::asked_to_end()?;
    let given = config.admin_key.as_ref().map(|key| key.0.as_str());
    // First the port and the store: whoever finds them taken has not been given a key yet.
    let listener = listen(config.listen, "--listen").await?;
    let metrics = match config.metrics_listen {
        Some(address) => Some(listen(address, "--metrics-listen").await?),
        None => None,
    };
    let address = listener.local_addr().context("cannot tell the address that was taken")?;
    let admin_key = AdminKey::of(given, &config.data_dir)?;
    let running = wire::start(config, admin_key.hash, address).await?;
    if let Some(mode) = private_file::open_to_others(&config.data_dir) {
        let (path, mode) = (config.data_dir.display(), format!("{mode:o}"));
        tracing::warn!(data_dir = %path, mode, "other users of this machine can read in the data directory: `chmod 700` it");
    }
    tracing::info!(destinations = running.n_destinations, data_dir = %config.data_dir.display(), "ready");
    if let Some(made) = &admin_key.made {
        let key = &made.key;
        output::print_once(&format!(
            "admin key: {key}\n  It is shown this once and not kept: use it as `Authorization: Bearer KEY`.\n"
        ))?;
        made.keep()?;
    }
    if let Some(metrics) = &metrics {
        let address = metrics.local_addr().context("cannot tell the address that was taken")?;
        output::print(&format!("doorstep metrics at http://{address}/metrics\n"))?;
    }
    output::print(&format!("doorstep {} listening on http://{address}\n", env!("CARGO_PKG_VERSION")))?;

    let within = Duration::from_millis(config.drain_timeout_ms.0);
    let app = Arc::clone(&running.app);
    let router = router(Arc::clone(&app));
    let (run, mut died) = (running.run.clone(), false);
    let stop = async {
        tokio::select! {
            () = end => tracing::info!("shutting down; draining in-flight requests"),
            () = run.ended() => died = true,
        }
        app.end_streams();
    };
    let (ending, mut ended) = watch::channel(());
    let api = async {
        connections::serve(listener, router, connection_limits(config), stop, within).await;
        drop(ending);
    };
    let metrics = async {
        let Some(listener) = metrics else { return };
        let router = metrics_router(Arc::clone(&app));
        let stop = async { while ended.changed().await.is_ok() {} };
        let limits = ConnectionLimits::default().with_connections(METRICS_CONNECTIONS_MAX, None);
        connections::serve(listener, router, limits, stop, Duration::ZERO).await;
    };
    tokio::join!(api, metrics);
    drop(app);
    if died {
        // Nothing is lost: whoever watches over this process starts it again.
        return Err(Failure::said(Exit::Failed, "the run loop has ended by a mistake of ours; the log says where"));
    }
    let again = runtime::asked_to_end()?;
    tokio::select! {
        () = running.stop(within) => tracing::info!("ended; nothing is lost"),
        () = again => tracing::warn!("asked again: ended at once; what was in flight is sent again after the next start"),
    }
    Ok(())
}

async fn listen(address: SocketAddr, flag: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|fault| {
        let advice = format!("choose another address with {flag}, or stop what uses it");
        Failure::new(Exit::Failed, anyhow::Error::new(fault).context(format!("cannot listen on {address}: {advice}")))
    })
}

fn connection_limits(config: &Config) -> ConnectionLimits {
    let limits = ConnectionLimits { proxies: config.trusted_proxies.clone(), ..ConnectionLimits::default() };
    limits.with_connections(config.connections_max, config.connections_per_peer_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(env: &[(&str, &str)]) -> ConnectionLimits {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        connection_limits(&config::load(&config::Args::default(), env, &[]).unwrap().config)
    }

    #[test]
    fn connections_are_limited_as_configured_and_a_peer_to_a_part_of_them() {
        let counts = |limits: ConnectionLimits| (limits.connections_max, limits.per_peer_max);
        let default = ConnectionLimits::default();
        assert_eq!(counts(limits(&[])), counts(default));
        assert_eq!(counts(limits(&[("DOORSTEP_CONNECTIONS_MAX", "80")])), (80, 10));
        assert_eq!(counts(limits(&[("DOORSTEP_CONNECTIONS_MAX", "1")])), (1, 1), "everybody may come in");
        assert_eq!(counts(limits(&[("DOORSTEP_CONNECTIONS_PER_PEER_MAX", "7")])), (4_096, 7));
        let proxied = limits(&[("DOORSTEP_TRUSTED_PROXIES", "10.0.0.5")]);
        assert_eq!(proxied.proxies, doorstep_server::auth::Proxies::parse("10.0.0.5").unwrap());
        assert!(proxied.loopback_is_a_crowd);
    }
}
