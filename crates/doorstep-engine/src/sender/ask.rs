//! Asks a receiver for its consent to be sent to: one `OPTIONS` at its exact URL.

use std::time::Duration;

use doorstep_core::attempt::Timings;
use doorstep_core::consent::{self, ConsentLink, Leave};
use doorstep_core::destination::Destination;
use doorstep_core::hints::Hints;
use doorstep_core::sender::Asked;
use doorstep_core::time::Millis;
use http::Uri;
use tokio::time::Instant;

use super::deadline::Deadline;
use super::{Answered, SendFault, Sender};

/// A question takes no longer, whatever its destination allows: others wait for its place.
pub const ASK_TIMEOUT_MAX: Millis = Millis::from_secs(10);

/// In whose name receivers are asked, where the server has no name of its own.
const NAMELESS: &str = "localhost";

/// The name of the host that a URL leads to.
pub(super) fn origin(public_url: &str) -> String {
    let host = public_url.parse::<Uri>().ok().and_then(|url| url.host().map(str::to_owned));
    host.unwrap_or_else(|| NAMELESS.to_owned())
}

impl Sender {
    /// Asks once. Whatever the receiver does is an answer; only our own faults are errors.
    pub async fn ask(&self, destination: &Destination) -> Result<Asked, SendFault> {
        let (now, started) = ((self.clock)().at, Instant::now());
        let prepared = self.prepared.get(destination, &self.connector.rules, &self.tls, now)?;
        let timeout = destination.settings.timeout.min(ASK_TIMEOUT_MAX);
        let mut deadline = Deadline::new(started, Duration::from_millis(timeout.0));
        let answered = match prepared.target() {
            Ok(target) => {
                let asks = self.questions(destination);
                let again = || Some(target.asking(&asks));
                self.deliver(target, target.asking(&asks), again, &mut deadline, &mut Timings::default()).await
            }
            Err(blocked) => Err(blocked),
        };
        let (leave, wait) = match answered {
            Ok(Answered { status, headers, .. }) => {
                let lines: Vec<(&str, &[u8])> =
                    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
                let hints =
                    Hints::read(lines.iter().copied(), (self.clock)().wall, destination.settings.limits.wait_max);
                let leave = Leave::read(&self.origin, &lines);
                (leave.map_err(|why| format!("it answered {}: {why}", status.as_u16())), hints.retry_after)
            }
            Err(no_answer) if self.was_asleep(&no_answer, &deadline, now) => return Err(SendFault::Asleep),
            Err(no_answer) => {
                let destination_id = destination.id;
                tracing::debug!(%destination_id, detail = no_answer.detail, "no answer to the question for consent");
                (Err(format!("it did not answer: {}", no_answer.fault)), None)
            }
        };
        Ok(Asked { origin: self.origin.clone(), leave, wait })
    }

    fn questions(&self, destination: &Destination) -> Vec<(&'static str, String)> {
        let per_minute = consent::per_minute(&destination.settings.limits);
        let mut asks =
            vec![(consent::REQUEST_ORIGIN, self.origin.clone()), (consent::REQUEST_RATE, per_minute.to_string())];
        asks.extend(self.callback(destination).map(|href| (consent::REQUEST_CALLBACK, href)));
        asks
    }

    /// A link that agrees has to be as well protected as what it agrees to.
    fn callback(&self, destination: &Destination) -> Option<String> {
        let url = &destination.settings.url;
        if url.starts_with("https:") && !self.public_url.starts_with("https:") {
            return None;
        }
        let link = ConsentLink::new(destination.id, url, (self.clock)().at);
        destination.secrets.link_key.as_ref().map(|key| link.href(&self.public_url, key))
    }
}
