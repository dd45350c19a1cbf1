//! The flags that set what the file and the environment may set too: one for every key.

use std::fmt;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, FromArgMatches};

use super::{ConfigFaults, Given, Givens, KEYS, Key, Origin, Shape};

/// For commands that need the configuration: `#[command(flatten)] config: config::Args`.
#[derive(Clone, Default)]
pub(crate) struct Args {
    pub(crate) config: Option<PathBuf>,
    pub(super) flags: Vec<(&'static Key, String)>,
}

impl Args {
    /// No flags but the one that names the file.
    pub(crate) fn of_file(config: Option<PathBuf>) -> Self {
        Self { config, flags: Vec::new() }
    }

    /// What the flags say. A secret is refused: every user of the machine can read the arguments of a process.
    pub(super) fn given(&self, faults: &mut ConfigFaults) -> Givens {
        for (key, _) in self.flags.iter().filter(|(key, _)| key.shape == Shape::Secret) {
            faults.add(format!(
                "--{} is not accepted, because other users of this machine can read the arguments of a process: set {}, or name a file \
                 that holds it with {}",
                key.flag(),
                key.env(),
                key.env_file()
            ));
        }
        let given = |key: &Key, text: &String| Given {
            text: text.clone(),
            origin: Origin::Flag { name: format!("--{}", key.flag()) },
        };
        let open = self.flags.iter().filter(|(key, _)| key.shape != Shape::Secret);
        open.map(|(key, text)| (key.name, given(key, text))).collect()
    }
}

/// Names only: some of the values are secrets.
impl fmt::Debug for Args {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags: Vec<&str> = self.flags.iter().map(|(key, _)| key.name).collect();
        f.debug_struct("Args").field("config", &self.config).field("flags", &flags).finish()
    }
}

/// By hand, because the flags follow from the table of keys.
impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("Configuration file [env: DOORSTEP_CONFIG] [default: doorstep.toml here or in /etc/doorstep]");
        let flag = |key: &'static Key| {
            let default = if key.default.is_empty() { String::new() } else { format!(" [default: {}]", key.default) };
            let text = key.about().trim_end_matches('.');
            Arg::new(key.name)
                .long(key.flag())
                .value_name(match key.shape {
                    Shape::Text | Shape::Secret => "TEXT",
                    Shape::Number => "N",
                    Shape::Switch => "BOOL",
                    Shape::List => "LIST",
                    Shape::Json => "JSON",
                })
                // Known only to be refused with a reason.
                .hide(key.shape == Shape::Secret)
                .allow_hyphen_values(true)
                .help(format!("{text} [env: {}]{default}", key.env()))
        };
        let args = std::iter::once(file).chain(KEYS.iter().map(flag));
        command.args(args.map(|arg| arg.help_heading("Configuration")))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flag = |key: &'static Key| Some((key, matches.get_one::<String>(key.name)?.clone()));
        Ok(Self { config: matches.get_one("config").cloned(), flags: KEYS.iter().filter_map(flag).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
