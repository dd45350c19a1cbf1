//! A server of one's own.

use std::process::{Command, Stdio};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::running::Running;

const KEY: &str = "a-long-administrators-key-for-tests";

pub(crate) struct Server {
    running: Running,
    client: reqwest::Client,
    pub(crate) dir: TempDir,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    /// The places of what is wrong, with what is.
    pub(crate) fn faults(&self) -> Vec<(&str, &str)> {
        let faults = self.body["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
        faults.iter().map(|one| (one["pointer"].as_str().unwrap(), one["detail"].as_str().unwrap())).collect()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

impl Server {
    pub(crate) fn start(settings: &[(&str, &str)]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), settings)
    }

    fn start_in(dir: TempDir, settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_doorstep"));
        command.arg("serve").current_dir(dir.path()).env_clear().envs(settings.iter().copied());
        command.env("DOORSTEP_LISTEN", "127.0.0.1:0").env("DOORSTEP_ADMIN_KEY", KEY);
        let running = Running::start(command.stderr(Stdio::null()));
        Self { running, client: reqwest::Client::new(), dir }
    }

    /// Kills it, and starts it again in the same directory.
    pub(crate) fn restart(self, settings: &[(&str, &str)]) -> Self {
        let Self { running, dir, .. } = self;
        drop(running);
        Self::start_in(dir, settings)
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> Answer {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap()))
            .collect();
        let request = self.client.request(method, format!("{}{path}", self.running.base)).bearer_auth(KEY);
        let response = request.headers(headers).body(body).send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.bytes().await.unwrap();
        let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
        Answer { status, headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PATCH, path, &[("content-type", "application/json")], body.to_string()).await
    }

    /// A new tenant's ID.
    pub(crate) async fn tenant(&self, more: Value) -> String {
        let mut tenant = json!({ "name": "Acme" });
        tenant.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let made = self.post("/v1/tenants", &tenant).await;
        assert_eq!(made.status, 201, "{made:?}");
        made.body["id"].as_str().unwrap().to_owned()
    }
}
