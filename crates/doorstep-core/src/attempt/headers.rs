//! Headers as they are kept of a request or an answer.

use std::fmt;

/// A JSON list of pairs. They are written with every request and read by a person now and then, so they are made at once in
/// the form in which a store keeps them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KeptHeaders {
    /// Empty if there are no headers, otherwise a complete JSON array.
    json: Vec<u8>,
}

impl KeptHeaders {
    /// Reserves memory for this many headers, whose names and values together have this many bytes.
    pub fn with_capacity(bytes: usize, headers: usize) -> Self {
        Self { json: Vec::with_capacity(bytes + headers * r#"["",""],"#.len() + "[".len()) }
    }

    /// Adds a header. Its name is one by RFC 9110, and so has nothing that JSON escapes. Bytes of the value that are not
    /// UTF-8 are replaced.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        match self.json.last_mut() {
            Some(end) => *end = b',',
            None => self.json.push(b'['),
        }
        debug_assert!(is_plain(name.as_bytes()), "{name} is no header's name");
        if !is_plain(value) {
            return self.push_escaped(name, value);
        }
        self.json.extend_from_slice(b"[\"");
        self.json.extend_from_slice(name.as_bytes());
        self.json.extend_from_slice(b"\",\"");
        self.json.extend_from_slice(value);
        self.json.extend_from_slice(b"\"]]");
    }

    fn push_escaped(&mut self, name: &str, value: &[u8]) {
        let pair = serde_json::json!([name, String::from_utf8_lossy(value)]);
        self.json.extend_from_slice(format!("{pair}]").as_bytes());
    }

    pub fn is_empty(&self) -> bool {
        self.json.is_empty()
    }

    /// Bytes of the JSON.
    pub fn stored_len(&self) -> usize {
        self.json.len()
    }

    /// The JSON to store; `None` if there are no headers.
    pub fn as_json(&self) -> Option<&[u8]> {
        Some(&self.json[..]).filter(|json| !json.is_empty())
    }

    /// Reads what [`KeptHeaders::as_json`] gave.
    pub fn from_json(json: Option<&[u8]>) -> Result<Self, serde_json::Error> {
        let Some(json) = json else { return Ok(Self::default()) };
        let pairs: Vec<(String, String)> = serde_json::from_slice(json)?;
        Ok(Self { json: if pairs.is_empty() { Vec::new() } else { serde_json::to_vec(&pairs)? } })
    }

    pub fn pairs(&self) -> Vec<(String, String)> {
        // Nothing else is ever written.
        self.as_json().map(|json| serde_json::from_slice(json).unwrap_or_default()).unwrap_or_default()
    }
}

/// Whether JSON needs no escapes for this text. That is so for nearly all header values.
fn is_plain(text: &[u8]) -> bool {
    // Sixteen at a time and without a way out in between, so that they are compared together.
    let all_plain = |bytes: &[u8; 16]| {
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~') & (byte != b'"') & (byte != b'\\');
        bytes.iter().fold(true, |plain, byte| plain & is_plain(*byte))
    };
    let (whole, rest) = text.as_chunks();
    let mut filled_up = [b' '; 16];
    filled_up[..rest.len()].copy_from_slice(rest);
    whole.iter().all(all_plain) && all_plain(&filled_up)
}

impl<'a> FromIterator<(&'a str, &'a str)> for KeptHeaders {
    fn from_iter<T: IntoIterator<Item = (&'a str, &'a str)>>(pairs: T) -> Self {
        let mut headers = Self::default();
        for (name, value) in pairs {
            headers.push(name, value.as_bytes());
        }
        headers
    }
}

impl fmt::Debug for KeptHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.pairs()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_json_and_comes_out_as_it_went_in() {
        let mut headers = KeptHeaders::default();
        assert_eq!((headers.as_json(), headers.pairs()), (None, Vec::new()));
        let values = ["plain text ~", "", "a \"quote\" and a \\", "tab\t", "Grüße", "\u{7f}"];
        for value in values {
            headers.push("x-name", value.as_bytes());
        }
        headers.push("x-bytes", b"a\xffb");
        let expected = values.into_iter().map(|value| ("x-name", value)).chain([("x-bytes", "a\u{fffd}b")]);
        let expected: Vec<_> = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        assert_eq!(headers.pairs(), expected);
        assert_eq!(headers.as_json().unwrap(), serde_json::to_vec(&expected).unwrap());
        assert_eq!(KeptHeaders::from_json(headers.as_json()).unwrap(), headers);
        assert_eq!(KeptHeaders::from_json(None).unwrap(), KeptHeaders::default());
    }

    #[test]
    fn a_quote_is_escaped_wherever_it_stands() {
        for (length, at) in (1..50).flat_map(|length| (0..length).map(move |at| (length, at))) {
            let mut value = vec![b'a'; length];
            value[at] = b'"';
            let mut headers = KeptHeaders::default();
            headers.push("a", &value);
            assert_eq!(headers.pairs()[0].1.as_bytes(), value);
        }
    }

    #[test]
    fn what_was_made_with_room_does_not_grow() {
        let mut headers = KeptHeaders::with_capacity("ab".len() * 3, 3);
        let room = headers.json.capacity();
        for _ in 0..3 {
            headers.push("a", b"b");
        }
        assert_eq!((headers.stored_len(), headers.json.capacity()), (room, room));
    }

    #[test]
    fn what_is_no_list_of_pairs_is_not_read() {
        for json in ["", "[", "{}", r#"[["a"]]"#, r#"[["a",1]]"#, r#"[["a","b"]] "x""#] {
            assert!(KeptHeaders::from_json(Some(json.as_bytes())).is_err(), "{json}");
        }
    }
}
