//! `doorstep policy show`: the schedule as a table and in words.

use doorstep_core::retry::{PolicySpec, RetryPolicy};
use doorstep_core::time::Millis;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::schedule::{self, Row, Spread};
use super::{source, words};
use crate::failure::Failure;
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    policy: source::Given,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Fewer rows than this are shown though they are alike.
const ALIKE_MIN: usize = 4;

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let policy = args.policy.read()?;
    let text = if args.json {
        format!("{:#}\n", as_json(&policy))
    } else {
        format!("{}\n{}", words::describe(&policy), as_table(&policy, OffsetDateTime::now_utc()))
    };
    output::print(&text)
}

fn as_table(policy: &RetryPolicy, now: OffsetDateTime) -> String {
    let window = schedule::window(policy);
    let mut table = format!(
        "{:>7}  {:<19}  {:<19}  {:<9}  {}\n",
        "attempt", "after the one before", "after the first", "typically", "begun now (UTC)"
    );
    let mut maybe = false;
    let rows = schedule::rows(policy);
    let shown = rows.len() - alike_at_the_end(&rows);
    for row in &rows[..shown] {
        // An attempt that only short waits bring into the window.
        let unsure = row.since_first.most >= window;
        maybe |= unsure;
        table.push_str(&line(row, now, if unsure { "  *" } else { "" }));
    }
    if let Some(last) = rows.last().filter(|_| shown < rows.len()) {
        let (first, wait) = (shown + 1, range(last.wait));
        table.push_str(&format!("{first:>7}… {wait:<20}  the same until the window of {window} ends\n"));
    }
    if maybe {
        table.push_str(&format!("\n* only if that is within the window of {window}\n"));
    }
    table
}

/// So many rows at the end only repeat the waits of the one before them, and say nothing new.
fn alike_at_the_end(rows: &[Row]) -> usize {
    let alike = rows.iter().rev().zip(rows.iter().rev().skip(1)).take_while(|(row, before)| row.wait == before.wait);
    let n = alike.count();
    if n >= ALIKE_MIN { n } else { 0 }
}

fn line(row: &Row, now: OffsetDateTime, mark: &str) -> String {
    let clock = clock(now, row.since_first.typical);
    if row.attempt == 1 {
        return format!("{:>7}  {:<20}  {:<19}  {:<9}  {clock}\n", 1, "at once", "", "");
    }
    let (wait, since) = (range(row.wait), range(row.since_first));
    let typical = row.since_first.typical.to_string();
    format!("{:>7}  {wait:<20}  {since:<19}  {typical:<9}  {clock}{mark}\n", row.attempt)
}

fn range(spread: Spread) -> String {
    if spread.least == spread.most { spread.least.to_string() } else { format!("{}..{}", spread.least, spread.most) }
}

/// The day and the time of day, so many milliseconds from now.
fn clock(now: OffsetDateTime, after: Millis) -> String {
    let Some(at) = i64::try_from(after.0).ok().and_then(|ms| now.checked_add(time::Duration::milliseconds(ms))) else {
        return String::new();
    };
    let day: String = at.weekday().to_string().chars().take(3).collect();
    format!("{day} {:02}:{:02}:{:02}", at.hour(), at.minute(), at.second())
}

fn as_json(policy: &RetryPolicy) -> Value {
    let spread = |spread: Spread| json!({ "least": spread.least, "typical": spread.typical, "most": spread.most });
    let row = |row: &Row| {
        json!({
            "attempt": row.attempt,
            "wait_ms": spread(row.wait),
            "since_first_ms": spread(row.since_first),
            "certain": row.since_first.most < schedule::window(policy),
        })
    };
    let attempts: Vec<Value> = schedule::rows(policy).iter().map(row).collect();
    json!({ "policy": PolicySpec::from(policy.clone()), "attempts": attempts, "words": words::describe(policy) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_waits_times_and_the_clock() {
        let table = as_table(&RetryPolicy::brief(), OffsetDateTime::UNIX_EPOCH);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["1", "at", "once", "Thu", "00:00:00"]);
        let third: Vec<&str> = lines[3].split_whitespace().collect();
        assert_eq!(third, ["3", "1s..2s", "2s..3s", "2.5s", "Thu", "00:00:02"]);
        assert_eq!(lines[6].split_whitespace().collect::<Vec<_>>()[..2], ["6", "1s..10s"]);
        let rest = lines[7].trim_start();
        assert_eq!(rest, "7… 1s..10s               the same until the window of 1m ends");
        assert_eq!(lines.len(), 8, "{table}");
    }

    #[test]
    fn attempts_that_only_short_waits_bring_into_the_window_are_marked() {
        let policy = r#"{"strategy":"schedule","delays_ms":[1000,40000,2000],"window_ms":40000}"#;
        let table = as_table(&source::read(policy, &Default::default()).unwrap(), OffsetDateTime::UNIX_EPOCH);
        let third = table.lines().nth(3).unwrap();
        assert!(third.trim_start().starts_with("3 ") && third.ends_with('*'), "{table}");
        assert!(table.ends_with("* only if that is within the window of 40s\n"), "{table}");
    }

    #[test]
    fn json_has_the_whole_policy_and_milliseconds() {
        let shown = as_json(&RetryPolicy::standard());
        assert_eq!(shown["policy"]["cap_ms"], 3_600_000);
        assert_eq!(shown["attempts"][1]["wait_ms"]["most"], 30_000);
        assert_eq!(shown["attempts"][15]["certain"], true);
        assert_eq!(shown["attempts"][199]["attempt"], 200);
        assert_eq!(shown["attempts"][199]["certain"], false);
    }
}
