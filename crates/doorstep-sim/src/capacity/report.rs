//! Many verdicts summed up: tables for people, a line of JSON for each receiver, a picture.

use std::fmt::Write;

use super::target::Family;
use super::{Figures, SETTLED, SPANS, Span, Verdict, Who, spans};

/// One figure of one receiver, and the seed that shows it again.
type Sample = (f64, u64);

/// Percentiles over all receivers, by sender, then by family for Doorstep.
pub fn summary(verdicts: &[Verdict], minutes: u64) -> String {
    let mut out = String::new();
    out.push_str(
        "| sender | measured | receivers | held | not counted, held | median | 5th percentile | worst | its seed |\n",
    );
    out.push_str("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for who in Who::ALL {
        for (n, span) in spans(minutes).iter().enumerate().take(SETTLED + 1) {
            let what = format!("goodput ÷ oracle, {}", minutes_of(*span));
            let held = |figures: &Figures| (figures.held[n], figures.not_counted[n]);
            row_low(&mut out, who, &what, verdicts, |figures| figures.used[n], held);
        }
        let never = |_: &Figures| (false, false);
        let whole = format!("goodput ÷ oracle, 0–{minutes} min, held or not");
        row_low(&mut out, who, &whole, verdicts, |figures| figures.whole, never);
        row_low(&mut out, who, "last 10 min ÷ minutes 5–15", verdicts, |figures| figures.kept, never);
        row_low(&mut out, who, "evenness of a shared host (Jain)", verdicts, |figures| figures.jain, never);
    }
    out.push_str("\n| sender | measured | receivers | median | 95th percentile | worst | its seed |\n");
    out.push_str("| --- | --- | --- | --- | --- | --- | --- |\n");
    for who in Who::ALL {
        let refused = samples(verdicts, who, |figures| Some(figures.refused));
        row_high(&mut out, who, "refused, beyond noise", refused, |share| format!("{:.1} %", share * 100.0));
        let down = samples(verdicts, who, |figures| longest(&figures.after_down));
        row_high(&mut out, who, "90 % again after a step down", down, time);
        let up = samples(verdicts, who, |figures| longest(&figures.after_up));
        row_high(&mut out, who, "90 % again after a step up", up, time);
    }
    out.push_str("\n| family | receivers | median | 5th percentile | worst | its seed | refused, 95th | AIMD, median | naive, median |\n");
    out.push_str("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for family in Family::ALL {
        let of_family: Vec<_> = verdicts.iter().filter(|verdict| verdict.target.family == family).cloned().collect();
        let median = |who| middle(samples(&of_family, who, |figures| figures.used[SETTLED]));
        let used = sorted(samples(&of_family, Who::Doorstep, |figures| figures.used[SETTLED]));
        let refused = sorted(samples(&of_family, Who::Doorstep, |figures| Some(figures.refused)));
        if let (Some(worst), Some(refused)) = (used.first(), percentile(&refused, 95)) {
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {:.2} | {} | {:.1} % | {} | {} |",
                family.name(),
                of_family.len(),
                two(percentile(&used, 50)),
                two(percentile(&used, 5)),
                worst.0,
                worst.1,
                refused * 100.0,
                two(median(Who::Aimd)),
                two(median(Who::Naive)),
            );
        }
    }
    out
}

