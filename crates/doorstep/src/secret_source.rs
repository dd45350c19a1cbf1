//! Secrets that commands need. They come from a variable or a file and not as an argument, because every user of the machine can
//! read the arguments of a process.

use std::env::{self, VarError};

use crate::ctl::given;
use crate::failure::{Exit, Failure};

/// Where a secret comes from.
#[derive(Debug)]
pub(crate) struct SecretSource {
    /// The flag that would be the secret itself; with `-file` it names a file.
    flag: &'static str,
    /// The variable that holds it; with `_FILE` it names a file.
    variable: &'static str,
}

pub(crate) const API_KEY: SecretSource = SecretSource { flag: "--key", variable: "DOORSTEP_API_KEY" };
pub(crate) const ADMIN_KEY: SecretSource = SecretSource { flag: "--admin-key", variable: "DOORSTEP_ADMIN_KEY" };
pub(crate) const SIGNING: SecretSource = SecretSource { flag: "--secret", variable: "DOORSTEP_SIGNING_SECRET" };
pub(crate) const LISTEN: SecretSource = SecretSource { flag: "--secret", variable: "DOORSTEP_LISTEN_SECRET" };

impl SecretSource {
    /// The secret of the file that a flag names, or else of the environment. An argument is refused.
    pub(crate) fn read(&self, argument: Option<&str>, file: Option<&str>) -> Result<Option<String>, Failure> {
        if argument.is_some() {
            let why = "other users of this machine can read the arguments of a process";
            return Err(Failure::said(
                Exit::Usage,
                format!("{} is not accepted, because {why}: {}", self.flag, self.advice()),
            ));
        }
        match file {
            Some(file) => given::secret(file).map(Some),
            None => self.in_environment(),
        }
    }

    /// An empty variable is as good as none.
    pub(crate) fn in_environment(&self) -> Result<Option<String>, Failure> {
        let by_file = format!("{}_FILE", self.variable);
        match (variable(self.variable)?, variable(&by_file)?) {
            (Some(_), Some(_)) => {
                let told =
                    format!("both `{}` and `{by_file}` are set: which one counts? Unset the other", self.variable);
                Err(Failure::said(Exit::Usage, told))
            }
            (secret, None) => Ok(secret),
            (None, Some(path)) => given::secret_in(&path).map(Some),
        }
    }

    #[cfg(test)]
    pub(crate) fn variables(&self) -> [String; 2] {
        [self.variable.to_owned(), format!("{}_FILE", self.variable)]
    }

    /// What to do instead, or at all.
    pub(crate) fn advice(&self) -> String {
        let Self { flag, variable } = self;
        format!("set {variable}, or name a file that holds it with {flag}-file or {variable}_FILE")
    }
}

fn variable(name: &str) -> Result<Option<String>, Failure> {
    match env::var(name) {
        Ok(text) => Ok(Some(text).filter(|text| !text.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            Err(Failure::said(Exit::Usage, format!("the variable `{name}` is not UTF-8 text")))
        }
    }
}
