//! The bytes of one connection, plain or inside TLS, and how many of them have come.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// A connection that counts what it receives.
#[derive(Debug)]
pub(super) struct Wire {
    stream: Stream,
    meter: Arc<Meter>,
}

#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Wire {
    pub(super) fn new(stream: Stream) -> (Self, Arc<Meter>) {
        let meter = Arc::new(Meter {
            received: AtomicU64::new(0),
            allowed: AtomicU64::new(u64::MAX),
            refused: AtomicBool::new(false),
        });
        (Self { stream, meter: Arc::clone(&meter) }, meter)
    }
}

/// How many bytes have come, and how many may. Read by whoever waits for an answer.
#[derive(Debug)]
pub(super) struct Meter {
    received: AtomicU64,
    allowed: AtomicU64,
    refused: AtomicBool,
}

impl Meter {
    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Acquire)
    }

    /// From now on at most `more` bytes may come, or the connection fails.
    pub(super) fn allow(&self, more: u64) {
        self.allowed.store(self.received().saturating_add(more), Ordering::Release);
    }

    /// So many bytes may come beyond what was allowed already.
    pub(super) fn credit(&self, more: u64) {
        self.allowed.fetch_add(more, Ordering::AcqRel);
    }

    /// The receiver ended TLS with an alert. In TLS 1.3 it judges our certificate, or the lack of one, when the handshake
    /// has already ended for us.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }

    pub(super) fn is_overdrawn(&self) -> bool {
        self.received() > self.allowed.load(Ordering::Acquire)
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        });
        if let Err(fault) = read {
            self.meter.refused.fetch_or(is_alert(&fault), Ordering::AcqRel);
            return Poll::Ready(Err(fault));
        }
        let came = u64::try_from(buf.filled().len() - before).unwrap_or(u64::MAX);
        self.meter.received.fetch_add(came, Ordering::AcqRel);
        if self.meter.is_overdrawn() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "the receiver sends too much")));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    // Head and payload then leave in one call, and the payload is never copied behind the head.
    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

fn is_alert(fault: &io::Error) -> bool {
    let tls = fault.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(tls, Some(rustls::Error::AlertReceived(_)))
}
