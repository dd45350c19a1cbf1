//! `doorstep tail`: what a running server does, line by line.

use std::time::Duration;

use doorstep_core::route::TypePattern;
use reqwest::Response;
use serde_json::{Value, json};

use crate::client::{self, Client};
use crate::failure::{Exit, Failure};
use crate::{output, runtime};

/// After a server is gone, it is asked for again this much later.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// A line of the stream is shorter.
const LINE_BYTES_MAX: usize = 64 * 1024;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this tenant's
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,
    /// Only this destination's
    #[arg(long, value_name = "ID")]
    destination: Option<String>,
    /// Only requests with events of this type, or of types like invoice.*; several with commas
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    types: Vec<TypePattern>,
    /// Only requests that failed, and changes of gates
    #[arg(long)]
    failed: bool,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// End after so many lines
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    server: client::Args,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let client = Client::of(&args.server)?;
    runtime::run(1, async {
        let end = runtime::asked_to_end()?;
        tokio::select! {
            ended = tail(args, &client) => ended,
            () = end => Ok(()),
        }
    })
}

/// Goes on through the server's restarts, and says so: what happened meanwhile is missing here.
async fn tail(args: &Args, client: &Client) -> Result<(), Failure> {
    let (path, mut left) = (path(args), args.count);
    let mut stream = Stream::new(client.open(&path).await?);
    loop {
        while let Some(said) = stream.next().await {
            let Some(line) = line(&said, args) else { continue };
            output::print(&line)?;
            if let Some(n) = left.as_mut() {
                *n = n.saturating_sub(1);
                if *n == 0 {
                    return Ok(());
                }
            }
        }
        note("the server is gone; waiting for it to come back");
        stream = loop {
            tokio::time::sleep(AGAIN_AFTER).await;
            match client.open(&path).await {
                Ok(answer) => break Stream::new(answer),
                Err(failure) if failure.exit() == Exit::Unreachable => {}
                Err(failure) => return Err(failure),
            }
        };
        note("connected again; what happened in between is not shown");
    }
}

/// For people, beside the data.
#[expect(clippy::print_stderr, reason = "a command talks to people there")]
fn note(note: &str) {
    eprintln!("-- {note}");
}

fn path(args: &Args) -> String {
    let mut path = "/v1/stream".to_owned();
    let types: Vec<&str> = args.types.iter().map(TypePattern::as_str).collect();
    let types = (!types.is_empty()).then(|| types.join(","));
    for (name, value) in [("tenant_id", &args.tenant), ("destination_id", &args.destination), ("type", &types)] {
        if let Some(value) = value {
            path.push(if path.contains('?') { '&' } else { '?' });
            // IDs and types have nothing to be escaped; what is no ID, the server refuses.
            path.push_str(&format!("{name}={value}"));
        }
    }
    path
}

/// One thing that the server said.
struct Said {
    kind: String,
    data: String,
}

struct Stream {
    answer: Response,
    buffer: Vec<u8>,
}

impl Stream {
    fn new(answer: Response) -> Self {
        Self { answer, buffer: Vec::new() }
    }

    /// `None`: the stream has ended, in whatever way.
    async fn next(&mut self) -> Option<Said> {
        let mut said = Said { kind: String::new(), data: String::new() };
        loop {
            while let Some(at) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=at).collect();
                let line = String::from_utf8_lossy(&line);
                match line.trim_end_matches(['\r', '\n']).split_once(':') {
                    Some(("event", kind)) => said.kind = kind.trim_start().to_owned(),
                    Some(("data", data)) => said.data.push_str(data.trim_start()),
                    None if !said.data.is_empty() => return Some(said),
                    Some(_) | None => {}
                }
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return None;
            }
            let more = self.answer.chunk().await.ok().flatten()?;
            self.buffer.extend_from_slice(&more);
        }
    }
}

