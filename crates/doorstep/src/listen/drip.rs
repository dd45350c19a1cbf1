//! The bodies of answers: short ones, and one that never ends.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::{Interval, interval};

/// A dripping answer sends one byte this often.
const DRIPS_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) enum AnswerBody {
    Text(Bytes),
    Drip(Box<Interval>),
}

impl AnswerBody {
    pub(super) fn drip() -> Self {
        Self::Drip(Box::new(interval(DRIPS_EVERY)))
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Text(text) if text.is_empty() => Poll::Ready(None),
            Self::Text(text) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(text))))),
            Self::Drip(drops) => drops.poll_tick(context).map(|_| Some(Ok(Frame::data(Bytes::from_static(b"."))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Text(text) if text.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => SizeHint::with_exact(text.len() as u64),
            Self::Drip(_) => SizeHint::default(),
        }
    }
}
