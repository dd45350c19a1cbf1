//! The processes that take part: each runs this same program, and none outlives the benchmark.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, sleep, timeout};

use super::client::Client;
use super::load::{Plan, Report, Route};
use super::machine;
use super::receiver::Arrivals;

/// A process that has not started by then never will.
const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// A load ends by itself; this is for one that does not.
const LOAD_GRACE: Duration = Duration::from_secs(120);
/// Arrivals are asked for this often.
const LOOK_EVERY: Duration = Duration::from_millis(20);

struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        // What is set for a Doorstep of the operator's is not meant for these.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DOORSTEP_")) {
            command.env_remove(name);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("cannot start a process")?;
        let stdout = child.stdout.take().context("a process has no output")?;
        Ok(Self { stdin: child.stdin.take(), stdout: BufReader::new(stdout).lines(), child })
    }

    async fn line(&mut self, within: Duration) -> anyhow::Result<String> {
        let line = timeout(within, self.stdout.next_line()).await.context("a process said nothing in time")??;
        line.context("a process ended before it said anything")
    }

    fn id(&self) -> anyhow::Result<u32> {
        self.child.id().context("a process has ended")
    }
}

fn this_program() -> anyhow::Result<Command> {
    Ok(Command::new(std::env::current_exe().context("cannot tell which program this is")?))
}

pub(super) struct Receiver {
    _process: Process,
    client: Client,
    pub(super) ports: Vec<u16>,
}

impl Receiver {
    pub(super) async fn start(ports: usize) -> anyhow::Result<Self> {
        let mut process = Process::start(this_program()?.args(["bench-receiver", "--ports", &ports.to_string()]))?;
        let ports: Vec<u16> = serde_json::from_str(&process.line(STARTS_WITHIN).await?)?;
        let first = *ports.first().context("the receiver has no port")?;
        let client = Client::connect((Ipv4Addr::LOCALHOST, first).into(), None).await?;
        Ok(Self { _process: process, client, ports })
    }

    pub(super) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports.first().copied().unwrap_or_default()).into()
    }

    /// Destinations are spread over the ports: each is a host of its own.
    pub(super) fn url(&self, n: usize, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.ports[n % self.ports.len()])
    }

    pub(super) async fn reset(&mut self) -> anyhow::Result<()> {
        self.client.call(Method::POST, "/reset", Bytes::new()).await?;
        Ok(())
    }

    pub(super) async fn arrivals(&mut self) -> anyhow::Result<Arrivals> {
        self.client.get("/arrivals").await
    }

    /// Those of the first `wanted` numbers that have not arrived.
    pub(super) async fn missing(&mut self, wanted: u64) -> anyhow::Result<Vec<u64>> {
        self.client.get(&format!("/missing?{wanted}")).await
    }

    /// Waits until so many have arrived in this group. Gives up when nothing more comes.
    pub(super) async fn wait_for(&mut self, group: usize, wanted: u64, patience: Duration) -> anyhow::Result<Arrivals> {
        let (mut count, mut since) = (0, Instant::now());
        loop {
            let arrivals = self.arrivals().await?;
            let now = arrivals.groups[group].count;
            if now >= wanted {
                return Ok(arrivals);
            }
            if now > count {
                (count, since) = (now, Instant::now());
            }
            anyhow::ensure!(since.elapsed() < patience, "{now} of {wanted} deliveries arrived, and then no more");
            sleep(LOOK_EVERY).await;
        }
    }
}

pub(super) struct Engine {
    process: Process,
    pub(super) api: Client,
    address: SocketAddr,
    key: String,
}

impl Engine {
    /// Starts on this data directory, with nothing but the defaults.
    pub(super) async fn start(directory: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(directory)?;
        let config = directory.join("bench.toml");
        std::fs::write(&config, "")?;
        let key = "a key that only lives as long as this benchmark";
        let mut process = Process::start(
            this_program()?
                .args(["serve", "--listen", "127.0.0.1:0", "--log-level", "error", "--allow-targets", "127.0.0.0/8"])
                .args([std::ffi::OsStr::new("--config"), config.as_os_str()])
                .args([std::ffi::OsStr::new("--data-dir"), directory.as_os_str()])
                .env("DOORSTEP_ADMIN_KEY", key.replace(' ', "-")),
        )?;
        let key = key.replace(' ', "-");
        let line = process.line(STARTS_WITHIN).await.context("the engine does not start")?;
        let address = line.rsplit_once("http://").context("the engine does not say where it listens")?.1.parse()?;
        Ok(Self { process, api: Client::connect(address, Some(&key)).await?, address, key })
    }