fn line(said: &Said, args: &Args) -> Option<String> {
    let mut news: Value = serde_json::from_str(&said.data).ok()?;
    if args.failed && said.kind == "attempt" && news["class"] == "success" {
        return None;
    }
    if args.json {
        if said.kind == "missed" {
            news = json!({ "count": news });
        }
        if let Some(fields) = news.as_object_mut() {
            fields.insert("kind".to_owned(), said.kind.clone().into());
        }
        return Some(format!("{news}\n"));
    }
    let text = |name: &str| news[name].as_str().unwrap_or("").to_owned();
    let clock = text("at").get(11..19).unwrap_or("").to_owned();
    Some(match said.kind.as_str() {
        "attempt" => {
            let answer = news["status_code"].as_u64().map_or_else(|| text("error"), |status| status.to_string());
            let then = match text("then").as_str() {
                "retry_scheduled" => format!("again at {}", text("retry_at").get(11..19).unwrap_or("?")),
                "dead" => format!("dead: {}", text("reason")),
                "queued" => "waits until it may go again".to_owned(),
                _ => String::new(),
            };
            let (ms, number) = (&news["total_ms"], &news["number"]);
            let (kind, to, id) = (text("event_type"), text("destination_id"), text("delivery_id"));
            format!("{clock}  {id}  {kind:<24}  {to}  #{number:<2} {answer:<16} {ms:>5} ms  {then}\n")
        }
        "gate" => {
            let until = text("until");
            let until = until.get(11..19).map_or(String::new(), |at| format!(" until {at}"));
            format!("{clock}  {}  -- {}{until}\n", text("destination_id"), text("change"))
        }
        "missed" => {
            let n = news.as_u64().map_or_else(|| "some".to_owned(), |n| n.to_string());
            format!("-- {n} lines were missed: this reader is too slow\n")
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn told(kind: &str, data: &str, flags: &[&str]) -> Option<String> {
        let args = Cli::parse_from([&["tail"], flags].concat()).args;
        line(&Said { kind: kind.to_owned(), data: data.to_owned() }, &args)
    }

    const ATTEMPT: &str = r#"{"at":"2026-11-15T12:00:01.000Z","delivery_id":"dlv_1","destination_id":"dst_1","event_type":"a.b",
        "number":2,"class":"transient","status_code":503,"error":null,"total_ms":7,"then":"retry_scheduled","retry_at":"2026-11-15T12:00:09.000Z"}"#;

    #[test]
    fn an_attempt_says_what_came_back_and_what_follows() {
        let line = told("attempt", ATTEMPT, &[]).unwrap();
        for part in ["12:00:01", "dlv_1", "a.b", "#2", "503", "7 ms", "again at 12:00:09"] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }

    #[test]
    fn failures_alone_are_shown_on_request() {
        let success = ATTEMPT.replace("transient", "success");
        assert!(told("attempt", &success, &["--failed"]).is_none());
        assert!(told("attempt", ATTEMPT, &["--failed"]).is_some());
        assert!(told("attempt", &success, &[]).is_some());
    }

    #[test]
    fn programs_get_json_that_says_what_it_is() {
        let line = told("gate", r#"{"change":"tripped"}"#, &["--json"]).unwrap();
        assert_eq!(line, "{\"change\":\"tripped\",\"kind\":\"gate\"}\n");
    }

    #[test]
    fn what_was_missed_is_counted_where_the_server_says_how_much() {
        for (data, line, json) in [("7", "-- 7 lines were", "7"), ("null", "-- some lines were", "null")] {
            assert!(told("missed", data, &[]).unwrap().starts_with(line), "{data}");
            let json = format!("{{\"count\":{json},\"kind\":\"missed\"}}\n");
            assert_eq!(told("missed", data, &["--json"]).unwrap(), json);
        }
    }

    #[test]
    fn the_server_is_asked_for_what_is_wanted() {
        let args = Cli::parse_from(["tail", "--tenant", "ten_1", "--destination", "dst_1"]).args;
        assert_eq!(path(&args), "/v1/stream?tenant_id=ten_1&destination_id=dst_1");
        let args = Cli::parse_from(["tail", "--type", "invoice.*,a.b", "--type", "*.paid"]).args;
        assert_eq!(path(&args), "/v1/stream?type=invoice.*,a.b,*.paid");
        assert!(Cli::try_parse_from(["tail", "--type", "inv*"]).is_err());
    }
}
