//! A destination's settings as flags.

use std::str::FromStr;

use doorstep_core::time::Millis;
use serde_json::{Map, Value, json};

use super::super::given;
use crate::failure::{Exit, Failure};
use crate::rate::Rate;
use crate::span;

#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// Where to: https://…
    #[arg(long)]
    url: Option<String>,
    /// For people
    #[arg(long)]
    name: Option<String>,
    /// Which types of events, with globs: invoice.*,customer.created
    #[arg(long, value_name = "TYPES", value_delimiter = ',')]
    event_types: Option<Vec<String>>,
    /// Which payloads: JSON, or @FILE
    #[arg(long, value_name = "JSON")]
    filter: Option<String>,
    /// When to try again: a preset's name, JSON, or @FILE
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Requests at once
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// Deliveries over it wait: 100/s
    #[arg(long, value_name = "RATE")]
    rate_limit: Option<Rate>,
    /// Send evenly at this pace instead of the learned one: 5/s, or none to let it be learned
    #[arg(long, value_name = "RATE")]
    pinned_pace: Option<Pin>,
    /// unordered, or by_key
    #[arg(long)]
    ordering: Option<String>,
    /// With by_key, whether the next goes on behind a dead letter: skip, or hold
    #[arg(long, value_name = "WHAT")]
    behind_dead: Option<String>,
    /// How long one request may take in all: 15s
    #[arg(long, value_name = "SPAN", value_parser = span::read)]
    timeout: Option<Millis>,
    /// Sent along with each request, 'name: value'; replaces all that were set
    #[arg(long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// full, or thin for a reference to the payload
    #[arg(long, value_name = "MODE")]
    payload_mode: Option<String>,
    /// plain, cloudevents_binary or cloudevents_structured
    #[arg(long)]
    format: Option<String>,
    /// Whether the receiver has to agree before anything is sent: none or cloudevents_options
    #[arg(long, value_name = "HOW")]
    verification: Option<String>,
    /// More fields, as the API has them: JSON, @FILE, or - for standard input
    #[arg(long, short, value_name = "JSON")]
    data: Option<String>,
}

/// A pinned pace, or that there shall be none.
#[derive(Clone, Copy)]
struct Pin(Option<Rate>);

impl FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        text.parse().map(|rate| Self(Some(rate))).map_err(|wrong: String| format!("{wrong}, or none"))
    }
}

impl Args {
    /// What the API is sent: the fields of `--data`, over which flags win.
    pub(super) fn body(self) -> Result<Value, Failure> {
        let mut fields: Map<String, Value> = given::fields(self.data.as_deref())?;
        let filter = self.filter.map(|given| given::json("--filter", &given)).transpose()?;
        let policy = self.policy.map(|given| given::name_or_json("--policy", &given)).transpose()?;
        let headers = headers(&self.headers)?;
        let given = [
            ("url", self.url.map(Value::from)),
            ("name", self.name.map(Value::from)),
            ("event_types", self.event_types.map(Value::from)),
            ("filter", filter),
            ("policy", policy),
            ("concurrency", self.concurrency.map(Value::from)),
            ("rate_limit", self.rate_limit.map(per_second)),
            ("pinned_pace", self.pinned_pace.map(|Pin(pace)| json!(pace.map(per_second)))),
            ("ordering", self.ordering.map(Value::from)),
            ("behind_dead", self.behind_dead.map(Value::from)),
            ("timeout_ms", self.timeout.map(|timeout| Value::from(timeout.0))),
            ("headers", headers),
            ("payload_mode", self.payload_mode.map(Value::from)),
            ("format", self.format.map(Value::from)),
            ("verification", self.verification.map(Value::from)),
        ];
        fields.extend(given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        Ok(fields.into())
    }
}

fn per_second(rate: Rate) -> Value {
    json!({"per_second": rate.per_second()})
}

fn headers(given: &[String]) -> Result<Option<Value>, Failure> {
    let mut headers = Map::new();
    for header in given {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            Failure::said(Exit::Usage, format!("`{header}` is not a header: write 'authorization: Bearer …'"))
        })?;
        headers.insert(name.trim().to_ascii_lowercase(), value.trim().into());
    }
    Ok(if headers.is_empty() { None } else { Some(headers.into()) })
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

    fn body(flags: &[&str]) -> Result<Value, Failure> {
        Cli::parse_from([&["dest"], flags].concat()).args.body()
    }

    #[test]
    fn flags_become_the_fields_of_the_api() {
        let flags = [
            "--data",
            r#"{"concurrency":1,"signing":{"also":["github"]}}"#,
            "--concurrency",
            "5",
            "--event-types",
            "a.*,b",
            "--rate-limit",
            "120/m",
            "--timeout",
            "15s",
            "--policy",
            "patient",
            "--filter",
            r#"{"a":1}"#,
            "--header",
            "Authorization: Bearer x:y",
        ];
        let expected = json!({
            "concurrency": 5, "event_types": ["a.*", "b"], "rate_limit": {"per_second": 2.0}, "timeout_ms": 15_000, "policy": "patient",
            "filter": {"a": 1}, "headers": {"authorization": "Bearer x:y"}, "signing": {"also": ["github"]},
        });
        assert_eq!(body(&flags).unwrap(), expected);
        assert_eq!(body(&[]).unwrap(), json!({}));
        assert_eq!(body(&["--pinned-pace", "30/m"]).unwrap(), json!({"pinned_pace": {"per_second": 0.5}}));
        assert_eq!(body(&["--pinned-pace", "none"]).unwrap(), json!({"pinned_pace": null}));
        let wrong = Cli::try_parse_from(["dest", "--pinned-pace", "fast"]).err().unwrap().to_string();
        assert!(wrong.contains("`fast` is not a rate") && wrong.contains("or none"), "{wrong}");
        assert_eq!(body(&["--header", "x"]).unwrap_err().exit(), Exit::Usage);
    }
}
