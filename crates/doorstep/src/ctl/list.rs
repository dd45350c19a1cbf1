//! Lists, page by page.

use std::fmt::Display;

use anyhow::Context;
use doorstep_core::search::Search;
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
const UNEXPECTED: &str = "the answer is not what this version expects: is it a Doorstep server?";

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
    #[arg(long, visible_alias = "since", value_name = "TIME", value_parser = moment::read)]
    created_after: Option<Timestamp>,
    /// Only those before then
    #[arg(long, visible_alias = "until", value_name = "TIME", value_parser = moment::read)]
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

/// A flag that takes several, by commas or by being given again.
pub(super) fn joined(given: &[String]) -> Option<String> {
    (!given.is_empty()).then(|| given.join(","))
}

/// What the flags ask for, read as the server reads it: what is wrong is told before anything is sent.
pub(super) fn asked<'a, S: Search>(flags: impl IntoIterator<Item = (&'a str, Option<String>)>) -> Result<S, Failure> {
    let given: Vec<_> = flags.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    S::read(given.iter().map(|(name, value)| (*name, &**value))).map_err(|fault| {
        let flag = fault.name.trim_end_matches("_id").replace('_', "-");
        Failure::said(Exit::Usage, format!("--{flag}: {}", fault.detail))
    })
}

#[derive(Deserialize)]
struct Page {
    data: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
}

impl Session {
    /// What fits the filter. People are told which one it was if nothing does.
    pub(super) async fn search<S: Search + Display>(
        &self,
        kind: &Kind,
        path: &str,
        filter: &S,
        args: &Args,
    ) -> Result<(), Failure> {
        let terms = filter.pairs().into_iter().map(|(name, value)| (name, Some(value)));
        let n = self.pages(kind, path, terms, args).await?;
        let asked = filter.to_string();
        if n == 0 && self.form == Form::People && !asked.is_empty() {
            output::note(&format!("-- nothing fits {asked}\n"));
        }
        Ok(())
    }

    pub(super) async fn list<'a>(
        &self,
        kind: &Kind,
        path: &str,
        filters: impl IntoIterator<Item = (&'a str, Option<String>)>,
        args: &Args,
    ) -> Result<(), Failure> {
        self.pages(kind, path, filters, args).await.map(drop)
    }

    /// Prints them, and returns how many they were.
    async fn pages<'a>(
        &self,
        kind: &Kind,
        path: &str,
        filters: impl IntoIterator<Item = (&'a str, Option<String>)>,
        args: &Args,
    ) -> Result<usize, Failure> {
        let filters: Vec<_> = filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let mut left = if args.all { ALL_MAX } else { args.limit };
        let (mut cursor, mut kept, mut n) = (args.cursor.clone(), Vec::new(), 0);
        loop {
            let page = self.page(path, &filters, left.min(PAGE_MAX), cursor).await?;
            n += page.data.len();
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
        Ok(n)
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
        Ok(serde_json::from_str(&text).context(UNEXPECTED)?)
    }

    /// Everything there is of a kind, for commands that look for something in it.
    pub(super) async fn everything(&self, path: &str, filters: &[(&str, String)]) -> Result<Vec<Value>, Failure> {
        let (mut cursor, mut found) = (None, Vec::new());
        loop {
            let page = self.page(path, filters, PAGE_MAX, cursor).await?;
            let things: Result<Vec<Value>, _> = page.data.iter().map(|raw| serde_json::from_str(raw.get())).collect();
            found.extend(things.context(UNEXPECTED)?);
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
