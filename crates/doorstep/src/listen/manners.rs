//! Which answer a request gets, and after which wait. Told the time and the dice, it decides; others do.

use doorstep_core::dice::{Dice, SeededDice};
use doorstep_core::time::{Millis, Timestamp};

use super::quota::Quota;
use crate::rate::Rate;
use crate::share::Share;

/// What a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Accepted,
    /// 401: the signature is bad.
    Refused,
    /// 429, and when it is worth trying again.
    TooMany {
        retry_after_secs: u64,
    },
    Misdeed(Misdeed),
}

/// What was asked for on the command line instead of a good answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misdeed {
    Status(u16),
    Hang,
    Reset,
    Drip,
}

#[derive(Debug)]
pub(super) struct Manners {
    misdeeds: Vec<Misdeed>,
    share: Share,
    quota: Option<Quota>,
    delay: Option<(Millis, Millis)>,
    dice: SeededDice,
}

impl Manners {
    /// With several misdeeds, each is as likely as the others.
    pub(super) fn new(
        misdeeds: Vec<Misdeed>,
        share: Share,
        limit: Option<Rate>,
        delay: Option<(Millis, Millis)>,
        dice: SeededDice,
    ) -> Self {
        Self { misdeeds, share, quota: limit.map(Quota::new), delay, dice }
    }

    /// The answer to a request that came now, and how long it is kept waiting for that.
    pub(super) fn decide(&mut self, well_signed: bool, now: Timestamp) -> (Answer, Millis) {
        let answer = self.answer(well_signed, now);
        let wait = self.delay.map_or(Millis::ZERO, |(least, most)| self.dice.roll().between(least, most));
        (answer, wait)
    }

    /// A request that is not ours spends no quota, and one over the quota is not let in to be misbehaved to.
    fn answer(&mut self, well_signed: bool, now: Timestamp) -> Answer {
        if !well_signed {
            return Answer::Refused;
        }
        if let Some(quota) = &mut self.quota
            && let Err(wait) = quota.spend(now)
        {
            return Answer::TooMany { retry_after_secs: wait.0.div_ceil(1_000) };
        }
        if self.misdeeds.is_empty() || !self.share.hits(self.dice.roll()) {
            return Answer::Accepted;
        }
        Answer::Misdeed(self.any_misdeed())
    }

    fn any_misdeed(&mut self) -> Misdeed {
        if let [only] = self.misdeeds[..] {
            return only;
        }
        let last = Millis(self.misdeeds.len() as u64 - 1);
        let drawn = self.dice.roll().up_to(last);
        self.misdeeds[usize::try_from(drawn.0).unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(0);

    fn manners(misdeeds: &[Misdeed], share: &str, limit: Option<&str>) -> Manners {
        let limit = limit.map(|limit| limit.parse().unwrap());
        Manners::new(misdeeds.to_vec(), share.parse().unwrap(), limit, None, SeededDice::new(1))
    }

    #[test]
    fn each_request_gets_what_was_asked_for() {
        use Misdeed::{Drip, Hang, Reset, Status};
        let cases: [(&[Misdeed], &str, bool, Answer); 8] = [
            (&[], "100%", true, Answer::Accepted),
            (&[], "100%", false, Answer::Refused),
            (&[Status(503)], "100%", true, Answer::Misdeed(Status(503))),
            (&[Status(503)], "0%", true, Answer::Accepted),
            (&[Status(503)], "100%", false, Answer::Refused),
            (&[Hang], "100%", true, Answer::Misdeed(Hang)),
            (&[Reset], "100%", true, Answer::Misdeed(Reset)),
            (&[Drip], "100%", true, Answer::Misdeed(Drip)),
        ];
        for (misdeeds, share, well_signed, expected) in cases {
            let answer = manners(misdeeds, share, None).decide(well_signed, NOW);
            assert_eq!(answer, (expected, Millis::ZERO), "{misdeeds:?} {share} {well_signed}");
        }
    }

    #[test]
    fn a_share_misbehaves_and_each_misdeed_has_its_part() {
        let mut manners = manners(&[Misdeed::Status(503), Misdeed::Hang], "30%", None);
        let answers: Vec<Answer> = (0..10_000).map(|_| manners.decide(true, NOW).0).collect();
        let count = |wanted| answers.iter().filter(|answer| **answer == wanted).count();
        for (answer, expected) in [
            (Answer::Accepted, 7_000),
            (Answer::Misdeed(Misdeed::Status(503)), 1_500),
            (Answer::Misdeed(Misdeed::Hang), 1_500),
        ] {
            assert!(count(answer).abs_diff(expected) < 200, "{answer:?}: {}", count(answer));
        }
    }

    #[test]
    fn over_the_limit_a_request_is_told_when_to_come_back() {
        let mut manners = manners(&[], "100%", Some("2/10s"));
        let mut at = |ms| manners.decide(true, Timestamp(ms)).0;
        assert_eq!(at(500), Answer::Accepted);
        assert_eq!(at(600), Answer::Accepted);
        // The window ends at 10 500: whole seconds, rounded up, so that nobody comes too early.
        assert_eq!(at(1_499), Answer::TooMany { retry_after_secs: 10 });
        assert_eq!(at(9_500), Answer::TooMany { retry_after_secs: 1 });
        assert_eq!(at(10_499), Answer::TooMany { retry_after_secs: 1 });
        assert_eq!(at(10_500), Answer::Accepted);
    }

    #[test]
    fn a_bad_signature_spends_no_quota() {
        let mut manners = manners(&[], "100%", Some("1/10s"));
        assert_eq!(manners.decide(false, NOW).0, Answer::Refused);
        assert_eq!(manners.decide(true, NOW).0, Answer::Accepted);
    }

    #[test]
    fn every_answer_waits_within_the_range() {
        let delay = Some((Millis(20), Millis(50)));
        let mut manners = Manners::new(vec![], Share::ALL, None, delay, SeededDice::new(1));
        let waits: Vec<u64> = (0..1_000).map(|_| manners.decide(true, NOW).1.0).collect();
        assert_eq!((waits.iter().min(), waits.iter().max()), (Some(&20), Some(&50)));
    }
}
