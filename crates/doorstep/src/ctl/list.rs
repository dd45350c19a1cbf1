//! Lists, page by page.

use anyhow::Context;
use doorstep_core::time::Timestamp;
use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::show::{self, Kind};
use super::{Form, Session, moment};
use crate::failure::{Exit, Failure};
use crate::output;

/// The server gives no more than this at once.
const PAGE_MAX: usize = 200;
const LIMIT_DEFAULT: usize = 50;
/// Even `--all` ends somewhere: more is for an export.
const ALL_MAX: usize = 100_000;

#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = LIMIT_DEFAULT)]
    limit: usize,
    /// All of them, up to 100 000
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Go on where an earlier list ended
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

/// When something came about.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Created {
    /// Only those since then: a time, or how long ago, such as 2h
    #[arg(long, value_name = "TIME", value_parser = moment::read)]
    created_after: Option<Timestamp>,
    /// Only those before then
    #[arg(long, value_name = "TIME", value_parser = moment::read)]
    created_before: Option<Timestamp>,
}

impl Created {
    pub(super) fn query(&self) -> [(&'static str, Option<String>); 2] {
        [
            ("created_after", self.created_after.map(Timestamp::to_rfc3339)),
            ("created_before", self.created_before.map(Timestamp::to_rfc3339)),
        ]
    }
}

#[derive(Deserialize)]
struct Page {
    data: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
}

impl Session {
    pub(super) async fn list<'a>(
        &self,
        kind: &Kind,
        path: &str,
        filters: impl IntoIterator<Item = (&'a str, Option<String>)>,
        args: &Args,
    ) -> Result<(), Failure> {
        let filters: Vec<_> = filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let mut left = if args.all { ALL_MAX } else { args.limit };
        let (mut cursor, mut kept) = (args.cursor.clone(), Vec::new());
        loop {
            let page = self.page(path, &filters, left.min(PAGE_MAX), cursor).await?;
            left = left.saturating_sub(page.data.len());
            match self.form {
                // People's columns are as wide as the widest of all rows.
                Form::People => kept.extend(page.data),
                Form::Json | Form::Quiet => output::print(&show::many(kind, &page.data, self.form)?)?,
            }
            cursor = page.next_cursor;
            if cursor.is_none() || left == 0 {
                break;
            }
        }
        if self.form == Form::People {
            output::print(&show::many(kind, &kept, self.form)?)?;
        }
        if let Some(cursor) = cursor {
            output::note(&format!("-- there are more: --all, or --cursor {cursor}\n"));
        }
        Ok(())
    }

    async fn page(
        &self,
        path: &str,
        filters: &[(&str, String)],
        limit: usize,
        cursor: Option<String>,
    ) -> Result<Page, Failure> {
        let mut query = filters.to_vec();
        query.push(("limit", limit.to_string()));
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let text = self.client.ask(Method::GET, &[path], &query, None).await?;
        Ok(serde_json::from_str(&text)
            .context("the answer is not what this version expects: is it a Doorstep server?")?)
    }

    /// Everything there is of a kind, for commands that look for something in it.
    pub(super) async fn everything(&self, path: &str, filters: &[(&str, String)]) -> Result<Vec<Value>, Failure> {
        let (mut cursor, mut found) = (None, Vec::new());
        loop {
            let page = self.page(path, filters, PAGE_MAX, cursor).await?;
            found.extend(page.data.iter().filter_map(|raw| serde_json::from_str(raw.get()).ok()));
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(found);
            }
            if found.len() >= ALL_MAX {
                return Err(Failure::said(
                    Exit::Failed,
                    format!("there are more than {ALL_MAX} {path}: too many to compare"),
                ));
            }
        }
    }
}
