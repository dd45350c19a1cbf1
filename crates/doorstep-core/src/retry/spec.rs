//! Retry policies as people write them: a preset's name, or an object with names that say their unit.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{AMBIGUOUS_MAX, BUILT_IN, JitterKind, RetryPolicy, Strategy};
use crate::time::Millis;

/// A policy in the API and in files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum PolicySpec {
    Preset(String),
    Custom(CustomPolicy),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomPolicy {
    pub strategy: StrategyName,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_ms: Option<Millis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap_ms: Option<Millis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delays_ms: Option<Vec<Millis>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor_ms: Option<Millis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_ms: Option<Millis>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StrategyName {
    #[default]
    Exponential,
    Fixed,
    Schedule,
}

/// What is wrong with a policy, at which field, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyFault {
    #[error("there is no preset \"{name}\": use {known}, or give an object")]
    UnknownPreset { name: String, known: String },
    #[error("{field} must be between {least} and {most}, but is {given}")]
    OutOfRange { field: &'static str, least: u64, most: u64, given: u64 },
    #[error("{field} has no meaning with strategy \"{strategy}\": remove it, or choose another strategy")]
    NotForStrategy { field: &'static str, strategy: &'static str },
    #[error("strategy \"schedule\" needs delays_ms: a list of 1 to {DELAYS_MAX} delays")]
    DelaysMissing,
    #[error("cap_ms ({cap}) is smaller than base_ms ({base}): raise the cap or lower the base")]
    CapBelowBase { base: u64, cap: u64 },
    #[error(
        "jitter \"decorrelated\" grows from one delay to the next and needs strategy \"exponential\": use \"full\" or \"equal\""
    )]
    DecorrelatedNeedsExponential,
}

/// A schedule lists at most this many delays.
pub const DELAYS_MAX: usize = 100;
/// No delay and no window is shorter than this: a retry never becomes a busy loop.
pub const DELAY_MIN: Millis = Millis(10);
/// No delay is longer than this.
pub const DELAY_MAX: Millis = Millis::from_hours(24 * 30);
/// No window is longer than this.
pub const WINDOW_MAX: Millis = Millis::from_hours(24 * 90);
/// No policy makes more attempts than this.
pub const ATTEMPTS_MAX: u32 = 1_000;

const DEFAULT_BASE: Millis = Millis::from_secs(30);
const DEFAULT_CAP: Millis = Millis::from_hours(1);
const DEFAULT_FLOOR: Millis = Millis::from_secs(1);
/// A safety valve and not the measure: the window ends a delivery first (decision 17 has the proof).
const DEFAULT_ATTEMPTS: u32 = 200;
const DEFAULT_WINDOW: Millis = Millis::from_hours(72);

