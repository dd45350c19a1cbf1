use doorstep_core::clock::{Clock, ClockRecord, KeptClock, Reading};

use super::*;

fn record(wall: Timestamp) -> ClockRecord {
    Clock::new(&Reading { wall, up: Millis(7) }, Some("a boot".to_owned()), None).record(wall)
}

pub fn the_clock_is_kept_with_the_latest_time_that_is_known(subject: &mut dyn Subject) {
    let kept = |subject: &dyn Subject| ask(subject.store().clock());
    assert_eq!(kept(subject), KeptClock::default());
    let keep = |at| Write::KeepClock(Box::new(record(at)));
    assert_eq!(write(subject, vec![keep(NOW), keep(NOW + Millis(5))], NOW), [Written::Saved, Written::Saved]);
    assert_eq!(kept(subject), KeptClock { record: Some(record(NOW + Millis(5))), newest: None }, "the last one counts");
    subject.restart();
    assert_eq!(kept(subject).record, Some(record(NOW + Millis(5))));

    one(subject, put(DST));
    let Written::Accepted { available, .. } = one(subject, accept(1, None)) else { panic!("it is new") };
    assert_eq!(kept(subject).newest, Some(NOW));
    one(subject, settle(&available[0], Decision::Delivered, BehindDead::Skip, NOW + Millis(9)));
    assert_eq!(kept(subject).newest, Some(NOW + Millis(9)), "an attempt is newer than the event");
    one(subject, Write::Audit(Box::new(audit_entry(1, None, NOW + Millis(20)))));
    assert_eq!(kept(subject).newest, Some(NOW + Millis(20)));
}
