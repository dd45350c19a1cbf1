//! JSON in another layout, with every name, number and string as it was.

/// How JSON is laid out.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    comma: &'static str,
    colon: &'static str,
    /// So many spaces for each level, on lines of their own.
    indent: Option<usize>,
}

impl Layout {
    pub(super) const COMPACT: Self = Self { comma: ",", colon: ":", indent: None };
    pub(super) const SPACED: Self = Self { comma: ", ", colon: ": ", indent: None };

    pub(super) const fn indented(by: usize) -> Self {
        Self { comma: ",", colon: ": ", indent: Some(by) }
    }
}

/// `None`: it is not JSON.
pub(super) fn laid_out(json: &str, layout: Layout) -> Option<String> {
    serde_json::from_str::<serde::de::IgnoredAny>(json).ok()?;
    let (mut out, mut depth, mut rest) = (String::with_capacity(json.len()), 0_usize, json.trim());
    while let Some(first) = rest.chars().next() {
        let n = token(rest);
        let (token, behind) = rest.split_at(n);
        rest = behind.trim_start();
        match first {
            '{' | '[' if rest.starts_with(['}', ']']) => {
                out.push_str(token);
                out.push_str(rest.get(..1)?);
                rest = rest.get(1..)?.trim_start();
            }
            '{' | '[' => {
                depth += 1;
                out.push_str(token);
                out.push_str(&line(layout, depth));
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                out.push_str(&line(layout, depth));
                out.push_str(token);
            }
            ',' => {
                out.push_str(layout.comma);
                out.push_str(&line(layout, depth));
            }
            ':' => out.push_str(layout.colon),
            _ => out.push_str(token),
        }
    }
    Some(out)
}

fn line(layout: Layout, depth: usize) -> String {
    layout.indent.map_or(String::new(), |by| format!("\n{}", " ".repeat(by * depth)))
}

/// How long the first token is: a mark, a string, or a word that ends with the next of them.
fn token(json: &str) -> usize {
    let bytes = json.as_bytes();
    match bytes.first() {
        Some(b'"') => {
            let mut at = 1;
            while let Some(byte) = bytes.get(at).filter(|byte| **byte != b'"') {
                at += if *byte == b'\\' { 2 } else { 1 };
            }
            at + 1
        }
        Some(b'{' | b'}' | b'[' | b']' | b',' | b':') => 1,
        _ => json.find(|c: char| ",:{}[]\"".contains(c) || c.is_whitespace()).unwrap_or(json.len()),
    }
}

/// Everything but ASCII as `\u00fc`, as Python writes it.
pub(super) fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            out.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    out
}

pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || text.len() % 2 == 1 {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_white_space_changes() {
        let json = "{ \"b\" : [1.50, {}, [ ] ,\"a, \\\"b\\\": {c}\"],\n\"a\":null }";
        for (layout, expected) in [
            (Layout::COMPACT, r#"{"b":[1.50,{},[],"a, \"b\": {c}"],"a":null}"#),
            (Layout::SPACED, r#"{"b": [1.50, {}, [], "a, \"b\": {c}"], "a": null}"#),
            (
                Layout::indented(2),
                "{\n  \"b\": [\n    1.50,\n    {},\n    [],\n    \"a, \\\"b\\\": {c}\"\n  ],\n  \"a\": null\n}",
            ),
        ] {
            assert_eq!(laid_out(json, layout).unwrap(), expected);
        }
        assert_eq!(laid_out("{", Layout::COMPACT), None);
        assert_eq!(escaped("ü😀"), "\\u00fc\\ud83d\\ude00");
        assert_eq!(from_hex("00fF"), Some(vec![0, 255]));
    }
}
