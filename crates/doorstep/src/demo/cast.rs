//! The receivers, each a process of its own: `doorstep listen` with its kind of misbehaviour.

use std::process::Stdio;

use anyhow::{Context, anyhow};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

pub(super) struct Role {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    flags: &'static [&'static str],
}

impl Role {
    /// Its place in the cast.
    pub(super) const OUTAGE: usize = 4;
}

pub(super) const CAST: [Role; 5] = [
    Role { name: "healthy", about: "answers at once", flags: &[] },
    Role { name: "slow", about: "takes 0.3 to 0.9 s for each answer", flags: &["--delay", "300ms..900ms"] },
    Role { name: "flaky", about: "answers 503 to three in ten", flags: &["--fail", "30%"] },
    Role { name: "limited", about: "takes 20 in 10 s and answers 429 to the rest", flags: &["--rate-limit", "20/10s"] },
    Role { name: "outage", about: "works, is gone after 6 s, and is back after 24 s", flags: &[] },
];

pub(super) struct Troupe {
    players: Vec<Player>,
}

struct Player {
    port: u16,
    /// Killed when it is dropped.
    process: Option<Child>,
}

impl Troupe {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let mut players = Vec::with_capacity(CAST.len());
        for role in &CAST {
            let (process, port) = start(role, 0).await?;
            players.push(Player { port, process: Some(process) });
        }
        Ok(Self { players })
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = u16> {
        self.players.iter().map(|player| player.port)
    }

    pub(super) async fn kill(&mut self, nth: usize) -> anyhow::Result<()> {
        if let Some(mut process) = self.players[nth].process.take() {
            process.kill().await.context("cannot end a receiver")?;
        }
        Ok(())
    }

    /// The same receiver, at the same address.
    pub(super) async fn revive(&mut self, nth: usize) -> anyhow::Result<()> {
        let (process, _) = start(&CAST[nth], self.players[nth].port).await?;
        self.players[nth].process = Some(process);
        Ok(())
    }
}

/// Starts a receiver and waits until it says where it listens.
async fn start(role: &Role, port: u16) -> anyhow::Result<(Child, u16)> {
    let executable = std::env::current_exe().context("cannot find this program")?;
    let mut process = Command::new(executable)
        .args(["listen", "--quiet", "--end-with-stdin", "--port", &port.to_string()])
        .args(role.flags)
        // Closed when this process ends, even if it is killed.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start the receiver {}", role.name))?;
    let said = process.stdout.take().ok_or_else(|| anyhow!("the receiver {} says nothing", role.name))?;
    let mut line = String::new();
    BufReader::new(said).read_line(&mut line).await.context("a receiver did not say where it listens")?;
    let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok());
    let port = port.with_context(|| format!("the receiver {} did not start: {line:?}", role.name))?;
    Ok((process, port))
}
