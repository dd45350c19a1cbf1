//! The configuration in force, and where each value comes from.
//!
//! A flag counts more than a `DOORSTEP_*` variable, that more than `doorstep.toml`, that more than the default. Nothing is
//! guessed: what no setting is called is refused, and all faults are told together, so that they are mended together.

mod keys;
mod defaults;
pub(crate) mod value;
mod args;
mod environment;
mod file;
mod text_file;
mod fault;
mod similar;
mod origin;

mod example;
pub(crate) mod show;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(crate) use args::Args;
pub(crate) use fault::ConfigFaults;
pub(crate) use keys::{Config, KEYS, Key, Shape};
pub(crate) use origin::Origin;
pub(crate) use value::LogFormat;

use crate::failure::{Exit, Failure};

/// Where a configuration file is looked for if none is named; the first that is there is the one.
const FILES: [&str; 2] = ["doorstep.toml", "/etc/doorstep/doorstep.toml"];

/// A configuration without fault.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    /// Every key, in the order of [`KEYS`].
    pub(crate) settings: Vec<Setting>,
    /// The file that was read.
    pub(crate) file: Option<PathBuf>,
}

/// One key's value in force, as it may be shown.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) key: &'static Key,
    /// Secrets are masked; `None`: there is no value.
    pub(crate) shown: Option<String>,
    pub(crate) origin: Origin,
}

/// A value as it was written, and where. It may be a secret, and does not show itself.
struct Given {
    text: String,
    origin: Origin,
}

type Givens = BTreeMap<&'static str, Given>;

/// Loads the configuration of this process.
pub(crate) fn load_here(args: &Args) -> Result<Loaded, Failure> {
    let mut env = Vec::new();
    for (name, value) in std::env::vars_os() {
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => env.push((name, value)),
            (Ok(name), Err(_)) if name.starts_with(environment::PREFIX) => {
                return Err(Failure::said(Exit::ConfigInvalid, format!("the variable `{name}` is not UTF-8 text")));
            }
            // None of ours.
            (Ok(_) | Err(_), _) => {}
        }
    }
    load(args, env, &FILES.map(Path::new)).map_err(|faults| Failure::new(Exit::ConfigInvalid, faults))
}

/// Loads the configuration from these flags, these variables, and the named file or the first of `files` that is there.
pub(crate) fn load(
    args: &Args,
    env: impl IntoIterator<Item = (String, String)>,
    files: &[&Path],
) -> Result<Loaded, ConfigFaults> {
    let mut faults = ConfigFaults::default();
    let env = environment::read(env, &mut faults);
    let named = args.config.as_deref().or(env.config.as_deref());
    let file = named.or_else(|| files.iter().copied().find(|path| path.exists())).map(Path::to_owned);

    let mut given = defaults();
    if let Some(path) = &file {
        given.extend(file::read(path, &mut faults));
    }
    given.extend(env.given);
    given.extend(args.given(&mut faults));
    let config = keys::typed(&given, &mut faults);
    if let Some(config) = &config {
        for fault in defaults::contradictions(config) {
            faults.add(fault);
        }
    }

    let settings = KEYS.iter().filter_map(|key| Some(Setting::new(key, given.remove(key.name)?))).collect();
    match config {
        Some(config) if faults.is_empty() => Ok(Loaded { config, settings, file }),
        _ => Err(faults),
    }
}

fn defaults() -> Givens {
    let given = |key: &Key| Given { text: key.default.to_owned(), origin: Origin::Default };
    KEYS.iter().map(|key| (key.name, given(key))).collect()
}

impl Setting {
    fn new(key: &'static Key, given: Given) -> Self {
        let shown = match key.shape {
            _ if given.text.is_empty() => None,
            Shape::Secret => Some("********".to_owned()),
            Shape::Text | Shape::Number | Shape::Switch | Shape::List | Shape::Json => Some(given.text),
        };
        Self { key, shown, origin: given.origin }
    }
}
