//! A server of its own for each test, and receivers that keep what they got.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::running::Running;

/// Slower than any machine should be.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const KEY: &str = "a-key-for-these-tests-and-nothing-else";

static HTTP: LazyLock<Client> = LazyLock::new(|| Client::builder().no_proxy().build().unwrap());

/// The real binary on a port and a directory of its own, with one tenant.
pub(crate) struct Server {
    running: Running,
    pub(crate) tenant_id: String,
    flags: Vec<String>,
    directory: TempDir,
}

fn run(directory: &TempDir, flags: &[String]) -> Running {
    let listen: &[&str] = if flags.iter().any(|flag| flag == "--listen") { &[] } else { &["--listen", "127.0.0.1:0"] };
    let mut command = Command::new(env!("CARGO_BIN_EXE_doorstep"));
    command.arg("serve").args(listen).args(["--allow-targets", "127.0.0.0/8", "--log-level", "warn"]).args(flags);
    Running::start(command.arg("--data-dir").arg(directory.path()).env("DOORSTEP_ADMIN_KEY", KEY))
}

impl Server {
    pub(crate) async fn start(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let running = run(&directory, &flags);
        let mut server = Self { running, tenant_id: String::new(), flags, directory };
        let tenant = server.post("/v1/tenants", json!({"name": "Acme"})).await;
        server.tenant_id = text(&tenant, "id");
        server
    }

    /// Ends it in good order, and starts it again on another port.
    pub(crate) fn restart(&mut self) {
        let process = &mut self.running.process;
        assert!(Command::new("kill").args(["-TERM", &process.id().to_string()]).status().unwrap().success());
        assert!(process.wait().unwrap().success());
        self.running = run(&self.directory, &self.flags);
    }

    /// The same with more flags.
    pub(crate) fn restart_with(&mut self, flags: &[&str]) {
        self.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self.restart();
    }

    pub(crate) fn base(&self) -> &str {
        &self.running.base
    }

    pub(crate) fn ask(&self, method: Method, path: &str) -> RequestBuilder {
        HTTP.request(method, format!("{}{path}", self.base())).bearer_auth(KEY)
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        let answer = self.ask(Method::POST, path).json(&body).send().await.unwrap();
        let status = answer.status();
        let told: Value = answer.json().await.unwrap();
        assert!(status.is_success(), "{status} {told}");
        told
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.ask(Method::GET, path).send().await.unwrap().json().await.unwrap()
    }

    /// What is refused, and with which fault at which place.
    pub(crate) async fn refused(&self, method: Method, path: &str, body: Value) -> (String, String) {
        let answer = self.ask(method, path).json(&body).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
        let told: Value = answer.json().await.unwrap();
        (text(&told["errors"][0], "pointer"), text(&told["errors"][0], "detail"))
    }

    /// Without a key, as anybody on the network would ask.
    pub(crate) async fn fetch(&self, url: &str) -> reqwest::Response {
        HTTP.get(url).send().await.unwrap()
    }

    /// A destination of the tenant with these settings beside its URL.
    pub(crate) async fn destination(&self, url: &str, settings: Value) -> Value {
        self.post("/v1/destinations", self.new_destination(url, settings)).await
    }

    pub(crate) fn new_destination(&self, url: &str, settings: Value) -> Value {
        let mut body = json!({"tenant_id": self.tenant_id, "url": url});
        body.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        body
    }
}

pub(crate) fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_else(|| panic!("no {field} in {value}")).to_owned()
}

/// A request as it came over the wire.
#[derive(Debug)]
pub(crate) struct Received {
    /// `POST /hook HTTP/1.1`.
    pub(crate) line: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.headers))
    }
}

/// Somebody who listens, and answers each request with the next of these statuses, the last one from then on.
pub(crate) struct Receiver {
    pub(crate) url: String,
    requests: mpsc::UnboundedReceiver<Received>,
}

impl Receiver {
    pub(crate) async fn answering(statuses: &'static [u16]) -> Self {
        let n = AtomicUsize::new(0);
        Self::start(move |_| {
            let status = statuses[n.fetch_add(1, Ordering::SeqCst).min(statuses.len() - 1)];
            format!("HTTP/1.1 {status} So\r\ncontent-length: 0\r\n\r\n")
        })
        .await
    }

    /// Answers each request with what `answer` makes of it.
    pub(crate) async fn start(answer: impl Fn(&Received) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let (seen, requests) = mpsc::unbounded_channel();
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, answer) = (seen.clone(), Arc::clone(&answer));
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    while let Some(request) = read(&mut stream).await {
                        let answer = answer(&request);
                        let _ = seen.send(request);
                        if stream.write_all(answer.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { url, requests }
    }

    pub(crate) async fn next(&mut self) -> Received {
        tokio::time::timeout(PATIENCE, self.requests.recv()).await.expect("nothing came").unwrap()
    }
}

async fn read(stream: &mut BufReader<tokio::net::TcpStream>) -> Option<Received> {
    let mut headers = BTreeMap::new();
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|n| *n > 0)?;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_owned(), value.to_owned());
    }
    let mut body = vec![0; headers.get("content-length").map_or(Some(0), |text| text.parse().ok())?];
    stream.read_exact(&mut body).await.ok()?;
    Some(Received { line: line.trim_end().to_owned(), headers, body })
}