/// By hand, because serde's untagged enums answer every mistake with "did not match any variant".
impl<'de> Deserialize<'de> for PolicySpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = PolicySpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a preset's name or an object")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<PolicySpec, E> {
                Ok(PolicySpec::Preset(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PolicySpec, A::Error> {
                CustomPolicy::deserialize(MapAccessDeserializer::new(map)).map(PolicySpec::Custom)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl RetryPolicy {
    /// The default: retries within minutes at first, then about every half hour until the window of three days ends.
    pub fn standard() -> Self {
        Self {
            strategy: Strategy::Exponential { base: DEFAULT_BASE, cap: DEFAULT_CAP },
            jitter: JitterKind::Full,
            floor: DEFAULT_FLOOR,
            max_attempts: DEFAULT_ATTEMPTS,
            window: DEFAULT_WINDOW,
            ambiguous_max: AMBIGUOUS_MAX,
        }
    }

    /// A published schedule over five days, for receivers whose owners sleep at night.
    pub fn patient() -> Self {
        let minutes = [1, 2, 4, 8, 15, 30, 60, 120, 240, 480, 960, 1_440];
        Self {
            strategy: Strategy::Schedule { delays: minutes.map(Millis::from_mins).to_vec() },
            jitter: JitterKind::Equal,
            window: Millis::from_hours(5 * 24),
            ..Self::standard()
        }
    }

    /// For news that is worthless after a minute.
    pub fn brief() -> Self {
        Self {
            strategy: Strategy::Exponential { base: Millis::from_secs(1), cap: Millis::from_secs(10) },
            window: Millis::from_secs(60),
            ..Self::standard()
        }
    }

    pub(super) fn built_in(name: &str) -> Option<Self> {
        match name {
            "standard" => Some(Self::standard()),
            "patient" => Some(Self::patient()),
            "brief" => Some(Self::brief()),
            _ => None,
        }
    }
}

impl TryFrom<PolicySpec> for RetryPolicy {
    type Error = PolicyFault;

    fn try_from(spec: PolicySpec) -> Result<Self, PolicyFault> {
        match spec {
            PolicySpec::Preset(name) => {
                Self::built_in(&name).ok_or_else(|| PolicyFault::unknown(name, BUILT_IN.into_iter()))
            }
            PolicySpec::Custom(custom) => custom.build(),
        }
    }
}

impl PolicyFault {
    pub(super) fn unknown<'a>(name: String, known: impl Iterator<Item = &'a str>) -> Self {
        let known: Vec<String> = known.map(|name| format!("\"{name}\"")).collect();
        Self::UnknownPreset { name, known: known.join(", ") }
    }
}

impl PolicySpec {
    /// What a destination was given whose policy was stored as an object, before names were kept. An object that is just
    /// what a preset meant then was given by its name.
    pub(crate) fn stored(policy: &RetryPolicy) -> Self {
        let meant =
            |name, max_attempts| RetryPolicy::built_in(name).map(|preset| RetryPolicy { max_attempts, ..preset });
        let before = [("standard", 16), ("patient", 32), ("brief", 16)];
        match before.into_iter().find(|(name, max_attempts)| meant(name, *max_attempts).as_ref() == Some(policy)) {
            Some((name, _)) => Self::Preset(name.to_owned()),
            None => policy.clone().into(),
        }
    }
}

impl CustomPolicy {
    pub(super) fn build(self) -> Result<RetryPolicy, PolicyFault> {
        let window = self.window_ms.unwrap_or(DEFAULT_WINDOW);
        within("window_ms", DELAY_MIN, WINDOW_MAX, window)?;
        let max_attempts = self.max_attempts.unwrap_or(DEFAULT_ATTEMPTS);
        if !(1..=ATTEMPTS_MAX).contains(&max_attempts) {
            let (least, most, given) = (1, ATTEMPTS_MAX.into(), max_attempts.into());
            return Err(PolicyFault::OutOfRange { field: "max_attempts", least, most, given });
        }
        let jitter = self.jitter.unwrap_or(JitterKind::Full);
        let given_floor = self.floor_ms;
        let strategy = self.strategy()?;
        // Whoever asks for shorter delays than the usual floor means them.
        let floor = given_floor.unwrap_or_else(|| DEFAULT_FLOOR.min(strategy.shortest()));
        within("floor_ms", DELAY_MIN, DELAY_MAX, floor)?;
        if jitter == JitterKind::Decorrelated && !matches!(strategy, Strategy::Exponential { .. }) {
            return Err(PolicyFault::DecorrelatedNeedsExponential);
        }
        Ok(RetryPolicy { strategy, jitter, floor, max_attempts, window, ambiguous_max: AMBIGUOUS_MAX })
    }

    fn strategy(self) -> Result<Strategy, PolicyFault> {
        match self.strategy {
            StrategyName::Exponential => {
                absent("delays_ms", "exponential", self.delays_ms.is_some())?;
                let base = self.base_ms.unwrap_or(DEFAULT_BASE);
                within("base_ms", DELAY_MIN, DELAY_MAX, base)?;
                let cap = self.cap_ms.unwrap_or(DEFAULT_CAP.max(base));
                within("cap_ms", DELAY_MIN, DELAY_MAX, cap)?;
                if cap < base {
                    return Err(PolicyFault::CapBelowBase { base: base.0, cap: cap.0 });
                }
                Ok(Strategy::Exponential { base, cap })
            }
            StrategyName::Fixed => {
                absent("delays_ms", "fixed", self.delays_ms.is_some())?;
                absent("cap_ms", "fixed", self.cap_ms.is_some())?;
                let delay = self.base_ms.unwrap_or(DEFAULT_BASE);
                within("base_ms", DELAY_MIN, DELAY_MAX, delay)?;
                Ok(Strategy::Fixed { delay })
            }
            StrategyName::Schedule => {
                absent("base_ms", "schedule", self.base_ms.is_some())?;
                absent("cap_ms", "schedule", self.cap_ms.is_some())?;
                let delays = self.delays_ms.unwrap_or_default();
                if delays.is_empty() || delays.len() > DELAYS_MAX {
                    return Err(PolicyFault::DelaysMissing);
                }
                for &delay in &delays {
                    within("delays_ms", DELAY_MIN, DELAY_MAX, delay)?;
                }
                Ok(Strategy::Schedule { delays })
            }
        }
    }
}

fn within(field: &'static str, least: Millis, most: Millis, given: Millis) -> Result<(), PolicyFault> {
    if (least..=most).contains(&given) {
        return Ok(());
    }
    Err(PolicyFault::OutOfRange { field, least: least.0, most: most.0, given: given.0 })
}

fn absent(field: &'static str, strategy: &'static str, present: bool) -> Result<(), PolicyFault> {
    if present { Err(PolicyFault::NotForStrategy { field, strategy }) } else { Ok(()) }
}

/// Always the full object: what a policy says must not change when a preset does.
impl From<RetryPolicy> for PolicySpec {
    fn from(policy: RetryPolicy) -> Self {
        let mut custom = CustomPolicy {
            jitter: Some(policy.jitter),
            floor_ms: Some(policy.floor),
            max_attempts: Some(policy.max_attempts),
            window_ms: Some(policy.window),
            ..CustomPolicy::default()
        };
        match policy.strategy {
            Strategy::Exponential { base, cap } => {
                (custom.strategy, custom.base_ms, custom.cap_ms) = (StrategyName::Exponential, Some(base), Some(cap));
            }
            Strategy::Fixed { delay } => (custom.strategy, custom.base_ms) = (StrategyName::Fixed, Some(delay)),
            Strategy::Schedule { delays } => {
                (custom.strategy, custom.delays_ms) = (StrategyName::Schedule, Some(delays));
            }
        }
        Self::Custom(custom)
    }
}
