//! "Did you mean …?"

/// The known name that an unknown one resembles most, if one does: at most a third of its letters are others.
pub fn nearest<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let chars = unknown.chars().count();
    let near = known.into_iter().filter(|name| name.len().abs_diff(unknown.len()) <= unknown.len() / 3);
    let distances = near.map(|name| (distance(unknown, name), name));
    distances.min().filter(|(distance, _)| *distance <= chars / 3).map(|(_, name)| name)
}

/// How many letters have to be added, left out or replaced to make one name the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_foreign_word_is_not() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        let known = ["listen", "data_dir", "log_level"];
        assert_eq!(nearest("lissen", known), Some("listen"));
        assert_eq!(nearest("loglevel", known), Some("log_level"));
        assert_eq!(nearest("port", known), None);
        assert_eq!(nearest("", known), None);
    }
}
