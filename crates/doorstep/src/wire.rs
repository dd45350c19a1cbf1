//! The parts, put together: store, engine and API.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use doorstep_core::address::AddressRules;
use doorstep_core::id::AttemptId;
use doorstep_core::ingest_rate::IngestRate;
use doorstep_core::quota::Quota;
use doorstep_core::scheduler::SchedulerLimits;
use doorstep_core::sender::Sender as SenderSeam;
use doorstep_core::store::Store;
use doorstep_core::time::Millis;
use doorstep_engine::catalog::Catalog;
use doorstep_engine::chance::{self, Ids};
use doorstep_engine::clock::Clock;
use doorstep_engine::consent::Consents;
use doorstep_engine::desk::{Desk, FilterBudget};
use doorstep_engine::events::Events;
use doorstep_engine::ingest::Ingest;
use doorstep_engine::maintain::{self, Retention};
use doorstep_engine::resolve::{DnsSettings, NameServers};
use doorstep_engine::run::{self, Handle, Parts};
use doorstep_engine::sender::{ROOTS_BYTES_MAX, Roots, Sender, SenderSettings};
use doorstep_engine::timekeeper;
use doorstep_engine::writer::Writer;
use doorstep_server::auth::KeyHash;
use doorstep_server::{App, Limits, Place};
use doorstep_store::sqlite::{DataDir, SqliteLimits, State};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::master_key;

/// What a slow watcher may miss before it is told so.
const NEWS_KEPT: usize = 4_096;

/// A running engine, without its door.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) app: Arc<App>,
    /// How many destinations are served.
    pub(crate) n_destinations: usize,
    pub(crate) run: Handle,
    run_task: JoinHandle<()>,
    writer_task: JoinHandle<()>,
    house_task: JoinHandle<()>,
    clock_task: JoinHandle<()>,
    /// What is needed to keep the clock once everything else has ended.
    last_words: (Clock, Writer),
    notes_task: JoinHandle<()>,
}

/// Opens the store, and has everything run that was running before.
/// `address` is where the API is found.
pub(crate) async fn start(config: &Config, admin_key: KeyHash, address: SocketAddr) -> anyhow::Result<Running> {
    let directory = DataDir::take(&config.data_dir)?;
    let keys = master_key::keyring(config.master_key.as_ref().map(|key| &key.0), &directory)?;
    let keys = keys.sealing_payloads(config.encrypt_payloads);
    let quota = quota(config);
    let store = directory.open(keys, &SqliteLimits { quota, ..SqliteLimits::default() })?;
    let warnings = warnings(store.state());
    let store: Arc<dyn Store> = Arc::new(store);
    let clock = Clock::resume(store.clock().await?);
    let no_chance = "the machine gives no random numbers";
    let ids = Arc::new(Ids::new().context(no_chance)?);
    let dice = chance::dice().context(no_chance)?;
    let rules = address_rules(config)?.denying_own(own_addresses(address));
    let public_url = config.public_url.clone().unwrap_or_else(|| format!("http://{address}"));
    let (attempt_ids, reading) = (Arc::clone(&ids), clock.clone());
    let sender = Sender::new(
        sender_settings(config, public_url)?,
        rules.clone(),
        move || reading.look(),
        move |now| AttemptId(attempt_ids.next(now)),
    )?;
    let sender: Arc<dyn SenderSeam> = Arc::new(sender);
    let (writer, writer_task) = Writer::start(Arc::clone(&store), clock.clone());
    let (catalog, events) =
        (Arc::new(Catalog::default().with_defaults(config.defaults())), Arc::new(Events::new(Arc::clone(&store))));
    let news = broadcast::Sender::new(NEWS_KEPT);
    let (run, run_task) = run::start(Parts {
        store: Arc::clone(&store),
        sender: Arc::clone(&sender),
        writer: writer.clone(),
        catalog: Arc::clone(&catalog),
        events: Arc::clone(&events),
        clock: clock.clone(),
        dice: Box::new(dice),
        limits: SchedulerLimits {
            in_flight_max: config.in_flight_max,
            reserved_percent: config.reserved_percent,
            per_host_max: (config.per_host_max > 0).then_some(config.per_host_max),
            ..SchedulerLimits::default()
        },
        news: news.clone(),
    });
    let n_destinations = run::adopt_all(store.as_ref(), &catalog, &run).await?;
    let house_task = maintain::start(Arc::clone(&store), writer.clone(), run.clone(), clock.clone(), retention(config));
    let clock_task = timekeeper::start(clock.clone(), writer.clone(), run.clone());
    let last_words = (clock.clone(), writer.clone());
    let ingest = Ingest { catalog, writer, events, run: run.clone(), clock, ids, pool: Arc::default() };
    let dice = chance::dice().context(no_chance)?;
    let consents = Consents::start(&ingest, Arc::clone(&sender), Box::new(dice));
    let desk = Desk::new(ingest, sender, consents, rules);
    let desk = desk
        .with_destinations_max(config.destinations_per_tenant_max)
        .with_filter_budget(FilterBudget { units_max: config.filter_work_max, payload_max: config.payload_max_bytes });
    let desk = Arc::new(desk);
    let limits = Limits {
        payload_max: config.payload_max_bytes,
        batch_bytes_max: config.batch_max_bytes,
        watchers_max: config.watchers_max,
        ingest_rate: config.ingest_per_second.map(|n| IngestRate { per_second: n, burst: n }),
        strict_event_types: config.strict_event_types,
        quota,
        require_verification: config.require_verification,
        ..Limits::default()
    };
    let place = Place {
        public_url: config.public_url.clone(),
        links_lead_nowhere: config.public_url.is_none() && address.ip().is_unspecified(),
        trusted_proxies: config.trusted_proxies.clone(),
    };
    let app = Arc::new(App::new(desk, store, news, admin_key, limits).placed(place).warned(warnings));
    app.recall().await?;
    let noting = Arc::clone(&app);
    let notes_task = tokio::spawn(async move { noting.keep_notes().await });
    Ok(Running { app, n_destinations, run, run_task, writer_task, house_task, clock_task, last_words, notes_task })
}

