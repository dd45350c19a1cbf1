//! A judge in Python that is asked line by line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::{Request, in_repository};

/// A script of `e2e/`, in the environment that `tools/venv` makes.
#[derive(Debug)]
pub(crate) struct Judge {
    process: Child,
    cases: ChildStdin,
    verdicts: BufReader<ChildStdout>,
}

impl Judge {
    pub(crate) fn start(script: &str) -> Self {
        let python = in_repository(".venv/bin/python");
        assert!(python.exists(), "there is no .venv: `make venv` makes it");
        let mut process = Command::new(python)
            .arg(in_repository("e2e").join(script))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (cases, verdicts) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Self { process, cases, verdicts }
    }

    /// What it says of a request, and of `more` that it has to know.
    pub(crate) fn judge(&mut self, request: &Request, more: Value) -> Map<String, Value> {
        let headers: Map<_, _> = request.headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let mut case = json!({"headers": headers, "body_base64": STANDARD.encode(&request.body)});
        case.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        writeln!(self.cases, "{case}").unwrap();
        let mut verdict = String::new();
        self.verdicts.read_line(&mut verdict).unwrap();
        serde_json::from_str(&verdict).unwrap()
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
