//! A simulation as a picture that needs no script and can be read aloud: everything in it is also said in its description.

use std::fmt::Write;

use doorstep_core::time::Millis;

use super::recovery::Curve;
use super::simulate::Simulation;
use super::terminal::{busiest, ending};
use super::timeline::{End, Life};
use crate::span;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 690.0;
/// One delivery's line is so high.
const LINE: f64 = 26.0;
const LOAD_HEIGHT: f64 = 220.0;
/// A curve has at most so many points.
const POINTS: usize = 300;

const GATED: &str = "#0b6e4f";
const PLAIN: &str = "#b3261e";

pub(super) fn draw(simulation: &Simulation) -> String {
    let lives_top = 70.0;
    let load_top = lives_top + LINE * simulation.lives.len() as f64 + 90.0;
    let height = load_top + LOAD_HEIGHT + 60.0;
    let story = &simulation.story;
    let title = escaped(&format!("An outage of {} under a retry policy", story.outage));
    let description = escaped(&describe(simulation));
    let body = lives(simulation, lives_top) + &load(simulation, load_top);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-labelledby=\"title desc\" font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"#1f2328\">\n\
         <title id=\"title\">{title}</title>\n<desc id=\"desc\">{description}</desc>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

fn describe(simulation: &Simulation) -> String {
    let lives: Vec<String> = simulation.lives.iter().map(ending).collect();
    let curve = |curve: &Curve| {
        let drained = curve.drained_after.map_or("not in time".to_owned(), |after| format!("after {after}"));
        format!(
            "{} requests during the outage, {} in the busiest second after it, all that gathered gone {drained}, {} dead letters",
            curve.in_vain, curve.peak_after, curve.dead
        )
    };
    format!(
        "Deliveries created when the outage begins: {}. With the gate: {}. With the same retries and no gate: {}.",
        lives.join("; "),
        curve(&simulation.recovery.gated),
        curve(&simulation.recovery.plain)
    )
}

fn lives(simulation: &Simulation, top: f64) -> String {
    let outage = simulation.story.outage;
    let lasts = simulation.lives.iter().map(Life::ended_at).max().unwrap_or_default().max(outage);
    let bottom = top + LINE * simulation.lives.len() as f64;
    let mut out = text(LEFT, top - 40.0, "start", &format!("Deliveries created when an outage of {outage} begins"));
    out += &text(LEFT, top - 20.0, "start", "○ failed attempt   ● delivered   × dead");
    out += &down(x(Millis::ZERO, lasts), x(outage, lasts), top, bottom);
    for (i, life) in simulation.lives.iter().enumerate() {
        let y = top + LINE * (i as f64 + 0.5);
        out += &line((LEFT, y), (RIGHT, y), "#d0d7de", "");
        for (n, at) in life.attempts.iter().enumerate() {
            out += &attempt(x(*at, lasts), y, (n + 1 == life.attempts.len()).then_some(life.end));
        }
        out += &text(RIGHT + 12.0, y + 4.0, "start", &ending(life));
    }
    out + &times(bottom + 18.0, lasts, &[Millis::ZERO, outage, lasts])
}

fn attempt(x: f64, y: f64, end: Option<End>) -> String {
    match end {
        None => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"#ffffff\" stroke=\"{PLAIN}\"/>\n"),
        Some(End::Delivered) => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{GATED}\"/>\n"),
        Some(End::Dead(_)) => {
            let (l, r, t, b) = (x - 5.0, x + 5.0, y - 5.0, y + 5.0);
            format!(
                "<path d=\"M{l:.1} {t:.1}L{r:.1} {b:.1}M{l:.1} {b:.1}L{r:.1} {t:.1}\" stroke=\"{PLAIN}\" stroke-width=\"2\"/>\n"
            )
        }
    }
}

