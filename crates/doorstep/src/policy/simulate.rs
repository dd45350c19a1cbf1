//! `doorstep policy simulate`: an outage, as one delivery lives through it and as the receiver sees its end.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use doorstep_core::dice::{Dice, SeededDice};
use doorstep_core::retry::PolicySpec;
use doorstep_core::time::Millis;
use serde_json::{Value, json};

use super::recovery::{self, Arrivals, Curve, Recovery, Story};
use super::timeline::{self, End, Life};
use super::{source, svg, terminal};
use crate::failure::{Exit, Failure};
use crate::rate::Rate;
use crate::{output, span};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    policy: source::Given,
    /// How long the receiver is down
    #[arg(long, value_name = "SPAN", value_parser = read_outage, default_value = "2h")]
    outage: Millis,
    /// How many new deliveries come [default: 10/s, or fewer if that is too many to simulate]
    #[arg(long, value_name = "N/SPAN")]
    rate: Option<Rate>,
    /// How many the receiver can take; it answers 503 to more
    #[arg(long, value_name = "N/SPAN", default_value = "50/s")]
    capacity: Rate,
    /// How long the time after the outage is watched [default: as long as the outage]
    #[arg(long = "for", value_name = "SPAN", value_parser = span::read)]
    after: Option<Millis>,
    /// The same seed draws the same waits
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Also write the picture to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// One JSON object instead of a picture
    #[arg(long)]
    json: bool,
}

/// All that there is to show.
#[derive(Debug)]
pub(super) struct Simulation {
    pub(super) story: Story,
    pub(super) lives: Vec<Life>,
    pub(super) recovery: Recovery,
    /// How so many deliveries fare that nothing comes after.
    pub(super) alone: Vec<(u64, Curve)>,
}

/// So many deliveries' lives are drawn: enough to see what chance does.
const LIVES: usize = 5;

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let after = args.after.unwrap_or(args.outage);
    let story = Story {
        policy: args.policy.read()?,
        arrivals: Arrivals::Evenly(args.rate.unwrap_or_else(|| recovery::usual_rate(args.outage, after))),
        capacity: args.capacity,
        outage: args.outage,
        after,
        seed: args.seed,
    };
    let simulation = simulate(story).map_err(|too_much| Failure::new(Exit::Usage, too_much))?;
    if let Some(path) = &args.svg {
        fs::write(path, svg::draw(&simulation)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    output::print(&if args.json { format!("{:#}\n", as_json(&simulation)) } else { terminal::draw(&simulation) })
}

pub(super) fn simulate(story: Story) -> Result<Simulation, recovery::TooMuch> {
    let mut dice = SeededDice::new(story.seed);
    let lives = (0..LIVES).map(|_| timeline::live(&story.policy, story.outage, || dice.roll())).collect();
    let recovery = recovery::run(&story)?;
    let alone = recovery::alone(&story);
    Ok(Simulation { story, lives, recovery, alone })
}

fn read_outage(text: &str) -> Result<Millis, String> {
    match span::read(text)? {
        Millis::ZERO => Err("an outage is longer than nothing".to_owned()),
        outage => Ok(outage),
    }
}

fn as_json(simulation: &Simulation) -> Value {
    let Simulation { story, lives, recovery, alone } = simulation;
    let life = |life: &Life| {
        json!({
            "attempts_ms": life.attempts,
            "end": match life.end { End::Delivered => "delivered", End::Dead(_) => "dead" },
            "reason": match life.end { End::Delivered => Value::Null, End::Dead(reason) => json!(reason) },
        })
    };
    let curve = |curve: &Curve| {
        json!({
            "requests_per_second": curve.per_second,
            "requests_during_outage": curve.in_vain,
            "peak_per_second_after": curve.peak_after,
            "refused_over_capacity": curve.refused,
            "delivered": curve.delivered,
            "dead": curve.dead,
            "drained_after_ms": curve.drained_after,
        })
    };
    let few = |(n, curve): &(u64, Curve)| {
        json!({
            "deliveries": n,
            "delivered": curve.delivered,
            "dead": curve.dead,
            "requests_during_outage": curve.in_vain,
            "attempts_charged_max": curve.attempts_max,
            "drained_after_ms": curve.drained_after,
        })
    };
    json!({
        "policy": PolicySpec::from(story.policy.clone()),
        "arrivals": story.arrivals.to_string(),
        "capacity": story.capacity.to_string(),
        "outage_begins_ms": story.begins(),
        "outage_ends_ms": story.ends(),
        "lasts_ms": story.lasts(),
        "seed": story.seed,
        "deliveries": lives.iter().map(life).collect::<Vec<_>>(),
        "alone": alone.iter().map(few).collect::<Vec<_>>(),
        "with_gate": curve(&recovery.gated),
        "plain_retries": curve(&recovery.plain),
    })
}
