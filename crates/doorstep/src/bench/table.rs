//! What came out: one row for each figure, for people and for programs.

use serde::Serialize;

/// What has been measured, and what it should be.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    what: String,
    value: f64,
    unit: &'static str,
    /// Of the raw ceiling.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missed: Option<bool>,
}

/// Where a figure should lie.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Row {
    pub(super) fn new(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { what: what.into(), value, unit, ratio: None, target: None, missed: None }
    }

    pub(super) fn of_raw(mut self, raw: f64) -> Self {
        self.ratio = (raw > 0.0).then(|| self.value / raw);
        self
    }

    pub(super) fn target(self, target: Target) -> Self {
        let value = self.value;
        let unit = self.unit;
        self.judged(value, target, unit)
    }

    /// The target is one for the ratio.
    pub(super) fn ratio_target(self, target: Target) -> Self {
        match self.ratio {
            Some(ratio) => self.judged(ratio, target, "raw"),
            None => self,
        }
    }

    fn judged(mut self, value: f64, target: Target, unit: &str) -> Self {
        let (sign, bound, met) = match target {
            Target::AtLeast(bound) => ("≥", bound, value >= bound),
            Target::AtMost(bound) => ("≤", bound, value <= bound),
        };
        self.target = Some(format!("{sign} {bound} {unit}").trim_end().to_owned());
        self.missed = Some(!met);
        self
    }

    pub(super) fn is_missed(&self) -> bool {
        self.missed == Some(true)
    }
}

/// As text, in columns.
pub(super) fn table(rows: &[Row]) -> String {
    let head = ["", "measured", "of raw", "target", ""].map(str::to_owned);
    let cells = |row: &Row| {
        let verdict = row.missed.map_or("", |missed| if missed { "MISSED" } else { "met" });
        [
            row.what.clone(),
            format!("{} {}", number(row.value), row.unit).trim_end().to_owned(),
            row.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            row.target.clone().unwrap_or_default(),
            verdict.to_owned(),
        ]
    };
    let lines: Vec<[String; 5]> = std::iter::once(head).chain(rows.iter().map(cells)).collect();
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut text = String::new();
    for [what, value, ratio, target, verdict] in &lines {
        let [w0, w1, w2, w3, _] = widths;
        let line = format!("{what:<w0$}  {value:>w1$}  {ratio:>w2$}  {target:<w3$}  {verdict}");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Three digits or more, however large it is.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        large if large >= 100.0 => 0,
        medium if medium >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_what_was_measured_and_whether_that_is_enough() {
        let rows = [
            Row::new("end to end", 1_250.0, "/s").of_raw(10_000.0).ratio_target(Target::AtLeast(0.18)),
            Row::new("latency p50", 1.5, "ms").target(Target::AtMost(2.0)),
            Row::new("healthy in the mix", 0.984, "×"),
        ];
        let expected = concat!(
            "                    measured  of raw  target\n",
            "end to end           1250 /s    0.12  ≥ 0.18 raw  MISSED\n",
            "latency p50          1.50 ms          ≤ 2 ms      met\n",
            "healthy in the mix    0.98 ×\n",
        );
        assert_eq!(table(&rows), expected);
        assert_eq!(rows.each_ref().map(Row::is_missed), [true, false, false]);
    }
}
