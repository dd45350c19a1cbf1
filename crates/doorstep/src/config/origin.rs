//! Where a value comes from.

use std::fmt;
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File {
        path: PathBuf,
        line: usize,
    },
    Env {
        name: String,
    },
    /// The variable names a file, which holds the value.
    EnvFile {
        name: String,
        path: PathBuf,
    },
    Flag {
        name: String,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{} line {line}", path.display()),
            Self::Env { name } | Self::Flag { name } => f.write_str(name),
            Self::EnvFile { name, path } => write!(f, "{name} {}", path.display()),
        }
    }
}
