#![allow(clippy::print_stdout)]
use doorstep_sim::limiter::Kind;
use doorstep_sim::limits::*;
fn main() {
    for says_when in [true, false] {
        for (capacity, window) in SIZES {
            for kind in Kind::ALL {
                let limit = Limit { capacity, window, kind, says_when };
                let d = measure(limit, Who::Doorstep, 1);
                println!(
                    "{capacity}/{window} {} {says_when}: {:.1}% {:.2}%",
                    kind.name(),
                    d.used * 100.0,
                    d.refused * 100.0
                );
            }
        }
    }
}
