//! "Did you mean …?"

/// The known name that an unknown one resembles most, if one does: at most a third of its letters are others.
pub fn nearest<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let chars = unknown.chars().count();
    let near = known.into_iter().filter(|name| name.len().abs_diff(unknown.len()) <= unknown.len() / 3);
    let distances = near.map(|name| (distance(unknown, name), name));
    distances.min().filter(|(distance, _)| *distance <= chars / 3).map(|(_, name)| name)
}

/// How much of an unknown name an error repeats.
const SHOWN_MAX: usize = 64;

/// What is said of a name that is none of those that there are.
pub fn none_of(unknown: &str, known: &[&str]) -> String {
    let near = nearest(unknown, known.iter().copied()).map_or(String::new(), |near| format!("did you mean `{near}`? "));
    let shown: String = unknown.chars().take(SHOWN_MAX).collect();
    format!("`{shown}` is none: {near}there are {}", known.join(", "))
}

/// How many letters have to be added, left out, replaced, or swapped with their neighbours to make one name the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // At `[i][j]`: between the first `i` letters of one and the first `j` of the other.
    let mut of: Vec<Vec<usize>> = (0..=a.len()).map(|i| (i..=i + b.len()).collect()).collect();
    of[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = of[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let changed = replaced.min(of[i - 1][j] + 1).min(of[i][j - 1] + 1);
            let is_swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            of[i][j] = if is_swapped { changed.min(of[i - 2][j - 2] + 1) } else { changed };
        }
    }
    of[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_foreign_word_is_not() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!((distance("tpye", "type"), distance("abc", "cab")), (1, 2));
        let known = ["listen", "data_dir", "log_level"];
        assert_eq!(nearest("lissen", known), Some("listen"));
        assert_eq!(nearest("loglevel", known), Some("log_level"));
        assert_eq!(nearest("port", known), None);
        assert_eq!(nearest("", known), None);
    }

    #[test]
    fn an_unknown_name_is_told_what_there_is() {
        let known = ["listen", "data_dir"];
        assert_eq!(none_of("lissen", &known), "`lissen` is none: did you mean `listen`? there are listen, data_dir");
        assert_eq!(none_of("port", &known), "`port` is none: there are listen, data_dir");
        assert!(none_of(&"ä".repeat(9_999), &known).len() < 200);
    }
}
