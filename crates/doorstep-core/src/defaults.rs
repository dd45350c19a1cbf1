//! What a destination gets that was given nothing of its own, and the most that it may be given.
//!
//! A destination keeps what it was given ([`Chosen`]). What it was not given follows its tenant's defaults, then the
//! operator's, whenever these change; a preset's name follows what the operator means by it.

use serde::{Deserialize, Serialize};

use crate::destination::DestinationSettings;
use crate::gate::{GateLimits, Rate};
use crate::retry::{AMBIGUOUS_MAX, PolicySpec, Presets, RetryPolicy};
use crate::time::Millis;

/// The operator's settings for all destinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    pub presets: Presets,
    /// A preset's name.
    pub policy: String,
    /// How long one request may take in all.
    pub timeout: Millis,
    /// The gate's numbers. Concurrency, rate and burst are what a destination gets that was given none.
    pub limits: GateLimits,
    /// A delivery with this many ambiguous answers is rejected (D4).
    pub ambiguous_max: u32,
    pub maxima: Maxima,
}

/// The most that any destination may be given. What was given before is cut to it while it is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maxima {
    pub timeout: Millis,
    pub concurrency: u32,
    /// Also of the burst, which is at most one second's worth.
    pub rate: Rate,
}

/// A tenant's own defaults for its destinations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantDefaults {
    pub policy: Option<PolicySpec>,
    pub timeout: Option<Millis>,
    pub concurrency: Option<u32>,
}

/// What a destination was given of what has a default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    pub policy: Option<PolicySpec>,
    pub timeout: Option<Millis>,
    pub concurrency: Option<u32>,
    /// The rate, and the burst.
    pub rate: Option<(Rate, u32)>,
    /// The pace that a person has pinned. Without it, the pace is learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Rate>,
}

/// How long one request may take in all, unless the operator, the tenant or the destination says otherwise.
pub const TIMEOUT_DEFAULT: Millis = Millis::from_secs(15);
/// No request is given less time, nor more, whatever the operator says.
pub const TIMEOUT_MIN: Millis = Millis(100);
pub const TIMEOUT_MAX: Millis = Millis::from_mins(5);
/// No destination gets more requests at once, whatever the operator says.
pub const CONCURRENCY_MAX: u32 = 1_000;
/// No destination gets more requests a second, nor more at once after a silence.
pub const PER_SECOND_MAX: u32 = 100_000;

impl Default for Defaults {
    fn default() -> Self {
        Self {
            presets: Presets::default(),
            policy: "standard".to_owned(),
            timeout: TIMEOUT_DEFAULT,
            limits: GateLimits::default(),
            ambiguous_max: AMBIGUOUS_MAX,
            maxima: Maxima::default(),
        }
    }
}

impl Default for Maxima {
    fn default() -> Self {
        Self { timeout: TIMEOUT_MAX, concurrency: CONCURRENCY_MAX, rate: Rate::per_second(PER_SECOND_MAX.into()) }
    }
}

impl Maxima {
    /// One second's worth, and at least one.
    pub fn burst(&self) -> u32 {
        (self.rate.as_per_second() as u32).max(1)
    }
}

/// A tenth of a second's worth, and at least one: the burst of who names a rate alone.
pub fn burst_of(rate: Rate) -> u32 {
    (rate.as_per_second() / 10.0).ceil().max(1.0) as u32
}

impl Defaults {
    /// Brings a destination's settings in line with what is in force: its policy, its limits and its timeout.
    pub fn resolve(&self, tenant: &TenantDefaults, settings: &mut DestinationSettings) {
        let chosen = settings.chosen.get_or_insert_with(|| Chosen {
            policy: Some(PolicySpec::stored(&settings.policy)),
            timeout: Some(settings.timeout),
            concurrency: Some(settings.limits.concurrency),
            rate: Some((settings.limits.rate, settings.limits.burst)),
            pinned: None,
        });
        let fallback = || PolicySpec::Preset(self.policy.clone());
        let spec = chosen.policy.as_ref().or(tenant.policy.as_ref()).cloned().unwrap_or_else(fallback);
        settings.preset = match &spec {
            PolicySpec::Preset(name) => Some(name.clone()),
            PolicySpec::Custom(_) => None,
        };
        settings.policy = self.policy_of(spec).with_ambiguous_max(self.ambiguous_max);
        let Maxima { timeout, concurrency, rate } = self.maxima;
        let wanted = chosen.concurrency.or(tenant.concurrency).unwrap_or(self.limits.concurrency);
        let (wanted_rate, burst) = chosen.rate.unwrap_or((self.limits.rate, self.limits.burst));
        settings.limits = GateLimits {
            concurrency: wanted.min(concurrency).max(1),
            rate: wanted_rate.min(rate),
            burst: burst.min(self.maxima.burst()).max(1),
            pinned: chosen.pinned.map(|pinned| pinned.min(rate)),
            ..self.limits.clone()
        };
        settings.timeout = chosen.timeout.or(tenant.timeout).unwrap_or(self.timeout).min(timeout);
    }

    /// A preset that the operator has removed means the default until somebody changes it: nothing is lost for it.
    fn policy_of(&self, spec: PolicySpec) -> RetryPolicy {
        let default = || self.presets.get(&self.policy).unwrap_or_default();
        self.presets.read(spec).unwrap_or_else(|_| default())
    }

