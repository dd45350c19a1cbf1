//! `doorstep listen`: a receiver that verifies what it is sent, and misbehaves on request.

mod manners;
mod quota;
mod signature;
mod seen;
mod tally;
mod record;
mod drip;
mod serve;

use std::net::{IpAddr, SocketAddr};

use anyhow::Context;
use doorstep_core::dice::SeededDice;
use doorstep_core::signature::VerifyingKey;
use doorstep_core::time::Millis;
use tokio::net::TcpListener;

use crate::failure::{Exit, Failure};
use crate::rate::Rate;
use crate::secret_source::LISTEN;
use crate::share::Share;
use crate::{runtime, span};
use manners::{Manners, Misdeed};
use record::Style;
use serve::Receiver;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Port; 0 takes any free one, and the first line says which
    #[arg(long, value_name = "N", default_value_t = 4000)]
    port: u16,
    /// Address
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Verify signatures with this secret (whsec_…) or public key (whpk_…); may be repeated. Other users of the machine can read it: --secret-file or a variable is better
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    secret: Vec<String>,
    /// File with such secrets, separated by commas or lines, or - for standard input [env: DOORSTEP_LISTEN_SECRET, DOORSTEP_LISTEN_SECRET_FILE]
    #[arg(long, value_name = "FILE", conflicts_with = "secret")]
    secret_file: Option<String>,
    /// Agree to be sent to when asked (OPTIONS of the CloudEvents handshake): so many requests per minute, or * for any number
    #[arg(long, value_name = "N", value_parser = read_consent)]
    consent: Option<String>,
    /// Answer with this status instead of 200
    #[arg(long, value_name = "CODE", value_parser = clap::value_parser!(u16).range(200..=599), help_heading = "Misbehaviour")]
    status: Option<u16>,
    /// Misbehave to this share of requests only; with 503 if nothing else is asked for
    #[arg(long, value_name = "SHARE", help_heading = "Misbehaviour")]
    fail: Option<Share>,
    /// Answer 429 with Retry-After to what exceeds this, such as 100/10s
    #[arg(long, value_name = "N/SPAN", help_heading = "Misbehaviour")]
    rate_limit: Option<Rate>,
    /// Wait before every answer: 2s, or anywhere in 2s..5s
    #[arg(long, value_name = "SPAN", value_parser = read_delay, help_heading = "Misbehaviour")]
    delay: Option<(Millis, Millis)>,
    /// Take requests and never answer
    #[arg(long, help_heading = "Misbehaviour")]
    hang: bool,
    /// Reset the connection instead of answering
    #[arg(long, help_heading = "Misbehaviour")]
    reset: bool,
    /// Answer 200 and then a body without end, one byte a second
    #[arg(long, help_heading = "Misbehaviour")]
    drip: bool,
    /// The same seed makes the same random choices
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Misbehaviour")]
    seed: u64,
    /// One JSON object per request on standard output; everything else goes to standard error
    #[arg(long)]
    json: bool,
    /// With --json: bodies too, in base64
    #[arg(long, requires = "json")]
    bodies: bool,
    /// No line per request
    #[arg(long)]
    quiet: bool,
    /// End after so many requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End when standard input does: whoever started it has gone, however it went
    #[arg(long, hide = true)]
    end_with_stdin: bool,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = threads)]
    threads: usize,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let (keys, warning) = (keys(&args)?, warning(&args.secret));
    let receiver = Receiver::new(keys, manners(&args), style(&args), args.count, args.consent.clone());
    let address = SocketAddr::new(args.host, args.port);
    runtime::run(args.threads, async move {
        let asked = runtime::asked_to_end()?;
        let end = async move {
            tokio::select! {
                () = asked => {}
                () = stdin_ends(), if args.end_with_stdin => {}
            }
        };
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}: choose another --port or --host"))?;
        serve::serve(listener, receiver, warning, end).await
    })
}

async fn stdin_ends() {
    // On a thread of its own, since a read of standard input cannot be given up.
    let (ended, ends) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        drop(ended);
    });
    let _ = ends.await;
}

fn manners(args: &Args) -> Manners {
    let mut misdeeds = Vec::new();
    misdeeds.extend(args.status.map(Misdeed::Status));
    misdeeds.extend(args.hang.then_some(Misdeed::Hang));
    misdeeds.extend(args.reset.then_some(Misdeed::Reset));
    misdeeds.extend(args.drip.then_some(Misdeed::Drip));
    if misdeeds.is_empty() && args.fail.is_some() {
        misdeeds.push(Misdeed::Status(503));
    }
    let share = args.fail.unwrap_or(Share::ALL);
    Manners::new(misdeeds, share, args.rate_limit, args.delay, SeededDice::new(args.seed))
}

fn style(args: &Args) -> Style {
    match (args.quiet, args.json) {
        (true, json) => Style { lines: None, messages_aside: json },
        (false, true) => Style { lines: Some(record::Lines::Json { bodies: args.bodies }), messages_aside: true },
        (false, false) => Style { lines: Some(record::Lines::Plain), messages_aside: false },
    }
}

/// By hand, because clap would repeat a wrong secret.
fn keys(args: &Args) -> Result<Vec<VerifyingKey>, Failure> {
    let (from, secrets) = match args.secret.as_slice() {
        [] => ("the secret", LISTEN.read(None, args.secret_file.as_deref())?.unwrap_or_default()),
        given => ("--secret", given.join(",")),
    };
    let key = |secret: &str| secret.parse().map_err(|fault| Failure::said(Exit::Usage, format!("{from}: {fault}")));
    secrets.split([',', '\n']).map(str::trim).filter(|secret| !secret.is_empty()).map(key).collect()
}

/// A public key is no secret.
fn warning(arguments: &[String]) -> Option<String> {
    let is_secret = |key: &String| !key.is_empty() && !key.starts_with("whpk_");
    let told = || format!("warning: other users of this machine can read --secret: {}", LISTEN.advice());
    arguments.iter().any(is_secret).then(told)
}

fn read_consent(text: &str) -> Result<String, String> {
    let counts = text == "*" || text.parse::<std::num::NonZeroU32>().is_ok();
    counts.then(|| text.to_owned()).ok_or_else(|| "is requests per minute, such as 120, or *".to_owned())
}

fn read_delay(text: &str) -> Result<(Millis, Millis), String> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    let (least, most) = (span::read(least)?, span::read(most)?);
    if least > most {
        Err(format!("{least} is longer than {most}: write the shorter one first"))
    } else {
        Ok((least, most))
    }
}

/// More would only stand in each other's way.
const THREADS_MAX: usize = 64;

fn threads(text: &str) -> Result<usize, String> {
    let threads = text.parse().ok().filter(|threads| (1..=THREADS_MAX).contains(threads));
    threads.ok_or_else(|| format!("give a number from 1 to {THREADS_MAX}"))
}
