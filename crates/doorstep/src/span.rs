//! Spans of time as people write them: `250ms`, `30s`, `1h30m`, `3d`.

use doorstep_core::time::Millis;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads a span: numbers with units, largest first or not, without spaces.
pub(crate) fn read(text: &str) -> Result<Millis, String> {
    let wrong = || format!("`{text}` is not a span of time: write a number with a unit, such as 250ms, 30s or 1h30m");
    let (mut rest, mut sum) = (text, Millis::ZERO);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, behind) = rest.split_at(digits);
        let letters = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(letters);
        sum = sum + times(number, unit).ok_or_else(wrong)?;
        rest = behind;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(sum) }
}

/// Reads a unit that stands for one of itself: the `s` of `10/s`.
pub(crate) fn read_unit(text: &str) -> Option<Millis> {
    UNITS.iter().find(|(name, _)| *name == text).map(|(_, ms)| Millis(*ms))
}

/// The unit that this span is exactly one of.
pub(crate) fn one(span: Millis) -> Option<&'static str> {
    UNITS.iter().find(|(_, ms)| *ms == span.0).map(|(name, _)| *name)
}

/// A span as an axis shows it: nothing needs no unit.
pub(crate) fn short(span: Millis) -> String {
    if span == Millis::ZERO { "0".to_owned() } else { span.to_string() }
}

fn times(number: &str, unit: &str) -> Option<Millis> {
    let unit = read_unit(unit)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    // More digits than that are below a millisecond in every unit.
    if part.is_empty() || part.len() > 9 {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let part = part.parse::<u64>().ok()?.checked_mul(unit.0)? / 10u64.pow(u32::try_from(part.len()).ok()?);
    Some(Millis(whole.checked_mul(unit.0)?.checked_add(part)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_people_write_them() {
        for (text, ms) in [
            ("250ms", 250),
            ("0s", 0),
            ("2s", 2_000),
            ("1.5s", 1_500),
            ("0.25h", 900_000),
            ("1m30s", 90_000),
            ("6h", 21_600_000),
            ("3d", 259_200_000),
        ] {
            assert_eq!(read(text), Ok(Millis(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_no_span_is_quoted_with_an_example() {
        for text in ["", "5", "s", "5 s", "-5s", "5y", "1.s", ".5s", "1..5s", "99999999999999999999s", "300000000000d"]
        {
            let fault = read(text).unwrap_err();
            assert!(fault.contains(&format!("`{text}`")) && fault.contains("30s"), "{fault}");
        }
    }
}
