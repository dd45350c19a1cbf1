//! A `doorstep.toml` to start from.

use std::fmt::Write;

use super::{KEYS, Key, Shape};

/// Every key with its meaning and its default, commented out: what is not set follows later defaults.
pub(super) fn example() -> String {
    let mut text = String::from(
        "# Doorstep's configuration. Every line shows its default; remove the # to change it.\n\
         # A DOORSTEP_* variable counts more than this file, a flag more than both.\n",
    );
    for key in KEYS {
        // Writing into a String cannot fail.
        let _ =
            writeln!(text, "\n# {}\n# {} or --{}\n#{} = {}", key.about(), key.env(), key.flag(), key.name, value(key));
    }
    text
}

fn value(key: &Key) -> String {
    match key.shape {
        Shape::Number | Shape::Switch if !key.default.is_empty() => key.default.to_owned(),
        Shape::List if key.default.is_empty() => "[]".to_owned(),
        Shape::Json => "{}".to_owned(),
        Shape::Text | Shape::Secret | Shape::List | Shape::Number | Shape::Switch => format!("{:?}", key.default),
    }
}
