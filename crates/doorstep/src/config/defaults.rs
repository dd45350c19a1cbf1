//! What the settings say about all destinations together.

use std::time::Duration;

use doorstep_core::defaults::{Defaults, Maxima, burst_of};
use doorstep_core::gate::{BreakerLimits, GateLimits, Rate, SuspensionLimits};
use doorstep_core::time::Millis;
use doorstep_engine::sender::Deadlines;

use super::Config;

impl Config {
    /// What destinations get that are given nothing of their own, and the most that they may be given.
    pub(crate) fn defaults(&self) -> Defaults {
        let rate = Rate::per_second(self.default_rate_per_second.into());
        Defaults {
            presets: self.policies.clone(),
            policy: self.default_policy.clone(),
            timeout: self.default_timeout_ms,
            limits: GateLimits {
                concurrency: self.default_concurrency,
                rate,
                burst: burst_of(rate),
                pinned: None,
                wait_max: self.retry_after_max_ms,
                throttle_waits: self.throttle_waits_ms.clone(),
                breaker: BreakerLimits {
                    requests_min: self.breaker_requests_min,
                    failure_percent: self.breaker_failure_percent,
                    failures_in_row: self.breaker_failures_in_row,
                    cool_down: self.breaker_cool_down_ms,
                    cool_down_max: self.breaker_cool_down_max_ms,
                },
                suspension: SuspensionLimits {
                    permanent_in_row: self.quarantine_permanent_in_row,
                    gone_in_row: self.quarantine_gone_in_row,
                },
            },
            ambiguous_max: self.ambiguous_attempts_max,
            maxima: Maxima {
                timeout: self.timeout_max_ms,
                concurrency: self.concurrency_max,
                rate: Rate::per_second(self.rate_per_second_max.into()),
            },
        }
    }

    /// How long each phase of a request may take.
    pub(crate) fn deadlines(&self) -> Deadlines {
        let span = |ms: Millis| Duration::from_millis(ms.0);
        Deadlines {
            dns: span(self.dns_timeout_ms),
            connect: span(self.connect_timeout_ms),
            tls: span(self.tls_timeout_ms),
            head: self.response_header_timeout_ms.map(span),
            body: span(self.response_body_timeout_ms),
        }
    }
}

/// Settings that are right by themselves and not together.
pub(super) fn contradictions(config: &Config) -> Vec<String> {
    let mut faults = Vec::new();
    if config.policies.get(&config.default_policy).is_none() {
        let names: Vec<&str> = config.policies.names().collect();
        let given = &config.default_policy;
        faults
            .push(format!("default_policy is `{given}`, and there is no such policy: use one of {}", names.join(", ")));
    }
    if !config.tls_system_roots && config.tls_ca_file.is_none() {
        let advice = "set tls_ca_file too, or leave tls_system_roots out";
        faults.push(format!("tls_system_roots is `false`, so no receiver's certificate would be trusted: {advice}"));
    }
    let pairs = [
        ("default_timeout_ms", config.default_timeout_ms.0, "timeout_max_ms", config.timeout_max_ms.0),
        ("default_concurrency", config.default_concurrency.into(), "concurrency_max", config.concurrency_max.into()),
        (
            "default_rate_per_second",
            config.default_rate_per_second.into(),
            "rate_per_second_max",
            config.rate_per_second_max.into(),
        ),
        (
            "breaker_cool_down_ms",
            config.breaker_cool_down_ms.0,
            "breaker_cool_down_max_ms",
            config.breaker_cool_down_max_ms.0,
        ),
    ];
    for (name, given, max, most) in pairs {
        if given > most {
            faults.push(format!("{name} is `{given}`, which is more than {max}, `{most}`: lower it, or raise {max}"));
        }
    }
    faults
}
