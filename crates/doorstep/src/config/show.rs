//! `doorstep config`: what is in force and where it comes from, and a file to start from.

use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::{Loaded, Origin, Setting, Shape, example};
use crate::failure::Failure;
use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Every setting in force; secrets are masked
    Show {
        /// Say where each value comes from
        #[arg(long)]
        sources: bool,
        /// One JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        config: super::Args,
    },
    /// A doorstep.toml with every key, its meaning and its default
    Example,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.what {
        What::Example => output::print(&example::example()),
        What::Show { sources, json, config } => {
            let loaded = super::load_here(&config)?;
            output::print(&if json { as_json(&loaded, sources) } else { as_table(&loaded, sources) })
        }
    }
}

fn as_table(loaded: &Loaded, sources: bool) -> String {
    let value = |setting: &Setting| setting.shown.clone().unwrap_or_else(|| "(none)".to_owned());
    let width = |cells: &mut dyn Iterator<Item = usize>| cells.max().unwrap_or(0);
    let keys = width(&mut loaded.settings.iter().map(|setting| setting.key.name.len()));
    let values = width(&mut loaded.settings.iter().map(|setting| value(setting).len()));
    let line = |setting: &Setting| {
        let (key, value) = (setting.key.name, value(setting));
        if sources {
            format!("{key:keys$}  {value:values$}  {}\n", setting.origin)
        } else {
            format!("{key:keys$}  {value}\n")
        }
    };
    loaded.settings.iter().map(line).collect()
}

fn as_json(loaded: &Loaded, sources: bool) -> String {
    let entry = |setting: &Setting| {
        let value = value(setting);
        let shown = if sources { json!({ "value": value, "source": source(&setting.origin) }) } else { value };
        (setting.key.name.to_owned(), shown)
    };
    let all: Map<String, Value> = loaded.settings.iter().map(entry).collect();
    format!("{:#}\n", Value::Object(all))
}

fn value(setting: &Setting) -> Value {
    match (&setting.shown, setting.key.shape) {
        (Some(text), Shape::Number) => text.parse().map_or_else(|_| json!(text), |number: u64| json!(number)),
        (Some(text), Shape::Switch) => json!(text == "true"),
        (text, Shape::List) => {
            let items = text.as_deref().unwrap_or_default().split([',', ' ']).filter(|item| !item.is_empty());
            items.collect()
        }
        (Some(text), Shape::Text | Shape::Secret) => json!(text),
        (Some(text), Shape::Json) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        (None, Shape::Json) => json!({}),
        (None, Shape::Text | Shape::Secret | Shape::Number | Shape::Switch) => Value::Null,
    }
}

fn source(origin: &Origin) -> Value {
    match origin {
        Origin::Default => json!({ "kind": "default" }),
        Origin::File { path, line } => json!({ "kind": "file", "path": path, "line": line }),
        Origin::Env { name } => json!({ "kind": "env", "name": name }),
        Origin::EnvFile { name, path } => json!({ "kind": "env_file", "name": name, "path": path }),
        Origin::Flag { name } => json!({ "kind": "flag", "name": name }),
    }
}
