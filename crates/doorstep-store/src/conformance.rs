//! What every store promises, as tests: named cases, and random sequences of verbs whose every answer has to be the one that
//! [`MemoryStore`](crate::memory::MemoryStore) gives.
//!
//! A store is tested by one line, [`store_conforms!`](crate::store_conforms), given something that makes a fresh one.

pub mod cases;
mod random;
pub mod samples;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use doorstep_core::store::{Store, StoreError, Write, Written};
use doorstep_core::time::Timestamp;

pub use random::agrees_with_memory;

/// A store under test.
pub trait Subject {
    fn store(&self) -> &dyn Store;

    /// Closes it and opens it again, if there is anything to close.
    fn restart(&mut self);

    /// Makes the payload of the event with this number unreadable, as a damaged disk would.
    fn damage(&mut self, event_seq: u64);
}

/// Waits for a store's answer.
pub fn ask<T>(reply: impl Future<Output = Result<T, StoreError>>) -> T {
    wait(reply).expect("the store answers")
}

/// Writes one batch, and returns its answers.
pub fn write(subject: &dyn Subject, batch: Vec<Write>, now: Timestamp) -> Vec<Written> {
    ask(subject.store().write(batch, now))
}

/// Waits for a future, in this thread and without a runtime.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

/// Tests that a kind of store keeps every promise. `$fresh` makes a new one each time: `fn() -> impl Subject`.
#[macro_export]
macro_rules! store_conforms {
    ($fresh:expr) => {
        $crate::store_conforms!(@cases $fresh,
            an_event_is_kept_as_it_came,
            two_tenants_may_have_an_event_of_the_same_name,
            events_are_listed_newest_first_as_far_as_they_fit,
            the_same_event_again_makes_nothing,
            another_body_under_the_same_name_is_refused,
            a_producers_key_belongs_to_one_event_of_a_tenant,
            a_producers_key_is_free_again_once_its_event_is_forgotten,
            an_id_of_another_source_is_told_apart_from_another_event,
            deliveries_are_made_only_for_destinations_that_are_there,
            the_writes_of_a_batch_take_effect_in_their_order,
            due_deliveries_come_in_the_order_of_their_places,
            retries_are_due_on_their_own_track,
            only_the_first_of_a_key_may_go_and_its_end_lets_the_next_one_go,
            a_dead_delivery_that_holds_its_key_goes_first_when_it_is_sent_again,
            a_dead_delivery_that_holds_its_key_lets_go_when_it_is_abandoned,
            one_that_was_skipped_goes_behind_the_others_when_it_is_sent_again,
            one_that_dies_in_the_middle_of_its_queue_holds_its_place_there,
            what_is_said_of_an_earlier_life_does_not_change_the_present_one,
            one_that_runs_out_of_time_keeps_what_it_has_spent,
            what_has_ended_is_settled_no_more,
            what_has_run_out_of_time_is_found,
            a_delivery_keeps_its_history,
            of_a_long_history_the_last_part_is_told,
            only_the_dead_can_be_sent_again,
            a_person_ends_what_has_not_ended,
            one_with_nothing_to_send_ends_with_a_note_and_lets_its_key_go,
            tenants_and_destinations_come_in_the_order_of_their_ids,
            event_types_are_registered_changed_and_removed_by_name,
            a_change_is_refused_if_it_was_made_to_another_version,
            a_tenant_changes_from_the_version_that_was_seen,
            a_tenant_has_no_more_destinations_than_it_may,
            a_gate_is_kept_as_it_was,
            consent_is_kept_apart_from_what_people_change,
            a_late_yes_of_another_url_changes_nothing,
            a_destination_goes_with_all_that_is_queued_for_it,
            what_a_removed_destination_leaves_goes_gradually_and_is_seen_by_nobody,
            lists_are_newest_first_and_go_on_where_the_last_page_ended,
            lists_contain_what_fits_the_filter,
            the_deliveries_of_an_event_are_found_by_its_name,
            a_backlog_is_counted,
            activity_is_counted_by_the_minute,
            what_is_old_is_forgotten_a_little_at_a_time,
            forgetting_a_dead_delivery_lets_its_key_go,
            an_event_stays_as_long_as_a_delivery_of_it,
            a_tenant_has_no_more_queued_than_it_may,
            a_tenant_stores_no_more_bytes_than_it_may,
            what_a_tenant_takes_is_counted_until_it_is_gone,
            an_idle_key_is_forgotten_and_begins_anew,
            a_removed_destination_is_forgotten_in_the_end,
            a_year_of_traffic_leaves_no_more_than_a_season,
            numbers_are_not_given_out_twice,
            all_is_there_after_a_restart,
            the_clock_is_kept_with_the_latest_time_that_is_known,
            what_is_out_of_reach_is_not_there,
            nobody_changes_what_is_out_of_their_reach,
            a_change_by_hand_is_noted_if_it_took_effect,
            the_audit_log_is_searched_newest_first_and_forgotten_from_its_front,
            a_key_changes_but_not_what_it_was_made_for,
            a_key_is_revoked_for_ever,
            a_portal_session_is_opened_once_and_ends,
            one_event_that_cannot_be_read_keeps_no_other_back,
            one_that_was_set_aside_is_due_later_and_says_so,
        );

        #[test]
        fn every_answer_is_the_one_that_memory_gives() {
            $crate::conformance::agrees_with_memory(|| Box::new($fresh()));
        }
    };
    (@cases $fresh:expr, $($case:ident,)*) => {
        $(
            #[test]
            fn $case() {
                $crate::conformance::cases::$case(&mut $fresh());
            }
        )*
    };
}
