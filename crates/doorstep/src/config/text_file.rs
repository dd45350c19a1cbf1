//! Small text files, read with a bound: a path that leads to something huge is a mistake.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// A configuration file, or a file with one value, is no longer than this.
const BYTES_MAX: u64 = 1 << 20;

pub(super) fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    match u64::try_from(text.len()) {
        Ok(0..=BYTES_MAX) => Ok(text),
        _ => Err(io::Error::other(format!("the file is longer than {BYTES_MAX} bytes"))),
    }
}
