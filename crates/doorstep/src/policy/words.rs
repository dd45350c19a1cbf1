//! A policy in words.

use doorstep_core::retry::{CustomPolicy, JitterKind, PolicySpec, RetryPolicy, StrategyName};
use doorstep_core::time::Millis;

use super::{schedule, timeline};

pub(super) fn describe(policy: &RetryPolicy) -> String {
    let waits = match PolicySpec::from(policy.clone()) {
        PolicySpec::Custom(custom) => waits(&custom),
        PolicySpec::Preset(name) => name,
    };
    let (attempts, window) = (policy.max_attempts(), schedule::window(policy));
    let budget = format!(
        "A delivery ends after {window} or {attempts} attempts, whichever comes first. Probes, and waiting behind a throttle, a breaker \
         or a pause, cost no attempts, but time."
    );
    format!("{waits}\n{budget}\n{}\n", last(policy))
}

fn waits(policy: &CustomPolicy) -> String {
    let span = |ms: Option<Millis>| ms.unwrap_or_default();
    let (base, cap, floor) = (span(policy.base_ms), span(policy.cap_ms), span(policy.floor_ms));
    let jitter = policy.jitter.unwrap_or(JitterKind::None);
    if jitter == JitterKind::Decorrelated {
        return format!("Each wait is drawn between {base} and three times the one before, up to {cap}.");
    }
    let waits = match policy.strategy {
        StrategyName::Exponential => format!("Waits double from {base} up to {cap}"),
        StrategyName::Fixed => format!("Every wait is {base}"),
        StrategyName::Schedule => {
            let delays = policy.delays_ms.as_deref().unwrap_or_default();
            let listed: Vec<String> = delays.iter().map(Millis::to_string).collect();
            format!("Waits are {}, the last one again and again", listed.join(", "))
        }
    };
    match jitter {
        JitterKind::None => format!("{waits}; there is no chance in them."),
        JitterKind::Equal => format!("{waits}; each is drawn from the upper half of that, and is at least {floor}."),
        JitterKind::Full | JitterKind::Decorrelated => format!("{waits}; each is drawn between {floor} and that."),
    }
}

fn last(policy: &RetryPolicy) -> String {
    let life = timeline::live(policy, Millis::MAX, || schedule::MIDDLE);
    let (n, at) = (life.attempts.len(), life.ended_at());
    format!("If all of them fail, there are typically {n} attempts, the last one {at} after the first.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::source;

    #[test]
    fn each_kind_of_policy_has_its_words() {
        for (given, said) in [
            ("standard", "Waits double from 30s up to 1h; each is drawn between 1s and that."),
            (
                "patient",
                "Waits are 1m, 2m, 4m, 8m, 15m, 30m, 1h, 2h, 4h, 8h, 16h, 1d, the last one again and again; each",
            ),
            ("patient", "ends after 5d or 200 attempts, whichever"),
            ("patient", "the last one 4d23h after the first."),
            (
                r#"{"strategy":"fixed","base_ms":60000,"jitter":"none"}"#,
                "Every wait is 1m; there is no chance in them.",
            ),
            (
                r#"{"strategy":"exponential","jitter":"decorrelated"}"#,
                "between 30s and three times the one before, up to 1h",
            ),
        ] {
            let words = describe(&source::read(given, &Default::default()).unwrap());
            assert!(words.contains(said), "{words}");
        }
    }
}
