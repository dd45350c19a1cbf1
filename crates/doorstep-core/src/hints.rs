use crate::time::Millis;
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    pub retry_after: Option<Millis>,
    pub quota_resets_in: Option<Millis>,
    pub quota_remaining: Option<u64>,
}
