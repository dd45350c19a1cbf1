//! So many in a span of time, as people write it: `100/10s`, `50/s`.

use std::fmt;
use std::str::FromStr;

use doorstep_core::time::Millis;

use crate::span;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// At least 1.
    pub(crate) n: u64,
    /// Longer than zero.
    pub(crate) per: Millis,
}

impl Rate {
    pub(crate) fn per_second(self) -> f64 {
        self.n as f64 * 1_000.0 / self.per.0 as f64
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = |(n, per): (&str, &str)| {
            let per = span::read_unit(per).or_else(|| span::read(per).ok())?;
            Some(Self { n: n.parse().ok()?, per }).filter(|rate| rate.n > 0 && rate.per > Millis::ZERO)
        };
        let rate = text.split_once('/').and_then(read);
        rate.ok_or_else(|| format!("`{text}` is not a rate: write how many in which time, such as 100/10s or 50/s"))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match span::one(self.per) {
            Some(unit) => write!(f, "{}/{unit}", self.n),
            None => write!(f, "{}/{}", self.n, self.per),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_shown_as_people_write_them() {
        for (text, n, ms) in [("100/10s", 100, 10_000), ("50/s", 50, 1_000), ("1/m", 1, 60_000), ("3/1m30s", 3, 90_000)]
        {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate, Rate { n, per: Millis(ms) }, "{text}");
            assert_eq!(rate.to_string(), text);
        }
        for text in ["", "100", "100/", "/s", "0/s", "5/0s", "-1/s", "1.5/s", "5/fortnight"] {
            let fault = text.parse::<Rate>().unwrap_err();
            assert!(fault.contains(&format!("`{text}`")) && fault.contains("100/10s"), "{fault}");
        }
    }
}
