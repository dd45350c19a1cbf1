//! A simulation as text, in at most 100 columns.

use std::fmt::Write;

use doorstep_core::retry::DeadReason;
use doorstep_core::time::Millis;

use super::recovery::{Curve, Story};
use super::simulate::Simulation;
use super::timeline::{End, Life};
use crate::span;

/// The plots are so many columns wide …
const COLUMNS: usize = 64;
/// … beside labels of this width.
const LABEL: usize = 8;
/// Load curves are so many rows high.
const ROWS: usize = 6;

pub(super) fn draw(simulation: &Simulation) -> String {
    let Simulation { story, lives, recovery, alone } = simulation;
    let mut text = lifelines(story.outage, lives);
    text.push_str(&few(alone));
    let column = Millis::from_secs((story.lasts().0 / COLUMNS as u64).div_ceil(1_000));
    // Writing into a String cannot fail.
    let _ = writeln!(
        text,
        "\nLoad on the receiver in requests per second: {} come, it can take {}.\n\
         A column is the busiest second of {column}; ━ is the outage, ┈ what the receiver can take.\n",
        story.arrivals, story.capacity,
    );
    let columns = [&recovery.gated, &recovery.plain].map(|curve| busiest(&curve.per_second, COLUMNS));
    let top = columns.iter().flatten().copied().max().unwrap_or(0).max(1);
    let marks = [("", story.begins()), ("back", story.ends()), ("", story.lasts())];
    for (name, columns) in ["with Doorstep's gate", "with the same retries and no gate"].into_iter().zip(&columns) {
        let _ = writeln!(text, "{:LABEL$}{name}", "");
        text.push_str(&bars(columns, top, story.capacity.per_second()));
        text.push_str(&axis(story.begins()..story.ends(), story.lasts(), &marks));
        text.push('\n');
    }
    text.push_str(&figures(story, &recovery.gated, &recovery.plain));
    text
}

fn lifelines(outage: Millis, lives: &[Life]) -> String {
    let lasts = lives.iter().map(Life::ended_at).max().unwrap_or_default().max(outage);
    let mut text = format!(
        "Five deliveries that are created when an outage of {outage} begins, by the policy alone.\n\
         x a failed attempt, 2 to 9 so many, + more; ● delivered, † dead.\n\n"
    );
    for life in lives {
        let mut counts = [0u32; COLUMNS];
        life.attempts.iter().for_each(|at| counts[column(*at, lasts)] += 1);
        let mut line = counts.map(mark);
        line[column(life.ended_at(), lasts)] = match life.end {
            End::Delivered => '●',
            End::Dead(_) => '†',
        };
        let line: String = line.iter().collect();
        let _ = writeln!(text, "{:LABEL$}{line} {}", "", ending(life));
    }
    text.push_str(&axis(Millis::ZERO..outage, lasts, &[("", Millis::ZERO), ("back", outage), ("", lasts)]));
    text
}

pub(super) fn ending(life: &Life) -> String {
    let (n, at) = (life.attempts.len(), life.ended_at());
    match life.end {
        End::Delivered => format!("attempt {n}, {at}"),
        End::Dead(DeadReason::Exhausted) => format!("dead: {n} attempts used"),
        End::Dead(DeadReason::Expired) => format!("dead: time is up, {n} made"),
        End::Dead(DeadReason::Rejected | DeadReason::Abandoned) => format!("dead after {n} attempts"),
    }
}

fn mark(attempts: u32) -> char {
    match attempts {
        0 => ' ',
        1 => 'x',
        2..=9 => char::from_digit(attempts, 10).unwrap_or('+'),
        10.. => '+',
    }
}

fn column(at: Millis, lasts: Millis) -> usize {
    let column = u128::from(at.0) * COLUMNS as u128 / u128::from(lasts.0.max(1));
    usize::try_from(column).unwrap_or(COLUMNS).min(COLUMNS - 1)
}

/// The busiest second of each of `n` equal parts.
pub(super) fn busiest(per_second: &[u32], n: usize) -> Vec<u32> {
    let at = |part: usize| part * per_second.len() / n;
    // With fewer seconds than parts, neighbours share one.
    let part = |i: usize| &per_second[at(i)..at(i + 1).max(at(i) + 1).min(per_second.len())];
    (0..n).map(|i| part(i).iter().copied().max().unwrap_or(0)).collect()
}

