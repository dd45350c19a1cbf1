//! Talking to a running server, and what its answers mean for a command.

use std::time::Duration;

use anyhow::Context;
use reqwest::header::{ETAG, IF_MATCH};
use reqwest::{Client as Http, Method, RequestBuilder, Response, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::{Exit, Failure};
use crate::secret_source::{ADMIN_KEY, API_KEY};

/// A server that is there answers within this.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// How much of an answer that is not a problem is shown.
const SHOWN_MAX: usize = 300;

/// Where the server is, and the key to it.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Where the server is
    #[arg(long, value_name = "URL", env = "DOORSTEP_URL", default_value = "http://127.0.0.1:8080")]
    server: Url,
    /// File that holds the API key, or - for standard input [env: DOORSTEP_API_KEY, DOORSTEP_API_KEY_FILE, or those of DOORSTEP_ADMIN_KEY]
    #[arg(long, value_name = "FILE")]
    key_file: Option<String>,
    /// Known only to be refused with a reason
    #[arg(long, hide = true, allow_hyphen_values = true)]
    key: Option<String>,
}

pub(crate) struct Client {
    http: Http,
    base: Url,
    key: String,
}

impl Client {
    pub(crate) fn of(args: &Args) -> Result<Self, Failure> {
        let given = API_KEY.read(args.key.as_deref(), args.key_file.as_deref())?;
        let key = match given {
            Some(key) => Some(key),
            None => ADMIN_KEY.in_environment()?,
        };
        let key = key.ok_or_else(|| Failure::said(Exit::Auth, format!("no API key: {}", API_KEY.advice())))?;
        Self::new(args.server.clone(), key)
    }

    pub(crate) fn new(base: Url, key: String) -> Result<Self, Failure> {
        let http = Http::builder().connect_timeout(CONNECT_WITHIN).no_proxy().build();
        let http = http.context("cannot set up an HTTP client")?;
        Ok(Self { http, base, key })
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        read(self.answer(self.request(Method::GET, path)?.timeout(ANSWER_WITHIN)).await?).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, Failure> {
        read(self.answer(self.request(Method::POST, path)?.timeout(ANSWER_WITHIN).json(body)).await?).await
    }

    /// Posts JSON that is text already, byte for byte.
    pub(crate) async fn post_text<T: DeserializeOwned>(&self, path: &str, body: String) -> Result<T, Failure> {
        let request = self.request(Method::POST, path)?.timeout(ANSWER_WITHIN);
        read(self.answer(request.header("content-type", "application/json").body(body)).await?).await
    }

    /// The text of the answer, as the server wrote it. What stands in a path is escaped, so that an ID is an ID.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, String)],
        body: Option<&Value>,
    ) -> Result<String, Failure> {
        self.ask_seen(method, path, query, body, None).await
    }

    /// One thing, and the version that it is seen in.
    pub(crate) async fn look(&self, path: &[&str]) -> Result<(Value, Option<String>), Failure> {
        let answer = self.answer(self.asking(Method::GET, path, &[], None)).await?;
        let version = answer.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        Ok((read(answer).await?, version))
    }

    /// The text of the answer to a change, which is made only if what is changed is still in the version that was seen.
    pub(crate) async fn ask_seen(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, String)],
        body: Option<&Value>,
        seen: Option<&str>,
    ) -> Result<String, Failure> {
        let mut request = self.asking(method, path, query, body);
        if let Some(seen) = seen {
            request = request.header(IF_MATCH, seen);
        }
        text(self.answer(request).await?).await
    }

    fn asking(&self, method: Method, path: &[&str], query: &[(&str, String)], body: Option<&Value>) -> RequestBuilder {
        let mut url = self.base.clone();
        url.set_fragment(None);
        url.set_query(None);
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.clear().push("v1").extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let request = self.http.request(method, url).bearer_auth(&self.key).timeout(ANSWER_WITHIN);
        match body {
            Some(body) => request.json(body),
            None => request,
        }
    }

    /// Where people's browsers find what the server names by its path.
    pub(crate) fn link(&self, path: &str) -> Result<Url, Failure> {
        Ok(self.base.join(path).with_context(|| format!("{path} is no path of {}", self.base))?)
    }

    /// An answer that goes on for as long as it likes.
    pub(crate) async fn open(&self, path: &str) -> Result<Response, Failure> {
        self.answer(self.request(Method::GET, path)?).await
    }

    fn request(&self, method: Method, path: &str) -> Result<RequestBuilder, Failure> {
        let url = self.base.join(path).with_context(|| format!("{path} is no path of {}", self.base))?;
        Ok(self.http.request(method, url).bearer_auth(&self.key))
    }

    async fn answer(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let answer = request.send().await.map_err(|fault| {
            let advice = format!("no answer from {}: is the server running? (doorstep serve)", self.base);
            Failure::new(Exit::Unreachable, anyhow::Error::new(fault.without_url()).context(advice))
        })?;
        if answer.status().is_success() { Ok(answer) } else { Err(refused(answer).await) }
    }
}

async fn text(answer: Response) -> Result<String, Failure> {
    Ok(answer.text().await.context("the answer broke off")?)
}

async fn read<T: DeserializeOwned>(answer: Response) -> Result<T, Failure> {
    Ok(answer.json().await.context("the answer is not what this version expects: is it a Doorstep server?")?)
}

/// What a problem means, in its own words.
async fn refused(answer: Response) -> Failure {
    let status = answer.status();
    let exit = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Exit::Auth,
        StatusCode::NOT_FOUND => Exit::NotFound,
        StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED => Exit::Conflict,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => Exit::Unreachable,
        _ => Exit::Failed,
    };
    let text = answer.text().await.unwrap_or_default();
    let problem: Value = serde_json::from_str(&text).unwrap_or_default();
    let Some(detail) = problem["detail"].as_str() else {
        let shown: String = text.chars().take(SHOWN_MAX).collect();
        return Failure::said(exit, format!("the server answered {status}: {shown}"));
    };
    let mut message = detail.to_owned();
    let errors = problem["errors"].as_array().into_iter().flatten();
    for error in errors {
        let (pointer, detail) = (error["pointer"].as_str().unwrap_or("?"), error["detail"].as_str().unwrap_or("?"));
        // A single fault is often the whole of what was said already.
        if !message.contains(detail) {
            message.push_str(&format!("\n  {pointer}: {detail}"));
        }
    }
    Failure::said(exit, message).with_problem(problem)
}
