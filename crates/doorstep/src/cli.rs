//! The commands. Each is a module with its `Args` and a `run` that either succeeds or says how it failed.

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::failure::Failure;
use crate::{about, bench, check, config, ctl, demo, listen, policy, send, serve, sign, tail, verify};

/// A self-hosted webhook delivery engine
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Take events in over HTTP and deliver them
    Serve(config::Args),
    /// See it work: a server, receivers that misbehave, and traffic
    Demo(demo::Args),
    /// Send an event to a running server
    Send(send::Args),
    /// Watch a running server deliver
    Tail(tail::Args),
    /// Whose events and destinations they are
    Tenants(ctl::tenants::Args),
    /// The URLs that receive events, and a hand on their gates
    #[command(visible_alias = "destinations")]
    Dest(ctl::dest::Args),
    /// What happened
    Events(ctl::events::Args),
    /// One event to one destination: what has come of it, again, or no more
    Deliveries(ctl::deliveries::Args),
    /// What events are for, and what their payloads look like
    EventTypes(ctl::event_types::Args),
    /// What programs are let in with
    Keys(ctl::keys::Args),
    /// A link to a tenant's own pages
    Portal(ctl::portal::Args),
    /// Who changed what
    Audit(ctl::audit::Args),
    /// Make tenants, event types and destinations what a file says
    Apply(ctl::apply::Args),
    /// Check the configuration and this machine, without starting anything
    Check(check::Args),
    /// Receive webhooks, verify them, and misbehave on request
    Listen(listen::Args),
    /// Sign a body as Doorstep does, to try a receiver with
    Sign(sign::Args),
    /// Whether a request was signed with this secret, and if not, why
    Verify(verify::Args),
    /// Look at a retry policy before it is used
    Policy(policy::Args),
    /// Show the configuration in force, and where each value comes from
    Config(config::show::Args),
    /// Measure what this machine can do, as ratios to what its network and its disk allow
    Bench(bench::Args),
    /// The description of the HTTP API, OpenAPI 3.1
    Openapi,
    /// Completions for a shell: doorstep completions bash > /etc/bash_completion.d/doorstep
    Completions(about::Completions),
    /// The manual: doorstep man | man -l -
    Man(about::Manual),
    /// The load of a benchmark, as a process of its own
    #[command(hide = true)]
    BenchLoad(bench::load::Args),
    /// The receiver of a benchmark, as a process of its own
    #[command(hide = true)]
    BenchReceiver(bench::receiver::Args),
}

pub(crate) fn run() -> ExitCode {
    // A usage mistake ends here, in clap's words and with its exit code, which is ours: 2.
    let given = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&given).unwrap_or_else(|fault| fault.exit());
    match dispatch(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell(is_for_programs(&given)),
    }
}

/// Whether the command was given `--json`.
fn is_for_programs(given: &ArgMatches) -> bool {
    let here = given.try_get_one("json").is_ok_and(|json| json == Some(&true));
    here || given.subcommand().is_some_and(|(_, of_part)| is_for_programs(of_part))
}

fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Send(args) => send::run(args),
        Command::Tail(args) => tail::run(&args),
        Command::Tenants(args) => ctl::tenants::run(args),
        Command::Dest(args) => ctl::dest::run(args),
        Command::Events(args) => ctl::events::run(args),
        Command::Deliveries(args) => ctl::deliveries::run(args),
        Command::EventTypes(args) => ctl::event_types::run(args),
        Command::Keys(args) => ctl::keys::run(args),
        Command::Portal(args) => ctl::portal::run(&args),
        Command::Audit(args) => ctl::audit::run(args),
        Command::Apply(args) => ctl::apply::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Listen(args) => listen::run(args),
        Command::Sign(args) => sign::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Policy(args) => policy::run(args),
        Command::Config(args) => config::show::run(args),
        Command::Bench(args) => bench::run(&args),
        Command::Openapi => about::openapi(),
        Command::Completions(args) => about::completions(&args, Cli::command()),
        Command::Man(args) => about::manual(&args, Cli::command()),
        Command::BenchLoad(args) => bench::load::run(&args),
        Command::BenchReceiver(args) => bench::receiver::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret_source::{API_KEY, LISTEN, SIGNING};

    #[test]
    fn the_commands_and_their_options_fit_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn programs_are_those_who_ask_for_json() {
        for (words, json) in [
            (&["doorstep", "tenants", "list", "--json"][..], true),
            (&["doorstep", "tenants", "list"], false),
            (&["doorstep", "tenants", "create", "--", "--json"], false),
            (&["doorstep", "check", "--json"], true),
            (&["doorstep", "openapi"], false),
        ] {
            let given = Cli::command().try_get_matches_from(words).unwrap();
            assert_eq!(is_for_programs(&given), json, "{words:?}");
        }
    }

    /// Every variable that a command or a part of it reads.
    fn variables(command: &clap::Command) -> Vec<String> {
        let own = command.get_arguments().filter_map(|arg| Some(arg.get_env()?.to_str()?.to_owned()));
        own.chain(command.get_subcommands().flat_map(variables)).collect()
    }

    #[test]
    fn no_command_stumbles_over_a_variable_of_another() {
        let names = variables(&Cli::command());
        assert!(names.iter().any(|name| name == "DOORSTEP_URL"), "{names:?}");
        let secrets = [API_KEY, SIGNING, LISTEN].map(|source| source.variables());
        for name in names.into_iter().chain(secrets.into_iter().flatten()) {
            config::load(&config::Args::default(), [(name, "x".to_owned())], &[]).unwrap();
        }
    }

    /// Every command that does something, as it is typed.
    fn typed(name: &str, command: &clap::Command) -> Vec<String> {
        let parts = command.get_subcommands().filter(|part| !part.is_hide_set());
        let parts: Vec<String> = parts.flat_map(|part| typed(&format!("{name} {}", part.get_name()), part)).collect();
        if parts.is_empty() { vec![name.to_owned()] } else { parts }
    }

    #[test]
    fn the_reference_names_every_command() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md")).unwrap();
        let all = typed("doorstep", &Cli::command());
        let missing: Vec<_> = all.iter().filter(|name| !page.contains(&format!("`{name}"))).collect();
        assert!(missing.is_empty() && all.len() > 40, "docs/reference/cli.md lacks {missing:?}");
    }
}
