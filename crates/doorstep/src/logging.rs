//! Log lines, on standard error: for people on a terminal, for programs elsewhere.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Config, LogFormat};

/// From here on what is logged is written.
pub(crate) fn start(config: &Config) {
    let pretty = match config.log_format {
        LogFormat::Pretty => true,
        LogFormat::Json => false,
        LogFormat::Auto => std::io::stderr().is_terminal(),
    };
    // It was read once when the configuration was.
    let filter = EnvFilter::new(&config.log_level);
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second start in one process, as in tests, keeps the first one's.
    let _ = if pretty {
        lines.with_ansi(std::io::stderr().is_terminal()).finish().try_init()
    } else {
        lines.json().flatten_event(true).finish().try_init()
    };
}