fn load(simulation: &Simulation, top: f64) -> String {
    let (story, recovery) = (&simulation.story, &simulation.recovery);
    let curves = [&recovery.gated, &recovery.plain].map(|curve| busiest(&curve.per_second, POINTS));
    let most = curves.iter().flatten().copied().max().map_or(0.0, f64::from).max(story.capacity.per_second()).max(1.0);
    let bottom = top + LOAD_HEIGHT;
    let y = |load: f64| bottom - LOAD_HEIGHT * load / most;
    let heading =
        format!("Load on the receiver, requests per second: {} come, it can take {}", story.arrivals, story.capacity);
    let mut out = text(LEFT, top - 20.0, "start", &heading);
    out += &down(x(story.begins(), story.lasts()), x(story.ends(), story.lasts()), top, bottom);
    let mut last = f64::INFINITY;
    for label in [0.0, story.capacity.per_second(), most] {
        // Labels that would cover one another are left out.
        if last - y(label) >= 14.0 {
            out += &text(LEFT - 8.0, y(label) + 4.0, "end", &format!("{label:.0}"));
            last = y(label);
        }
    }
    let capacity = y(story.capacity.per_second());
    out += &line((LEFT, capacity), (RIGHT, capacity), "#57606a", " stroke-dasharray=\"2 4\"");
    out += &text(RIGHT + 12.0, capacity + 4.0, "start", "what it can take");
    for (points, colour, dash) in [(&curves[1], PLAIN, " stroke-dasharray=\"5 3\""), (&curves[0], GATED, "")] {
        let point = |(i, load): (usize, &u32)| {
            format!("{:.1},{:.1}", LEFT + (RIGHT - LEFT) * i as f64 / POINTS as f64, y(f64::from(*load)))
        };
        let points: Vec<String> = points.iter().enumerate().map(point).collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"{dash}/>",
            points.join(" ")
        );
    }
    for (i, (name, colour, dash)) in
        [("with the gate", GATED, ""), ("without it", PLAIN, " stroke-dasharray=\"5 3\"")].into_iter().enumerate()
    {
        let (at, y) = (LEFT + 160.0 * i as f64, bottom + 42.0);
        out += &line((at, y), (at + 30.0, y), colour, dash);
        out += &text(at + 38.0, y + 4.0, "start", name);
    }
    out + &times(bottom + 18.0, story.lasts(), &[story.begins(), story.ends(), story.lasts()])
}

fn x(at: Millis, lasts: Millis) -> f64 {
    LEFT + (RIGHT - LEFT) * at.0 as f64 / lasts.0.max(1) as f64
}

/// The outage, shaded.
fn down(from: f64, to: f64, top: f64, bottom: f64) -> String {
    let (width, height) = (to - from, bottom - top);
    format!("<rect x=\"{from:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"#f1e3e1\"/>\n")
}

fn line(from: (f64, f64), to: (f64, f64), colour: &str, dash: &str) -> String {
    let ((x1, y1), (x2, y2)) = (from, to);
    format!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"{dash}/>\n")
}

/// The times under an axis, but for those that would cover one another.
fn times(y: f64, lasts: Millis, marks: &[Millis]) -> String {
    const APART: f64 = 60.0;
    let mut last = f64::NEG_INFINITY;
    let mut out = String::new();
    for mark in marks {
        let at = x(*mark, lasts);
        if at - last >= APART {
            out += &text(at, y, "middle", &span::short(*mark));
            last = at;
        }
    }
    out
}

fn text(x: f64, y: f64, anchor: &str, words: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>\n", escaped(words))
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use doorstep_core::retry::RetryPolicy;

    use super::*;
    use crate::policy::recovery::{Arrivals, Story};
    use crate::policy::simulate::simulate;

    fn picture(policy: RetryPolicy) -> (Simulation, String) {
        let story = Story {
            policy,
            arrivals: Arrivals::Evenly("5/s".parse().unwrap()),
            capacity: "20/s".parse().unwrap(),
            outage: Millis::from_mins(5),
            after: Millis::from_mins(5),
            seed: 2,
        };
        let simulation = simulate(story).unwrap();
        let picture = draw(&simulation);
        (simulation, picture)
    }

    /// Every tag that is opened is closed, in order, and no text holds a bare `<` or `&`.
    fn check_well_formed(xml: &str) {
        let mut open = Vec::new();
        for piece in xml.split('<').skip(1) {
            let (tag, text) = piece.split_once('>').expect(piece);
            assert!(!text.contains('>'), "{text}");
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            for entity in text.split('&').skip(1) {
                assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|name| entity.starts_with(name)), "{entity}");
            }
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "closed in order");
            } else if !tag.ends_with('/') {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn the_picture_is_well_formed_and_described() {
        for policy in [RetryPolicy::standard(), RetryPolicy::brief()] {
            let (simulation, picture) = picture(policy);
            check_well_formed(&picture);
            assert!(picture.contains("<title id=\"title\">An outage of 5m under a retry policy</title>"), "{picture}");
            assert!(picture.contains(&escaped(&describe(&simulation))));
            assert!(!picture.contains("<script") && !picture.contains("NaN") && !picture.contains("inf"));
        }
    }

    #[test]
    fn every_attempt_is_drawn_where_it_happens() {
        let (simulation, picture) = picture(RetryPolicy::standard());
        let attempts: usize = simulation.lives.iter().map(|life| life.attempts.len()).sum();
        assert_eq!(picture.matches("<circle").count(), attempts);
        let lasts = simulation.lives.iter().map(Life::ended_at).max().unwrap();
        for at in &simulation.lives[0].attempts {
            assert!(picture.contains(&format!("cx=\"{:.1}\"", x(*at, lasts))), "{at}");
        }
    }
}
