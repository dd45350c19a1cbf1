//! "Did you mean …?"

use doorstep_core::similar::nearest;

/// The end of a sentence about an unknown name: the known name that it resembles, if one does.
pub(super) fn suggestion<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(unknown, known) {
        Some(name) => format!(": did you mean `{name}`?"),
        None => ": `doorstep config example` lists what there is".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_foreign_word_is_not() {
        let known = ["listen", "data_dir", "log_level"];
        assert_eq!(suggestion("lissen", known), ": did you mean `listen`?");
        assert!(suggestion("port", known).contains("config example"));
    }
}
