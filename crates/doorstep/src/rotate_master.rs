//! `doorstep keys rotate-master`: another master key for what is stored.
//!
//! The new key is safe on disk before anything is sealed with it, and the old one stays until nothing needs it: interrupted
//! anywhere, the same command goes on.

use std::ops::ControlFlow;
use std::path::PathBuf;

use doorstep_engine::clock::Clock;
use doorstep_store::seal::{KeyId, Keyring, MasterKey};
use doorstep_store::sqlite::{DataDir, OpenError, ROTATE_AT_ONCE};

use crate::config::{self, Config};
use crate::failure::{Exit, Failure};
use crate::master_key::{self, Files, KeyBytes};
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// File with the new key: 32 bytes in base64
    #[arg(long, value_name = "FILE", required_unless_present = "generate")]
    new_key_file: Option<PathBuf>,
    /// Make the new key, if the present one is kept in the data directory
    #[arg(long, conflicts_with = "new_key_file")]
    generate: bool,
    #[command(flatten)]
    config: config::Args,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let config = config::load_here(&args.config)?.config;
    let directory = take(&config)?;
    let in_use = directory.master_keys().map_err(told)?;
    if in_use.is_empty() {
        return Err(Failure::said(Exit::NotFound, format!("nothing is sealed in {} yet", config.data_dir.display())));
    }
    match &config.master_key {
        Some(given) => change_given(args, &directory, &given.0),
        None => change_kept(args, &directory, &in_use),
    }
}

fn take(config: &Config) -> Result<DataDir, Failure> {
    let path = &config.data_dir;
    if !path.exists() {
        return Err(Failure::said(Exit::NotFound, format!("there is no data directory {}", path.display())));
    }
    DataDir::take(path).map_err(told)
}

/// The operator keeps the key: where the new one goes is for the operator to say.
fn change_given(args: &Args, directory: &DataDir, old: &KeyBytes) -> Result<(), Failure> {
    let Some(file) = &args.new_key_file else {
        let advice = "make one with `openssl rand -base64 32`, and name its file with --new-key-file";
        return Err(Failure::said(
            Exit::Usage,
            format!("the master key is given by the configuration, so a new one has no place here: {advice}"),
        ));
    };
    let new = master_key::read(file)?;
    check_differs(old, &new)?;
    let (before, now) = change(directory, old, &new)?;
    output::print(&format!(
        "The master key is now {now}. Put it in the place of {before} in the configuration before the server is started.\n{BACKUPS}"
    ))
}

/// The key is kept in the data directory, and so will the new one.
fn change_kept(args: &Args, directory: &DataDir, in_use: &[KeyId]) -> Result<(), Failure> {
    let files = Files::of(directory);
    let Some(old) = files.read_current()? else {
        return Err(Failure::said(Exit::Failed, master_key::lost(&files.current, in_use)));
    };
    let begun = files.read_next()?.filter(|next| in_use.contains(&MasterKey::new(next).id()));
    let new = match (&args.new_key_file, begun) {
        (None, Some(begun)) => begun,
        (None, None) => master_key::new_key()?,
        (Some(file), begun) => {
            let new = master_key::read(file)?;
            if let Some(begun) = begun.filter(|begun| *begun != new) {
                let id = MasterKey::new(&begun).id();
                return Err(Failure::said(
                    Exit::Conflict,
                    format!("a change to the master key {id} was interrupted: finish it first, with --generate"),
                ));
            }
            new
        }
    };
    check_differs(&old, &new)?;
    master_key::write(&files.next, &new)?;
    let (before, now) = change(directory, &old, &new)?;
    files.next_is_current()?;
    let path = files.current.display();
    output::print(&format!("The master key is now {now}, in {path}; {before} is not kept.\n{BACKUPS}"))
}

const BACKUPS: &str = "Keep a copy of it, apart from the backups of the data. Backups made before need the old key.\n";

fn check_differs(old: &KeyBytes, new: &KeyBytes) -> Result<(), Failure> {
    if old != new {
        return Ok(());
    }
    let id = MasterKey::new(new).id();
    Err(Failure::said(Exit::Usage, format!("the new master key is the one in use, {id}")))
}

