//! `DOORSTEP_*` variables. One that means nothing is refused: a typing slip in a secret's name must not be found out
//! weeks later.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{ConfigFaults, Given, Givens, KEYS, Key, Origin, similar, text_file};

pub(super) struct Environment {
    /// The configuration file that `DOORSTEP_CONFIG` names.
    pub(super) config: Option<PathBuf>,
    pub(super) given: Givens,
}

pub(super) const PREFIX: &str = "DOORSTEP_";
const CONFIG: &str = "DOORSTEP_CONFIG";
/// Read by other commands than `serve`.
const OTHERS: [&str; 7] = [
    "DOORSTEP_URL",
    "DOORSTEP_API_KEY",
    "DOORSTEP_API_KEY_FILE",
    "DOORSTEP_LISTEN_SECRET",
    "DOORSTEP_LISTEN_SECRET_FILE",
    "DOORSTEP_SIGNING_SECRET",
    "DOORSTEP_SIGNING_SECRET_FILE",
];
/// Read by the build and the tests of the web pages.
const WEB_PREFIX: &str = "DOORSTEP_WEB";

pub(super) fn read(env: impl IntoIterator<Item = (String, String)>, faults: &mut ConfigFaults) -> Environment {
    let mut ours: BTreeMap<String, String> = env.into_iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
    let config = ours.remove(CONFIG).filter(|path| !path.is_empty()).map(PathBuf::from);
    let given = KEYS.iter().filter_map(|key| Some((key.name, take(key, &mut ours, faults)?))).collect();
    for (name, value) in &ours {
        if !is_known(name, value) {
            let known: Vec<String> = KEYS.iter().flat_map(|key| [key.env(), key.env_file()]).collect();
            let known = known.iter().map(String::as_str).chain([CONFIG]).chain(OTHERS);
            faults.add(format!("unknown variable `{name}`{}", similar::suggestion(name, known)));
        }
    }
    Environment { config, given }
}

/// The key's value from its variable, or from the file that its `…_FILE` variable names.
fn take(key: &Key, ours: &mut BTreeMap<String, String>, faults: &mut ConfigFaults) -> Option<Given> {
    let (direct, by_file) = (key.env(), key.env_file());
    match (ours.remove(&direct), ours.remove(&by_file)) {
        (None, None) => None,
        (Some(text), None) => Some(Given { text, origin: Origin::Env { name: direct } }),
        (Some(_), Some(_)) => {
            faults.add(format!("both `{direct}` and `{by_file}` are set: which one counts? Unset the other"));
            None
        }
        (None, Some(path)) => match text_file::read(path.as_ref()) {
            Ok(text) => {
                let text = text.trim_end_matches(['\n', '\r']).to_owned();
                Some(Given { text, origin: Origin::EnvFile { name: by_file, path: path.into() } })
            }
            Err(fault) => {
                faults.add(format!("`{by_file}` names {path}, which cannot be read: {fault}"));
                None
            }
        },
    }
}

fn is_known(name: &str, value: &str) -> bool {
    OTHERS.contains(&name) || name.starts_with(WEB_PREFIX) || is_of_a_service(name, value)
}

/// Kubernetes tells every pod where the services of its namespace are, in variables that begin with their names: with a
/// service called `doorstep` these are not a person's slips.
fn is_of_a_service(name: &str, value: &str) -> bool {
    match name.strip_prefix(PREFIX) {
        Some("PORT") => value.contains("://"),
        Some(rest) => {
            let port = rest.strip_prefix("PORT_").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
            port || rest == "SERVICE_HOST" || rest == "SERVICE_PORT" || rest.starts_with("SERVICE_PORT_")
        }
        None => false,
    }
}