    pub(super) async fn tenant(&mut self, name: &str) -> anyhow::Result<String> {
        let made: Value = self.api.post("/v1/tenants", &json!({ "name": name })).await?;
        Ok(made["id"].as_str().context("a tenant has no ID")?.to_owned())
    }

    pub(super) async fn destination(&mut self, settings: &Value) -> anyhow::Result<String> {
        let made: Value = self.api.post("/v1/destinations", settings).await?;
        Ok(made["id"].as_str().context("a destination has no ID")?.to_owned())
    }

    pub(super) async fn change(&mut self, id: &str, settings: &Value) -> anyhow::Result<()> {
        let _: Value = self.api.ask(Method::PATCH, &format!("/v1/destinations/{id}"), settings).await?;
        Ok(())
    }

    /// So many tenants with a destination each, at this path, that set no limit. Returns the way to each.
    pub(super) async fn unlimited(&mut self, n: usize, to: &Receiver, path: &str) -> anyhow::Result<Vec<Route>> {
        let mut routes = Vec::new();
        for at in 0..n {
            let tenant_id = self.tenant(&format!("tenant {at}")).await?;
            self.destination(&unlimited(&tenant_id, &to.url(at, path))).await?;
            routes.push(Route { tenant_id, event_type: "bench.event".to_owned() });
        }
        Ok(routes)
    }

    /// A load on the engine's API.
    pub(super) fn plan(&self, plan: Plan) -> Plan {
        Plan { address: self.address, key: Some(self.key.clone()), ..plan }
    }

    /// Memory in MB: now, and at most so far.
    pub(super) fn memory(&self) -> Option<(f64, f64)> {
        machine::memory(self.process.id().ok()?)
    }

    /// Processor time so far, in seconds.
    pub(super) fn cpu(&self) -> Option<f64> {
        machine::cpu(self.process.id().ok()?)
    }

    /// As `kill -9` does.
    pub(super) async fn kill(mut self) -> anyhow::Result<()> {
        Ok(self.process.child.kill().await?)
    }
}

/// A destination whose limits are not what is measured.
pub(super) fn unlimited(tenant_id: &str, url: &str) -> Value {
    json!({ "tenant_id": tenant_id, "url": url, "concurrency": 64, "rate_limit": fastest() })
}

pub(super) fn fastest() -> Value {
    json!({ "per_second": 100_000, "burst": 100_000 })
}

/// A load that is under way.
pub(super) struct Load {
    process: Process,
    within: Duration,
    may_fail: bool,
}

impl Load {
    pub(super) async fn start(plan: &Plan) -> anyhow::Result<Self> {
        let mut process = Process::start(this_program()?.arg("bench-load"))?;
        let mut stdin = process.stdin.take().context("a process has no input")?;
        stdin.write_all(format!("{}\n", serde_json::to_string(plan)?).as_bytes()).await?;
        let (super::load::Pace::Closed { within, .. } | super::load::Pace::Open { within, .. }) = plan.pace;
        Ok(Self { process, within: within + LOAD_GRACE, may_fail: plan.may_fail })
    }

    pub(super) async fn report(mut self) -> anyhow::Result<Report> {
        let report: Report = serde_json::from_str(&self.process.line(self.within).await.context("a load failed")?)?;
        if let (Some(refusal), false) = (&report.refusal, self.may_fail) {
            anyhow::bail!("{} of the load's requests were refused, first with {refusal}", report.refused);
        }
        Ok(report)
    }
}

/// Sends all of it.
pub(super) async fn load(plan: &Plan) -> anyhow::Result<Report> {
    Load::start(plan).await?.report().await
}
