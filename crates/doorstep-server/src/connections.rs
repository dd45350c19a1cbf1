//! Clients: however many, slow or gone, they cannot hold the server.

use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse;
use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use http::{HeaderValue, Version};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Sleep;

use crate::auth::Peer;
use crate::problem::Problem;

#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Connections at the same time; further ones wait to be accepted.
    pub connections_max: usize,
    /// From the first byte of a request, or from the end of the one before, to the end of its headers.
    pub head_within: Duration,
    pub headers_max: usize,
    /// Bytes that are read ahead of what is asked for: the headers have to fit.
    pub buffer_max: usize,
    /// A client that takes nothing of its answer for this long is cut off.
    pub taken_within: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections_max: 4_096,
            head_within: Duration::from_secs(30),
            headers_max: 64,
            buffer_max: 64 * 1024,
            taken_within: Duration::from_secs(30),
        }
    }
}

/// The system is out of something, most likely file descriptors: waiting for some to come back.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Serves until `stop`, then lets requests that are under way come to their end, for at most `grace`.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    stop: impl Future<Output = ()>,
    grace: Duration,
) {
    let places = Arc::new(Semaphore::new(limits.connections_max));
    let (stopping, stopped) = watch::channel(false);
    let mut clients = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        while clients.try_join_next().is_some() {}
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place,
            () = &mut stop => break,
        };
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(fault) => {
                    tracing::warn!(error = %fault, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
                    continue;
                }
            },
            () = &mut stop => break,
        };
        let (router, stopped) = (router.clone(), stopped.clone());
        clients.spawn(async move {
            let _place = place;
            serve_one(stream, Peer(peer.ip()), router, limits, stopped).await;
        });
    }
    drop(listener);
    let _ = stopping.send(true);
    let all = async { while clients.join_next().await.is_some() {} };
    if tokio::time::timeout(grace, all).await.is_err() {
        tracing::warn!("some clients' requests did not come to their end in time; they are cut off");
    }
}

async fn serve_one(
    stream: TcpStream,
    peer: Peer,
    router: Router,
    limits: ConnectionLimits,
    mut stopped: watch::Receiver<bool>,
) {
    // Answers are small, and somebody waits for each.
    let _ = stream.set_nodelay(true);
    let stream = Taken { stream, within: limits.taken_within, waits: None };
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(peer);
        let answer = doubt(&request).map_or_else(|| Ok(router.call(request)), Err);
        async move {
            match answer {
                Ok(answer) => answer.await,
                Err(why) => Ok(refuse(why)),
            }
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_within)
        .max_headers(limits.headers_max)
        .max_buf_size(limits.buffer_max)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = async { drop(stopped.wait_for(|stopped| *stopped).await) } => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(fault) = ended {
        tracing::debug!(error = %fault, "a client's connection broke off");
    }
}

/// Why a request may mean another one to a proxy before us: then a second one could hide in it. What hyper itself refuses is not
/// asked again, and after a `Content-Length` beside a `Transfer-Encoding` it closes the connection.
fn doubt(request: &http::Request<hyper::body::Incoming>) -> Option<&'static str> {
    let headers = request.headers();
    let n_hosts = headers.get_all(HOST).iter().count();
    if n_hosts > 1 || (n_hosts == 0 && request.version() == Version::HTTP_11) {
        return Some("the request has no Host header, or several: send one");
    }
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    if encodings.next().is_some_and(|first| !is_chunked(first)) || encodings.next().is_some() {
        return Some("the body's transfer encoding is not known here: send it plain, or `chunked` and no more");
    }
    None
}

fn refuse(why: &str) -> axum::response::Response {
    let mut answer = Problem::malformed(why).into_response();
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// A client's connection, which breaks when nothing that is written to it is taken for too long.
struct Taken {
    stream: TcpStream,
    within: Duration,
    /// Runs while a write waits.
    waits: Option<Pin<Box<Sleep>>>,
}

impl Taken {
    fn timed<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let within = self.within;
        let waits = self.waits.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        ready!(waits.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(ErrorKind::TimedOut, "the client takes nothing of its answer")))
    }
}

