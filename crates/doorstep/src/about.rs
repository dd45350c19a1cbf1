//! What the command says of itself: the API's description, completions for shells, and manual pages.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use doorstep_server::{openapi, router};

use crate::failure::Failure;
use crate::output;

const NAME: &str = "doorstep";

#[derive(clap::Args)]
pub(crate) struct Completions {
    /// Which shell
    shell: Shell,
}

#[derive(clap::Args)]
pub(crate) struct Manual {
    /// Write a page for each command into this directory, instead of one for all to standard output
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn openapi() -> Result<(), Failure> {
    output::print(&openapi::text(&router::document()))
}

pub(crate) fn completions(args: &Completions, mut command: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, NAME, &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

pub(crate) fn manual(args: &Manual, mut command: Command) -> Result<(), Failure> {
    // Only a built command knows what its parts inherit.
    command.build();
    let Some(dir) = &args.dir else { return output::print(&page(NAME, &command)?) };
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    write(dir, NAME, &command)
}

fn write(dir: &Path, name: &str, command: &Command) -> Result<(), Failure> {
    let path = dir.join(format!("{name}.1"));
    fs::write(&path, page(name, command)?).with_context(|| format!("cannot write {}", path.display()))?;
    for part in command.get_subcommands().filter(|part| !part.is_hide_set() && part.get_name() != "help") {
        write(dir, &format!("{name}-{}", part.get_name()), part)?;
    }
    Ok(())
}

fn page(name: &str, command: &Command) -> Result<String, Failure> {
    let mut page = Vec::new();
    Man::new(command.clone()).title(name.to_uppercase()).render(&mut page).context("cannot write the page")?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
