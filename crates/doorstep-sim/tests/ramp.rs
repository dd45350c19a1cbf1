//! The ramp after an outage, with the real scheduler and gate under the virtual clock (G8).

use std::cell::RefCell;

use doorstep_core::gate::GateLimits;
use doorstep_core::outcome::Outcome;
use doorstep_core::time::{Millis, Timestamp};
use doorstep_sim::arena::Arena;
use doorstep_sim::senders::Doorstep;

const START: Timestamp = Timestamp(1_700_000_000_000);

/// A destination that gets new deliveries evenly and whose receiver answers 503 for a while.
#[derive(Clone, Copy, Debug)]
struct Story {
    per_second: u64,
    /// How long all was well.
    before: Millis,
    outage: Millis,
}

/// What the receiver accepted in each second from the start.
fn accepted(story: Story, seed: u64) -> Vec<u64> {
    let Story { per_second, before, outage } = story;
    let lasts = before + outage.times(4) + Millis::from_mins(20);
    let seconds = RefCell::new(vec![0; second(lasts) + 2]);
    let receiver = |now: Timestamp| {
        let at = now.since(START);
        if (before..before + outage).contains(&at) {
            return Outcome::Failed { status: 503, wait: None };
        }
        seconds.borrow_mut()[second(at)] += 1;
        Outcome::Accepted { quota: None }
    };
    let mut arena = Arena::new(START, Box::new(receiver), seed);
    let sender = Doorstep::new(GateLimits::default(), false, seed, START);
    arena.add(Box::new(sender), per_second * lasts.0 / 1_000, Some(Millis(1_000 / per_second)));
    arena.run_until(START + lasts);
    drop(arena);
    seconds.into_inner()
}

fn second(at: Millis) -> usize {
    usize::try_from(at.0 / 1_000).unwrap_or(usize::MAX)
}

#[test]
fn after_an_outage_the_backlog_shrinks_all_the_time_and_is_gone_in_about_as_long() {
    let story = |per_second, before, outage| Story { per_second, before, outage };
    let (none, minute) = (Millis::ZERO, Millis::from_mins(1));
    for (story, seed) in [
        // Young destinations, of which nothing is known but what arrives.
        (story(5, none, Millis::from_secs(50)), 1),
        (story(20, none, Millis::from_secs(90)), 2),
        (story(20, none, minute.times(10)), 3),
        (story(100, none, minute.times(5)), 4),
        // Old ones.
        (story(1, minute.times(10), minute.times(30)), 5),
        (story(20, minute.times(10), minute.times(60)), 6),
        (story(50, minute.times(3), minute.times(2)), 7),
    ] {
        let seconds = accepted(story, seed);
        let came_back = {
            let ends = second(story.before + story.outage);
            ends + seconds[ends..].iter().position(|n| *n > 0).expect("it comes back")
        };
        // The receiver is back when a probe finds out, and what gathers until then gathers too.
        let stood = Millis::from_secs(came_back as u64) - story.before;
        let peak = seconds[came_back..].iter().copied().max().unwrap();
        assert!(peak <= (2 * story.per_second).max(20), "{story:?}: {peak} in one second");

        let so_far: Vec<u64> = seconds.iter().scan(0, |sum, n| Some((*sum += n, *sum).1)).collect();
        let waiting = |second: usize| (story.per_second * (second as u64 + 1)).saturating_sub(so_far[second]);
        let drained =
            (came_back..seconds.len()).find(|second| waiting(*second) <= story.per_second).expect("it drains");
        let drained_after = Millis::from_secs((drained - came_back) as u64);
        assert!(
            drained_after <= Millis(stood.0 / 4 * 5) + minute,
            "{story:?}: stood for {stood}, drained after {drained_after}"
        );
        let climbed = came_back + 40;
        for second in climbed..drained.saturating_sub(10) {
            let sent: u64 = seconds[second..second + 10].iter().sum();
            assert!(sent * 2 >= 3 * 10 * story.per_second, "{story:?}: {sent} in the 10 s from {second}");
        }
    }
}