impl AsyncRead for Taken {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Taken {
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

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::SocketAddr;
    use std::thread;

    use axum::routing::get;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);
    const SOON: Duration = Duration::from_millis(200);
    const ASKED: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

    /// Serves these few things until the tests end.
    fn served(limits: ConnectionLimits) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let much = || async { vec![b'x'; 1 << 20] };
        let router = Router::new().route("/", get(|| async { "ok" }).post(|| async { "ok" })).route("/much", get(much));
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                serve(listener, router, limits, std::future::pending(), Duration::ZERO).await;
            });
        });
        address
    }

    fn client(address: SocketAddr, says: &[u8]) -> std::net::TcpStream {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(says).unwrap();
        stream
    }

    /// Everything until the server closes the connection, which it has to.
    fn heard(stream: &mut std::net::TcpStream) -> String {
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        String::from_utf8(heard).unwrap()
    }

    /// The beginning of an answer.
    fn answered(stream: &mut std::net::TcpStream) -> io::Result<()> {
        let mut line = [0; 12];
        stream.read_exact(&mut line)?;
        assert_eq!(&line, b"HTTP/1.1 200");
        Ok(())
    }

    #[test]
    fn a_head_that_does_not_come_to_its_end_is_waited_for_no_longer_than_that() {
        let address = served(ConnectionLimits { head_within: SOON, ..ConnectionLimits::default() });
        for half in [&b""[..], b"GET", b"GET / HTTP/1.1\r\nhost: x\r\nx-a: "] {
            heard(&mut client(address, half));
        }
        let mut kept = client(address, ASKED);
        assert!(heard(&mut kept).starts_with("HTTP/1.1 200"), "and then nothing more comes");
    }

    #[test]
    fn who_takes_nothing_of_its_answer_loses_its_place() {
        let limits = ConnectionLimits { connections_max: 1, taken_within: SOON, ..ConnectionLimits::default() };
        let address = served(limits);
        let greedy = client(address, &b"GET /much HTTP/1.1\r\nhost: x\r\n\r\n".repeat(64));
        answered(&mut client(address, ASKED)).unwrap();
        drop(greedy);
    }

    #[test]
    fn connections_beyond_the_maximum_wait_for_a_place() {
        let address = served(ConnectionLimits { connections_max: 2, ..ConnectionLimits::default() });
        let mut kept = [client(address, ASKED), client(address, ASKED)];
        kept.iter_mut().for_each(|stream| answered(stream).unwrap());
        let mut third = client(address, ASKED);
        third.set_read_timeout(Some(SOON)).unwrap();
        assert_eq!(answered(&mut third).unwrap_err().kind(), ErrorKind::WouldBlock);
        third.set_read_timeout(Some(PATIENCE)).unwrap();
        drop(kept);
        answered(&mut third).unwrap();
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused_and_the_connection_closed() {
        let address = served(ConnectionLimits::default());
        for head in [
            "",
            "host: a\r\nhost: b\r\n",
            "host: a\r\nhost: a\r\n",
            "host: a\r\ntransfer-encoding: gzip, chunked\r\n",
            "host: a\r\ntransfer-encoding: chunked, chunked\r\n",
            "host: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
            "host: a\r\ntransfer-encoding: identity\r\n",
            "host: a\r\ncontent-length: 0\r\ncontent-length: 1\r\n",
        ] {
            let says = format!("POST / HTTP/1.1\r\n{head}\r\n0\r\n\r\nGET / HTTP/1.1\r\nhost: hidden\r\n\r\n");
            let heard = heard(&mut client(address, says.as_bytes()));
            assert!(heard.starts_with("HTTP/1.1 400") && heard.matches("HTTP/1.1").count() == 1, "{head}: {heard}");
        }
        let old = heard(&mut client(address, b"GET / HTTP/1.0\r\n\r\n"));
        assert!(old.starts_with("HTTP/1.0 200"), "HTTP/1.0 needs no host: {old}");
    }
}