fn address_rules(config: &Config) -> anyhow::Result<AddressRules> {
    let rules = config.allow_targets.clone();
    Ok(match &config.nat64_prefix {
        Some(prefix) => prefix.applied_to(rules)?,
        None => rules,
    })
}

/// What the sender is set up with. `doorstep check` asks for it too, to find out what would stop the start.
pub(crate) fn sender_settings(config: &Config, public_url: String) -> anyhow::Result<SenderSettings> {
    let servers = match config.dns_servers.as_slice() {
        [] => NameServers::System,
        servers => NameServers::These(servers.to_vec()),
    };
    Ok(SenderSettings {
        public_url,
        roots: roots(config)?,
        tls_min: config.tls_min_version,
        deadlines: config.deadlines(),
        body_bytes_max: Some(config.response_body_max_bytes),
        dns: DnsSettings { servers, ..DnsSettings::default() },
        ..SenderSettings::default()
    })
}

fn roots(config: &Config) -> anyhow::Result<Roots> {
    let extra = match config.tls_ca_file.as_deref() {
        None => None,
        Some(path) => {
            let shown = path.display();
            let pem = read_up_to(path, ROOTS_BYTES_MAX).map_err(|fault| {
                let advice = "name a file that this user can read, or leave the setting out";
                anyhow::anyhow!("tls_ca_file {shown} cannot be read: {fault}; {advice}")
            })?;
            let read = Roots::read(&pem);
            Some(read.map_err(|fault| anyhow::anyhow!("tls_ca_file {shown} cannot be used: {fault}"))?)
        }
    };
    Ok(match (extra, config.tls_system_roots) {
        (None, true) => Roots::System,
        (Some(extra), true) => Roots::SystemAnd(extra),
        (Some(only), false) => Roots::Only(only),
        (None, false) => anyhow::bail!("tls_system_roots is false, so no certificate is trusted: set tls_ca_file too"),
    })
}

