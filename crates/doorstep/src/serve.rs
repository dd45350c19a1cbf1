//! `doorstep serve`: takes events in, delivers them, and ends without losing any.

use std::time::Duration;

use anyhow::Context;
use doorstep_server::connections::{self, ConnectionLimits};
use doorstep_server::router::router;
use tokio::net::TcpListener;

use crate::admin_key::AdminKey;
use crate::config::{self, Config};
use crate::failure::{Exit, Failure};
use crate::{logging, output, runtime, wire};

/// A key that everything can be done with should not be guessed.
const KEY_LEN_ADVISED: usize = 24;

pub(crate) fn run(args: &config::Args) -> Result<(), Failure> {
    let config = config::load_here(args)?.config;
    logging::start(&config);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // Never on the caller's own thread: the engine goes on while somebody is answered.
    runtime::run(threads.max(2), serve(&config))
}

async fn serve(config: &Config) -> Result<(), Failure> {
    let end = runtime::asked_to_end()?;
    std::fs::create_dir_all(&config.data_dir)
        .with_context(|| format!("cannot make the data directory {}", config.data_dir.display()))?;
    let given = config.admin_key.as_ref().map(|key| key.0.as_str());
    if given.is_some_and(|key| key.len() < KEY_LEN_ADVISED) {
        tracing::warn!("the admin key is short: choose one of at least {KEY_LEN_ADVISED} random characters");
    }
    // First the port and the store: whoever finds them taken has not been given a key yet.
    let listener = TcpListener::bind(config.listen).await.map_err(|fault| {
        let advice = "choose another address with --listen, or stop what uses it";
        Failure::new(
            Exit::Failed,
            anyhow::Error::new(fault).context(format!("cannot listen on {}: {advice}", config.listen)),
        )
    })?;
    let address = listener.local_addr().context("cannot tell the address that was taken")?;
    let admin_key = AdminKey::of(given, &config.data_dir)?;
    let running = wire::start(config, admin_key.hash, address).await?;
    tracing::info!(destinations = running.n_destinations, data_dir = %config.data_dir.display(), "ready");
    if let Some(key) = &admin_key.made {
        output::print(&format!(
            "admin key: {key}\n  It is shown this once and not kept: use it as `Authorization: Bearer KEY`.\n"
        ))?;
    }
    output::print(&format!("doorstep {} listening on http://{address}\n", env!("CARGO_PKG_VERSION")))?;

    let within = Duration::from_millis(config.drain_timeout_ms.0);
    let app = std::sync::Arc::clone(&running.app);
    let router = router(std::sync::Arc::clone(&app));
    let (run, mut died) = (running.run.clone(), false);
    let stop = async {
        tokio::select! {
            () = end => tracing::info!("asked to end: nothing new is taken, and what is in flight comes to its end"),
            () = run.ended() => died = true,
        }
        app.end_streams();
    };
    connections::serve(listener, router, connection_limits(config), stop, within).await;
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