    /// Whether a name that a destination or a tenant was given means nothing any more.
    pub fn lacks(&self, preset: &str) -> bool {
        self.presets.get(preset).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::BreakerLimits;

    /// As it was stored before there was a choice.
    fn settings() -> DestinationSettings {
        DestinationSettings { chosen: None, ..DestinationSettings::new("https://example.com/".to_owned()) }
    }

    fn operator() -> Defaults {
        let presets = r#"{"weekend": {"strategy": "fixed", "base_ms": 60000, "window_ms": 600000}}"#;
        Defaults {
            presets: presets.parse().unwrap(),
            policy: "weekend".to_owned(),
            timeout: Millis::from_secs(7),
            limits: GateLimits {
                concurrency: 4,
                rate: Rate::per_second(50),
                burst: 5,
                wait_max: Millis::from_hours(2),
                breaker: BreakerLimits { failures_in_row: 3, ..BreakerLimits::default() },
                ..GateLimits::default()
            },
            ambiguous_max: 2,
            maxima: Maxima { timeout: Millis::from_secs(20), concurrency: 8, rate: Rate::per_second(100) },
        }
    }

    fn resolved(defaults: &Defaults, tenant: &TenantDefaults, chosen: Option<Chosen>) -> DestinationSettings {
        let mut settings = DestinationSettings { chosen, ..settings() };
        defaults.resolve(tenant, &mut settings);
        settings
    }

    #[test]
    fn what_was_not_given_follows_the_tenant_and_then_the_operator() {
        let nothing = Some(Chosen::default());
        let got = resolved(&operator(), &TenantDefaults::default(), nothing.clone());
        assert_eq!((got.timeout, got.limits.concurrency, got.limits.burst), (Millis::from_secs(7), 4, 5));
        assert_eq!((got.preset.as_deref(), got.policy.window()), (Some("weekend"), Millis::from_mins(10)));
        assert_eq!((got.limits.wait_max, got.limits.breaker.failures_in_row), (Millis::from_hours(2), 3));

        let tenant = TenantDefaults {
            policy: Some(PolicySpec::Preset("brief".to_owned())),
            timeout: Some(Millis::from_secs(9)),
            concurrency: Some(2),
        };
        let got = resolved(&operator(), &tenant, nothing);
        assert_eq!((got.timeout, got.limits.concurrency), (Millis::from_secs(9), 2));
        assert_eq!((got.preset.as_deref(), got.policy.window()), (Some("brief"), Millis::from_mins(1)));

        let chosen = Chosen {
            policy: Some(serde_json::from_str(r#"{"strategy": "fixed", "window_ms": 5000}"#).unwrap()),
            timeout: Some(Millis::from_secs(11)),
            concurrency: Some(6),
            rate: Some((Rate::per_second(20), 3)),
            pinned: Some(Rate::per_second(30)),
        };
        let got = resolved(&operator(), &tenant, Some(chosen));
        assert_eq!((got.timeout, got.limits.concurrency), (Millis::from_secs(11), 6));
        assert_eq!((got.preset, got.policy.window()), (None, Millis::from_secs(5)));
        assert_eq!((got.limits.rate, got.limits.burst), (Rate::per_second(20), 3));
        assert_eq!(got.limits.pinned, Some(Rate::per_second(30)), "the gate keeps to the slower of both");
    }

    #[test]
    fn what_was_given_before_is_cut_to_the_operators_maxima_and_comes_back_when_these_are_raised() {
        let chosen = Chosen {
            timeout: Some(Millis::from_mins(5)),
            concurrency: Some(1_000),
            rate: Some((Rate::per_second(100_000), 100_000)),
            pinned: Some(Rate::per_second(5_000)),
            ..Chosen::default()
        };
        let mut got = resolved(&operator(), &TenantDefaults::default(), Some(chosen.clone()));
        assert_eq!((got.timeout, got.limits.concurrency), (Millis::from_secs(20), 8));
        assert_eq!((got.limits.rate, got.limits.burst), (Rate::per_second(100), 100));
        assert_eq!(got.limits.pinned, Some(Rate::per_second(100)));
        assert_eq!(got.chosen.as_ref(), Some(&chosen), "what was asked for is kept");
        Defaults::default().resolve(&TenantDefaults::default(), &mut got);
        assert_eq!((got.timeout, got.limits.concurrency), (Millis::from_mins(5), 1_000));
    }

    #[test]
    fn a_preset_that_is_gone_means_the_default_and_keeps_its_name() {
        let chosen = Chosen { policy: Some(PolicySpec::Preset("gone".to_owned())), ..Chosen::default() };
        let got = resolved(&operator(), &TenantDefaults::default(), Some(chosen));
        assert_eq!((got.preset.as_deref(), got.policy.window()), (Some("gone"), Millis::from_mins(10)));
        assert!(operator().lacks("gone") && !operator().lacks("weekend") && !operator().lacks("standard"));
    }

    #[test]
    fn what_was_stored_before_there_were_names_is_known_by_them() {
        let old = |json: &str| {
            let policy: RetryPolicy = serde_json::from_str(json).unwrap();
            let mut settings = DestinationSettings { policy, timeout: Millis::from_secs(3), ..settings() };
            Defaults::default().resolve(&TenantDefaults::default(), &mut settings);
            settings
        };
        let standard = r#"{"strategy": "exponential", "base_ms": 30000, "cap_ms": 3600000, "jitter": "full",
            "floor_ms": 1000, "max_attempts": 16, "window_ms": 259200000}"#;
        let got = old(standard);
        assert_eq!((got.preset.as_deref(), got.policy.max_attempts()), (Some("standard"), 200));
        assert_eq!(got.timeout, Millis::from_secs(3), "what it had was given to it");
        let got = old(&standard.replace("16", "17"));
        assert_eq!((got.preset.as_deref(), got.policy.max_attempts()), (None, 17));
    }
}
