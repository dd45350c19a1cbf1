//! The specification keeps its own promises.

use doorstep_core::store::Store;
use doorstep_store::conformance::Subject;
use doorstep_store::memory::MemoryStore;

#[derive(Default)]
struct Fresh(MemoryStore);

impl Subject for Fresh {
    fn store(&self) -> &dyn Store {
        &self.0
    }

    fn restart(&mut self) {}

    fn damage(&mut self, event_seq: u64) {
        self.0.damage(event_seq);
    }
}

doorstep_store::store_conforms!(Fresh::default);

#[test]
fn erased_payloads_are_gone_and_what_comes_later_is_not() {
    doorstep_store::conformance::cases::erased_payloads_are_gone_and_what_comes_later_is_not(&mut Fresh::default());
}

#[test]
fn what_was_captured_of_attempts_goes_with_the_payload() {
    doorstep_store::conformance::cases::what_was_captured_of_attempts_goes_with_the_payload(&mut Fresh::default());
}