/// A byte more than `max` at most: enough to see that it is too long. The path may lead to something without end.
fn read_up_to(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What readiness checks and people are told of for as long as this process runs.
fn warnings(state: &State) -> Vec<String> {
    let loss = state.loss.map(|loss| format!("{loss}: see docs/operate/damage.md"));
    let faults = state.check.as_ref().map_or(0, |check| check.faults.len());
    let damage =
        (faults > 0).then(|| format!("the database file is damaged ({faults} faults): run `doorstep check --deep`"));
    loss.into_iter().chain(damage).collect()
}

impl Running {
    /// Lets what is in flight come to its end, for at most `within`, and lets go of the store.
    pub(crate) async fn stop(self, within: Duration) {
        let Self { app, run, run_task, writer_task, house_task, clock_task, last_words, notes_task, .. } = self;
        notes_task.abort();
        let _ = notes_task.await;
        app.write_notes().await;
        if tokio::time::timeout(within, run.drain()).await.is_err() {
            tracing::warn!("some requests did not come to their end in time; they are sent again after the next start");
            run_task.abort();
        }
        // It may have been aborted just now.
        let _ = run_task.await;
        let _ = house_task.await;
        let _ = clock_task.await;
        let (clock, writer) = last_words;
        if let Err(fault) = timekeeper::keep(&clock, &writer).await {
            tracing::warn!(error = %fault, "the clock could not be written; the next start goes on from when it last was");
        }
        drop((app, run, writer));
        // All that was to be written is, once the last of those who could ask for more has gone.
        let _ = tokio::time::timeout(within, writer_task).await;
    }
}

/// The addresses that this machine has, public ones included, and the one that it listens on: whoever is delivered to
/// there could reach what is meant for this machine alone.
fn own_addresses(listens_on: SocketAddr) -> Vec<IpAddr> {
    let mut own = interfaces();
    own.extend(Some(listens_on.ip()).filter(|address| !address.is_unspecified()));
    own
}

#[cfg(unix)]
fn interfaces() -> Vec<IpAddr> {
    let all = nix::ifaddrs::getifaddrs().inspect_err(|fault| {
        tracing::warn!(error = %fault, "the system does not say which addresses it has; destinations may lead to public ones of it");
    });
    let address = |one: nix::ifaddrs::InterfaceAddress| -> Option<IpAddr> {
        let address = one.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip())))
    };
    all.into_iter().flatten().filter_map(address).collect()
}

#[cfg(not(unix))]
fn interfaces() -> Vec<IpAddr> {
    Vec::new()
}

/// What each tenant may take of the store. Without a configured limit, none can fill the disk alone.
fn quota(config: &Config) -> Quota {
    let limit = |n: u64| Some(n).filter(|n| *n > 0);
    let stored_bytes = config.stored_bytes_per_tenant_max.or_else(|| half_of_the_room(&config.data_dir));
    Quota { queued_deliveries: limit(config.queued_per_tenant_max), stored_bytes: stored_bytes.and_then(limit) }
}

/// Half of what the data may grow to: what is free on their disk, and what they take already. The whole disk would not do: others may have filled most of it.
fn half_of_the_room(directory: &Path) -> Option<u64> {
    let free = free_bytes(directory)?;
    let files = directory.read_dir().into_iter().flatten().flatten();
    let taken: u64 = files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
    Some(free.saturating_add(taken) / 2)
}

/// What this process may still write there.
#[cfg(unix)]
fn free_bytes(directory: &Path) -> Option<u64> {
    let disk = nix::sys::statvfs::statvfs(directory).inspect_err(|fault| {
        tracing::warn!(error = %fault, "cannot tell how much room the data directory's disk has: tenants have no limit on stored bytes unless one is configured");
    });
    let bytes = disk.ok().map(|disk| u128::from(disk.blocks_available()) * u128::from(disk.fragment_size()))?;
    u64::try_from(bytes).ok()
}

#[cfg(not(unix))]
fn free_bytes(_directory: &Path) -> Option<u64> {
    None
}

fn retention(config: &Config) -> Retention {
    let days = |n: u32| Millis::from_hours(24 * u64::from(n));
    Retention {
        delivered: days(config.retain_delivered_days),
        dead: days(config.retain_dead_days),
        attempts: days(config.retain_attempts_days),
        events: days(config.retain_events_days),
        activity: days(config.retain_activity_days),
        audit: days(config.retain_audit_days),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// A disk that others have filled: the whole of it is not there to be shared.
    #[test]
    fn a_tenant_gets_half_of_what_is_free_and_taken_already() {
        let directory = tempfile::tempdir().unwrap();
        let room = || half_of_the_room(directory.path()).unwrap();
        let disk = nix::sys::statvfs::statvfs(directory.path()).unwrap();
        let bytes = |blocks| u128::from(blocks) * u128::from(disk.fragment_size());
        let (all, used) = (bytes(disk.blocks()), bytes(disk.blocks()) - bytes(disk.blocks_free()));
        assert!(u128::from(room()) <= (all - used) / 2 + (1 << 30), "{} of {all} bytes, {used} of them used", room());
        // A hole takes no room on the disk, so nobody else notices.
        let before = room();
        std::fs::File::create(directory.path().join("doorstep.db")).unwrap().set_len(1 << 40).unwrap();
        assert!(room() > before + (1 << 38), "what the data take counts as theirs");
    }
}