/// One row for each receiver.
pub fn named(verdicts: &[Verdict], minutes: u64) -> String {
    let mut out = String::from("| receiver | ");
    for span in &spans(minutes)[..SETTLED] {
        let _ = write!(out, "{} | ", minutes_of(*span));
    }
    let last = minutes_of(spans(minutes)[SETTLED]);
    let _ = writeln!(out, "last ÷ early | refused | evenness | AIMD, {last} | refused | naive, {last} | refused |");
    out.push_str(&"| --- ".repeat(SETTLED + 8));
    out.push_str("|\n");
    for verdict in verdicts {
        let _ = write!(out, "| {} | ", verdict.target.name);
        let of = |who| verdict.figures.iter().find(|figures| figures.who == who);
        if let Some(ours) = of(Who::Doorstep) {
            for used in &ours.used[..SETTLED] {
                let _ = write!(out, "{} | ", two(*used));
            }
            let _ = write!(out, "{} | {:.1} % | {} | ", two(ours.kept), ours.refused * 100.0, two(ours.jain));
        }
        for other in [Who::Aimd, Who::Naive].into_iter().filter_map(of) {
            let _ = write!(out, "{} | {:.1} % | ", two(other.used[SETTLED]), other.refused * 100.0);
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

/// One receiver as a line of JSON.
pub fn json(verdict: &Verdict, minutes: u64) -> String {
    let target = &verdict.target;
    let mut out = format!(
        r#"{{"seed":{},"family":"{}","receiver":"{}","oracle_accepted":{},"senders":["#,
        target.seed,
        target.family.name(),
        escaped(&target.name),
        verdict.oracle
    );
    for (n, figures) in verdict.figures.iter().enumerate() {
        let spans = spans(minutes);
        let used: Vec<_> = (0..SPANS)
            .map(|n| {
                format!(
                    r#"{{"from_min":{},"to_min":{},"share":{},"held":{},"not_counted":{}}}"#,
                    spans[n].from,
                    spans[n].to,
                    number(figures.used[n]),
                    figures.held[n],
                    figures.not_counted[n]
                )
            })
            .collect();
        let times = |times: &[f64]| times.iter().map(|t| number(Some(*t))).collect::<Vec<_>>().join(",");
        let _ = write!(
            out,
            r#"{}{{"sender":"{}","accepted":{},"goodput":[{}],"whole":{},"refused":{},"kept":{},"jain":{},"after_down_s":[{}],"after_up_s":[{}]}}"#,
            if n > 0 { "," } else { "" },
            figures.who.name(),
            figures.accepted,
            used.join(","),
            number(figures.whole),
            number(Some(figures.refused)),
            number(figures.kept),
            number(figures.jain),
            times(&figures.after_down),
            times(&figures.after_up),
        );
    }
    out.push_str("]}");
    out
}

/// What each sender had, in slices of ten seconds.
pub fn trace(verdict: &Verdict, minutes: u64) -> String {
    let mut out =
        format!("{}\n\nper second, accepted (refused for the load, refused at random)\n{:>8}", verdict.target.name, "");
    for (name, _) in &verdict.ledgers {
        let _ = write!(out, "{name:>26}");
    }
    out.push('\n');
    let end = usize::try_from(minutes * 60).unwrap_or(0);
    for from in (0..end).step_by(SLICE) {
        let _ = write!(out, "{:>4}m{:02}s", from / 60, from % 60);
        for (_, ledger) in &verdict.ledgers {
            let sum = ledger.between(from, from + SLICE);
            let rate = |n: u64| n as f64 / SLICE as f64;
            let cell = format!("{:.1} ({:.1}, {:.1})", rate(sum.accepted), rate(sum.refused), rate(sum.noise));
            let _ = write!(out, "{cell:>26}");
        }
        out.push('\n');
    }
    out
}

const SLICE: usize = 10;

/// The distribution of goodput after the first five minutes: for each sender, the share of receivers that stay below.
pub fn picture(verdicts: &[Verdict]) -> String {
    let (left, top, width, height) = (60.0, 30.0, 560.0, 300.0);
    let mut out = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 660 400\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"660\" height=\"400\" fill=\"white\"/>\n",
    );
    let _ = writeln!(
        out,
        "<text x=\"{left}\" y=\"18\">Receivers (%) with at most this goodput ÷ oracle, after the first 5 minutes</text>"
    );
    for tenth in 0..=10 {
        let share = f64::from(tenth) / 10.0;
        let (x, y) = (left + share * width, top + height * (1.0 - share));
        let _ = writeln!(
            out,
            "<path d=\"M{x:.0} {top}V{}M{left} {y:.0}H{}\" stroke=\"#ddd\"/><text x=\"{x:.0}\" y=\"{}\" text-anchor=\"middle\">{share:.1}</text><text x=\"{}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>",
            top + height,
            left + width,
            top + height + 18.0,
            left - 8.0,
            y + 4.0,
            tenth * 10
        );
    }
    for (n, (who, colour)) in Who::ALL.into_iter().zip(["#0b62c4", "#c45a0b", "#777777"]).enumerate() {
        let used = sorted(samples(verdicts, who, |figures| figures.used[SETTLED]));
        let mut line = format!("M{left} {}", top + height);
        for (rank, (share, _)) in used.iter().enumerate() {
            let x = left + share.min(1.0) * width;
            let y = top + height * (1.0 - (rank + 1) as f64 / used.len() as f64);
            let _ = write!(line, "H{x:.1}V{y:.1}");
        }
        let _ = writeln!(out, "<path d=\"{line}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
        let x = left + 20.0 + n as f64 * 120.0;
        let _ = writeln!(out, "<text x=\"{x}\" y=\"380\" fill=\"{colour}\">{}</text>", who.name());
    }
    out.push_str("</svg>\n");
    out
}

fn samples(verdicts: &[Verdict], who: Who, figure: impl Fn(&Figures) -> Option<f64>) -> Vec<Sample> {
    let of = |verdict: &Verdict| {
        let figures = verdict.figures.iter().find(|figures| figures.who == who)?;
        Some((figure(figures)?, verdict.target.seed))
    };
    verdicts.iter().filter_map(of).collect()
}

/// `held`: whether the oracle had to wait as well, and whether there is no figure for that reason.
fn row_low(
    out: &mut String,
    who: Who,
    what: &str,
    verdicts: &[Verdict],
    figure: impl Fn(&Figures) -> Option<f64>,
    held: impl Fn(&Figures) -> (bool, bool),
) {
    let sorted = sorted(samples(verdicts, who, &figure));
    let ours = verdicts.iter().flat_map(|verdict| &verdict.figures).filter(|figures| figures.who == who);
    let (held, not_counted) =
        ours.map(held).fold((0, 0), |sum, one| (sum.0 + u64::from(one.0), sum.1 + u64::from(one.1)));
    let Some(worst) = sorted.first() else { return };
    let (median, low) = (two(percentile(&sorted, 50)), two(percentile(&sorted, 5)));
    let n = sorted.len();
    let name = who.name();
    let _ = writeln!(
        out,
        "| {name} | {what} | {n} | {held} | {not_counted} | {median} | {low} | {:.2} | {} |",
        worst.0, worst.1
    );
}

fn row_high(out: &mut String, who: Who, what: &str, samples: Vec<Sample>, show: impl Fn(f64) -> String) {
    let sorted = sorted(samples);
    let Some(worst) = sorted.last() else { return };
    let show_at = |percent| percentile(&sorted, percent).map_or(String::new(), &show);
    let (median, high, n) = (show_at(50), show_at(95), sorted.len());
    let _ = writeln!(out, "| {} | {what} | {n} | {median} | {high} | {} | {} |", who.name(), show(worst.0), worst.1);
}

fn sorted(mut samples: Vec<Sample>) -> Vec<Sample> {
    samples.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    samples
}

/// The smallest sample that so many per cent do not exceed.
fn percentile(sorted: &[Sample], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map(|sample| sample.0)
}

fn middle(samples: Vec<Sample>) -> Option<f64> {
    percentile(&sorted(samples), 50)
}

fn longest(times: &[f64]) -> Option<f64> {
    times.iter().copied().reduce(f64::max)
}

fn time(seconds: f64) -> String {
    if seconds.is_finite() { format!("{seconds:.0} s") } else { "never".to_owned() }
}

fn two(figure: Option<f64>) -> String {
    figure.map_or("–".to_owned(), |figure| format!("{figure:.2}"))
}

fn minutes_of(span: Span) -> String {
    format!("{}–{} min", span.from, span.to)
}

/// JSON knows no infinity: what never came is null.
fn number(figure: Option<f64>) -> String {
    figure.filter(|figure| figure.is_finite()).map_or("null".to_owned(), |figure| format!("{figure:.4}"))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_that_occurred() {
        let samples: Vec<Sample> = (1..=20).map(|n| (f64::from(n), 0)).collect();
        assert_eq!(percentile(&samples, 5), Some(1.0));
        assert_eq!(percentile(&samples, 50), Some(10.0));
        assert_eq!(percentile(&samples, 95), Some(19.0));
        assert_eq!(percentile(&samples, 100), Some(20.0));
        // Of three, the middle one.
        assert_eq!(percentile(&samples[..3], 50), Some(2.0));
        assert_eq!(percentile(&[], 50), None);
    }
}
