//! Answers that are read too slowly.

use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::ConnectionLimits;

/// A client's connection. It breaks when what is written to it is taken too slowly: any progress at all would not do, since a client that
/// takes a byte now and then keeps an answer in memory for days.
pub(super) struct Taken<S> {
    stream: S,
    within: Duration,
    bytes_min: usize,
    /// From when a write had to wait until everything is written.
    slow: Option<Slow>,
}

/// A stretch of time in which a client has to take enough.
struct Slow {
    ends: Pin<Box<Sleep>>,
    taken: usize,
}

impl<S> Taken<S> {
    pub(super) fn new(stream: S, limits: &ConnectionLimits) -> Self {
        let within = limits.taken_within;
        let per_millisecond = within.as_millis().saturating_mul(limits.taken_per_second_min as u128);
        let bytes_min = usize::try_from(per_millisecond / 1_000).unwrap_or(usize::MAX).max(1);
        Self { stream, within, bytes_min, slow: None }
    }

    fn timed(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = written {
            if let (Some(slow), Ok(n)) = (&mut self.slow, &written) {
                slow.taken += n;
            }
            return Poll::Ready(written);
        }
        let (within, bytes_min) = (self.within, self.bytes_min);
        let sleep = || Box::pin(tokio::time::sleep(within));
        let slow = self.slow.get_or_insert_with(|| Slow { ends: sleep(), taken: 0 });
        loop {
            ready!(slow.ends.as_mut().poll(context));
            if slow.taken < bytes_min {
                return Poll::Ready(Err(io::Error::new(ErrorKind::TimedOut, "the client takes its answer too slowly")));
            }
            *slow = Slow { ends: sleep(), taken: 0 };
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Taken<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Taken<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.timed(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Asked for when everything has been written.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.slow = None;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Bytes that a client gets of a long answer, if it takes so many at a time and waits for so long after each.
    async fn taken_by(at_once: usize, every: Duration) -> usize {
        const LONG: usize = 4 << 20;
        let (server, mut client) = tokio::io::duplex(1024);
        let mut server = Taken::new(server, &ConnectionLimits::default());
        let sent = async move {
            let written = server.write_all(&vec![b'x'; LONG]).await;
            drop(server);
            written
        };
        let read = async {
            let (mut taken, mut piece) = (0, vec![0; at_once]);
            loop {
                match client.read(&mut piece).await.unwrap() {
                    0 => return taken,
                    n => taken += n,
                }
                tokio::time::sleep(every).await;
            }
        };
        let (written, taken) = tokio::join!(sent, read);
        assert_eq!(written.is_ok(), taken == LONG, "{written:?} after {taken}");
        taken
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_a_little_now_and_then_is_cut_off_and_one_that_is_only_slow_is_not() {
        let limits = ConnectionLimits::default();
        let in_time = limits.taken_per_second_min * 30;
        assert!(taken_by(1, Duration::from_secs(1)).await <= 2 * 1024, "one byte a second is progress, but not enough");
        assert!(taken_by(1024, Duration::from_secs(1)).await <= in_time);
        // Twice as much as it must.
        assert_eq!(taken_by(1024, Duration::from_millis(60)).await, 4 << 20);
        assert_eq!(taken_by(1024, Duration::ZERO).await, 4 << 20);
    }
}
