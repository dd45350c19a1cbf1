//! Where async commands run, and how they hear that they should end.

use anyhow::Context;
use tokio::runtime::Builder;

use crate::failure::Failure;

/// Runs an async command on so many threads. One thread runs everything on the caller's own, which is the cheapest.
pub(crate) fn run<T>(threads: usize, command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut builder = match threads {
        0 | 1 => Builder::new_current_thread(),
        more => {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(more);
            builder
        }
    };
    let runtime = builder.enable_all().build().context("cannot start the async runtime")?;
    runtime.block_on(command)
}

/// Resolves when the process is asked to end: Ctrl-C, or SIGTERM where there is such a thing.
///
/// The signals are caught from this call on, not only once the result is awaited: what comes in between is not lost.
pub(crate) fn asked_to_end() -> Result<impl Future<Output = ()>, Failure> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        Ok(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        })
    }
    #[cfg(not(unix))]
    Ok(async {
        // Without the signal the process ends by force, which is no worse.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
