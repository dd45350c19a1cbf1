//! Answers on their way out: whoever reads slowly keeps what the request took until the last byte is with the system.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::bodies::Part;
use crate::problem::Problem;

/// Memory for an answer up to this size is not counted: the number of connections bounds it.
pub(crate) const UNCOUNTED_BYTES_MAX: usize = 16 * 1024;

/// Whose share of the memory an answer without a credential takes: its handler says so.
#[derive(Clone, Debug)]
pub(crate) struct HeldBy(pub(crate) String);

/// Bytes of an answer; `None` if it is a stream, which has bounds of its own.
pub(crate) fn length(response: &Response) -> Option<usize> {
    response.body().size_hint().exact().map(|n| usize::try_from(n).unwrap_or(usize::MAX))
}

/// Counts the memory of a large answer. A small one takes nothing.
pub(crate) fn count(response: &Response, mut part: Part) -> Result<Option<Part>, Problem> {
    match length(response) {
        Some(n) if n > UNCOUNTED_BYTES_MAX => part.take(n).map(|()| Some(part)),
        Some(_) | None => Ok(None),
    }
}

/// Keeps `held` until the whole answer has been written to its connection, or the connection is gone.
///
/// The body alone would not do: the connection drops it once it has the last frame, which may be all of it and still wait to be written. So each
/// frame keeps it too.
pub(crate) fn keep_until_sent<T: Send + Sync + 'static>(response: Response, held: T) -> Response {
    response.map(|body| Body::new(Kept { body, held: Arc::new(held) }))
}

struct Kept<T> {
    body: Body,
    held: Arc<T>,
}

impl<T: Send + Sync + 'static> HttpBody for Kept<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let keep = |data| Bytes::from_owner(Holding { data, _held: Arc::clone(&self.held) });
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(keep))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

struct Holding<T> {
    data: Bytes,
    _held: Arc<T>,
}

impl<T> AsRef<[u8]> for Holding<T> {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn what_is_held_comes_back_with_the_last_byte_and_not_with_the_body() {
        let held = Arc::new(());
        let response = keep_until_sent(vec![b'x'; 10].into_response(), Arc::clone(&held));
        assert_eq!(length(&response), Some(10), "its length is still known");
        let mut body = response.into_body();
        let mut data = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(body.is_end_stream());
        drop(body);
        assert_eq!(Arc::strong_count(&held), 2, "the connection has it all, and has sent nothing");
        bytes::Buf::advance(&mut data, 9);
        assert_eq!(Arc::strong_count(&held), 2);
        drop(data);
        assert_eq!(Arc::strong_count(&held), 1);
        drop(keep_until_sent(vec![b'x'; 10].into_response(), Arc::clone(&held)));
        assert_eq!(Arc::strong_count(&held), 1, "a client that has gone keeps nothing");
    }
}