fn bars(columns: &[u32], top: u32, capacity: f64) -> String {
    const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let height = f64::from(top);
    let eighths = |load: f64| (load / height * (ROWS * 8) as f64).round() as usize;
    let capacity_row = eighths(capacity).saturating_sub(1) / 8;
    let mut text = String::new();
    for row in (0..ROWS).rev() {
        let label = match row {
            _ if row == capacity_row && row + 1 != ROWS => format!("{capacity:.0} "),
            _ if row + 1 == ROWS => format!("{top} "),
            _ => String::new(),
        };
        let mut line = format!("{label:>LABEL$}");
        for load in columns {
            // Whatever is there can be seen, however small it is beside the rest.
            let filled = eighths(f64::from(*load)).max(usize::from(*load > 0)).saturating_sub(row * 8).min(8);
            line.push(if filled == 0 && row == capacity_row { '┈' } else { EIGHTHS[filled] });
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A line with the outage on it, and under it the marks that do not run into each other.
fn axis(outage: std::ops::Range<Millis>, lasts: Millis, marks: &[(&str, Millis)]) -> String {
    let down = column(outage.start, lasts)..column(outage.end, lasts).max(column(outage.start, lasts) + 1);
    let line: String = (0..COLUMNS).map(|i| if down.contains(&i) { '━' } else { '─' }).collect();
    let mut labels = String::new();
    for (name, at) in marks {
        let column = column(*at, lasts);
        let label = format!("{name} {}", span::short(*at));
        let label = label.trim_start();
        if labels.is_empty() || labels.len() < column {
            labels = format!("{labels:column$}{label}");
        }
    }
    format!("{:LABEL$}{line}\n{:LABEL$}{labels}\n", "", "")
}

/// How a few deliveries fare that nothing comes after.
fn few(alone: &[(u64, Curve)]) -> String {
    let mut text = format!(
        "\nDeliveries that are created when the outage begins, with no others after them, behind the gate.\n\
         A probe costs no attempt.\n\n\
         {:>10}  {:>9}  {:>4}  {:>22}  {:>21}  {}\n",
        "deliveries", "delivered", "dead", "requests in the outage", "most attempts charged", "all ended"
    );
    for (n, curve) in alone {
        let ended = match curve.drained_after {
            Some(Millis::ZERO) | None => "in the outage".to_owned(),
            Some(after) => format!("{after} after it"),
        };
        let Curve { delivered, dead, in_vain, attempts_max, .. } = curve;
        let _ = writeln!(text, "{n:>10}  {delivered:>9}  {dead:>4}  {in_vain:>22}  {attempts_max:>21}  {ended}");
    }
    text
}

fn figures(story: &Story, gated: &Curve, plain: &Curve) -> String {
    let drained = |curve: &Curve| match curve.drained_after {
        Some(after) => format!("after {after}"),
        None => format!("not within {}", story.after),
    };
    let rows = [
        ("requests during the outage", gated.in_vain.to_string(), plain.in_vain.to_string()),
        ("busiest second afterwards", gated.peak_after.to_string(), plain.peak_after.to_string()),
        ("refused for lack of capacity", gated.refused.to_string(), plain.refused.to_string()),
        ("dead letters", gated.dead.to_string(), plain.dead.to_string()),
        ("all that gathered is gone", drained(gated), drained(plain)),
    ];
    let mut text = format!("{:28}  {:>16}  {:>16}\n", "", "with the gate", "without");
    for (what, gated, plain) in rows {
        let _ = writeln!(text, "{what:28}  {gated:>16}  {plain:>16}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::recovery::Arrivals;
    use crate::policy::{simulate, source};

    #[test]
    fn the_picture_fits_into_a_hundred_columns() {
        for (policy, outage) in [("standard", Millis::from_mins(10)), ("brief", Millis::from_mins(5))] {
            let story = Story {
                policy: source::read(policy, &Default::default()).unwrap(),
                arrivals: Arrivals::Evenly("10/s".parse().unwrap()),
                capacity: "50/s".parse().unwrap(),
                outage,
                after: outage,
                seed: 1,
            };
            let text = draw(&simulate::simulate(story).unwrap());
            for line in text.lines() {
                assert!(line.chars().count() <= 100, "{line}");
            }
            assert_eq!(text.matches('●').count() + text.matches('†').count(), 5 + 2, "{text}");
        }
    }

    #[test]
    fn the_page_shows_what_the_command_prints() {
        let page = include_str!("../../../../docs/reference/policies.md");
        let (policy, outage) = (source::read("standard", &Default::default()).unwrap(), Millis::from_mins(30));
        let (arrivals, capacity) = (Arrivals::Evenly("10/s".parse().unwrap()), "50/s".parse().unwrap());
        let story = Story { policy, arrivals, capacity, outage, after: outage, seed: 1 };
        for line in draw(&simulate::simulate(story).unwrap()).lines().filter(|line| !line.is_empty()) {
            assert!(page.lines().any(|on_page| on_page == format!("    {line}")), "not on the page:\n    {line}");
        }
    }

    #[test]
    fn a_column_is_the_busiest_second_of_its_part() {
        assert_eq!(busiest(&[1, 5, 2, 0, 7, 3], 3), [5, 2, 7]);
        assert_eq!(busiest(&[4, 9], 4), [4, 4, 9, 9]);
    }

    #[test]
    fn bars_are_as_high_as_the_load() {
        let text = bars(&[0, 1, 24, 48], 48, 24.0);
        let rows: Vec<String> = text.lines().map(|line| line.chars().skip(LABEL).collect()).collect();
        assert_eq!(rows, ["   █", "   █", "   █", "┈┈██", "  ██", " ▁██"]);
    }

    #[test]
    fn marks_that_would_run_into_each_other_are_left_out() {
        let hour = Millis::from_hours(1);
        let marks = [("", Millis::ZERO), ("back", hour), ("", Millis(hour.0 + 1))];
        let text = axis(Millis::ZERO..hour, Millis(hour.0 + 1), &marks);
        let labels = text.lines().nth(1).unwrap();
        assert!(labels.starts_with("        0 ") && labels.ends_with("back 1h"), "{text}");
    }
}