/// Which key was used, and which one is.
fn change(directory: &DataDir, old: &KeyBytes, new: &KeyBytes) -> Result<(KeyId, KeyId), Failure> {
    let (old, new) = (MasterKey::new(old), MasterKey::new(new));
    let (before, now) = (old.id(), new.id());
    let keys = Keyring::new(new).and_opens(old);
    let mut n_seen = 0;
    let rotated = directory.rotate(
        &keys,
        ROTATE_AT_ONCE,
        |kept| Clock::resume(kept).now(),
        |n| {
            n_seen += n;
            output::note(&format!("{n_seen} records are sealed with {now}\n"));
            ControlFlow::Continue(())
        },
    );
    let rotated = rotated.map_err(told)?;
    output::note(&format!("{} of {n_seen} records were sealed with another key before\n", rotated.moved));
    Ok((before, now))
}

fn told(fault: OpenError) -> Failure {
    let exit = match &fault {
        OpenError::InUse { .. } | OpenError::KeyChangeUnfinished { .. } => Exit::Conflict,
        OpenError::OtherKey { .. } => Exit::Auth,
        OpenError::Newer { .. }
        | OpenError::Unsealed { .. }
        | OpenError::Unversioned { .. }
        | OpenError::Emptied { .. }
        | OpenError::Io { .. }
        | OpenError::Database { .. } => Exit::Failed,
    };
    Failure::new(exit, fault)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use doorstep_core::time::Timestamp;
    use doorstep_store::sqlite::SqliteLimits;

    use super::*;

    fn open(directory: &Path) -> anyhow::Result<KeyId> {
        let directory = DataDir::take(directory)?;
        let keys = master_key::keyring(None, &directory)?;
        let id = keys.current();
        directory.open(keys, &SqliteLimits::default())?;
        Ok(id)
    }

    fn rotate(directory: &Path, new_key_file: Option<PathBuf>) -> Result<(), Failure> {
        let generate = new_key_file.is_none();
        let directory = DataDir::take(directory).map_err(told)?;
        let in_use = directory.master_keys().map_err(told)?;
        change_kept(&Args { new_key_file, generate, config: config::Args::default() }, &directory, &in_use)
    }

    #[test]
    fn a_key_that_is_made_takes_the_old_ones_place() {
        let directory = tempfile::tempdir().unwrap();
        let before = open(directory.path()).unwrap();
        rotate(directory.path(), None).unwrap();
        let now = open(directory.path()).unwrap();
        assert_ne!(now, before);
        assert!(!directory.path().join("master.key.next").exists());
    }

    /// As if the power had gone: while records go over, and before the new key has taken the old one's place.
    #[test]
    fn what_was_interrupted_is_refused_by_the_server_and_finished_by_the_same_command() {
        for all_went_over in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path();
            let before = open(path).unwrap();
            let new = master_key::new_key().unwrap();
            let taken = DataDir::take(path).unwrap();
            let files = Files::of(&taken);
            master_key::write(&files.next, &new).unwrap();
            assert_eq!(
                master_key::keyring(None, &taken).unwrap().current(),
                before,
                "a key that nothing needs yet changes nothing"
            );
            let old = files.read_current().unwrap().unwrap();
            let both = Keyring::new(MasterKey::new(&new)).and_opens(MasterKey::new(&old));
            if all_went_over {
                taken.rotate(&both, 1, |_| Timestamp(0), |_| ControlFlow::Continue(())).unwrap();
                drop(taken);
            } else {
                taken.open(both, &SqliteLimits::default()).unwrap();
            }
            let refused = open(path).unwrap_err().to_string();
            assert!(refused.contains("rotate-master --generate"), "{refused}");

            let other = path.join("another");
            master_key::write(&other, &master_key::new_key().unwrap()).unwrap();
            let refused = rotate(path, Some(other)).unwrap_err();
            assert!(refused.exit() == Exit::Conflict && refused.to_string().contains("interrupted"), "{refused}");

            rotate(path, None).unwrap();
            assert_eq!(open(path).unwrap(), MasterKey::new(&new).id());
        }
    }

    #[test]
    fn the_key_in_use_is_no_new_one() {
        let directory = tempfile::tempdir().unwrap();
        let before = open(directory.path()).unwrap();
        let refused = rotate(directory.path(), Some(directory.path().join(master_key::FILE))).unwrap_err();
        assert!(refused.exit() == Exit::Usage && refused.to_string().contains("the one in use"), "{refused}");
        assert_eq!(open(directory.path()).unwrap(), before);
    }
}
