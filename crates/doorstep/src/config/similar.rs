//! "Did you mean …?"

/// The end of a sentence about an unknown name: the known name that it resembles, if one does.
pub(super) fn suggestion<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let distances = known.into_iter().map(|name| (distance(unknown, name), name));
    match distances.min() {
        Some((distance, name)) if distance <= unknown.chars().count() / 3 => format!(": did you mean `{name}`?"),
        _ => ": `doorstep config example` lists what there is".to_owned(),
    }
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
        assert_eq!(suggestion("lissen", known), ": did you mean `listen`?");
        assert_eq!(suggestion("loglevel", known), ": did you mean `log_level`?");
        assert!(suggestion("port", known).contains("config example"));
    }
}
