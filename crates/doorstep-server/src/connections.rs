//! Clients: however many, slow or gone, they cannot hold the server.

mod peers;
mod taken;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse;
use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use http::{HeaderValue, Version};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::auth::{Peer, Proxies};
use crate::problem::Problem;
use peers::Peers;
pub(crate) use peers::counted_as;
use taken::Taken;

#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// Connections at the same time; further ones wait to be accepted.
    pub connections_max: usize,
    /// Of them, those of one address, or of one network (/64) of IPv6; further ones are closed at once.
    pub per_peer_max: usize,
    /// All clients of a proxy come from its address: it is not counted.
    pub proxies: Proxies,
    /// Nor is the machine itself, where one may run that is not named.
    pub loopback_is_a_crowd: bool,
    /// From the first byte of a request, or from the end of the one before, to the end of its headers.
    pub head_within: Duration,
    pub headers_max: usize,
    /// Bytes that are read ahead of what is asked for: the headers have to fit.
    pub buffer_max: usize,
    /// An answer that waits to be read is looked after for this long at a time …
    pub taken_within: Duration,
    /// … and in each such time the client has to take so many bytes for each second of it, or all that there is. Otherwise it is cut off.
    pub taken_per_second_min: usize,
}

/// A peer has this part of all connections, unless it is said otherwise.
pub const PEERS_PART: usize = 8;

impl ConnectionLimits {
    /// So many connections; without a share for each peer, it is a part of them.
    #[must_use]
    pub fn with_connections(self, connections_max: usize, per_peer_max: Option<usize>) -> Self {
        let per_peer_max = per_peer_max.unwrap_or(connections_max.div_ceil(PEERS_PART));
        Self { connections_max, per_peer_max, ..self }
    }
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections_max: 4_096,
            per_peer_max: 4_096 / PEERS_PART,
            proxies: Proxies::default(),
            loopback_is_a_crowd: true,
            head_within: Duration::from_secs(30),
            headers_max: 64,
            buffer_max: 64 * 1024,
            taken_within: Duration::from_secs(30),
            taken_per_second_min: 8 * 1024,
        }
    }
}

/// The system is out of something, most likely file descriptors: waiting for some to come back.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// That a peer wants more than its share is told this often.
const TOLD_EVERY: Duration = Duration::from_mins(1);

/// Serves until `stop`, then lets requests that are under way come to their end, for at most `grace`.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    stop: impl Future<Output = ()>,
    grace: Duration,
) {
    let limits = Arc::new(limits);
    let places = Arc::new(Semaphore::new(limits.connections_max));
    let (peers, mut told_at) = (Peers::default(), None);
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
        let Some(stay) = peers.admit(peer.ip(), &limits) else {
            if told_at.is_none_or(|at: Instant| at.elapsed() >= TOLD_EVERY) {
                told_at = Some(Instant::now());
                let (from, max) = (peer.ip(), limits.per_peer_max);
                tracing::warn!(%from, max, "a peer has as many connections as it may; more are closed at once");
            }
            continue;
        };
        let (router, limits, stopped) = (router.clone(), Arc::clone(&limits), stopped.clone());
        clients.spawn(async move {
            let _held = (place, stay);
            serve_one(stream, Peer(peer.ip()), router, &limits, stopped).await;
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
    limits: &ConnectionLimits,
    mut stopped: watch::Receiver<bool>,
) {
    // Answers are small, and somebody waits for each.
    let _ = stream.set_nodelay(true);
    let stream = Taken::new(stream, limits);
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

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind, Read, Write};
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
        client_from("127.0.0.1", address, says)
    }

    fn client_from(own: &str, address: SocketAddr, says: &[u8]) -> std::net::TcpStream {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::new(own.parse().unwrap(), 0)).unwrap();
            socket.connect(address).await.unwrap().into_std().unwrap()
        });
        stream.set_nonblocking(false).unwrap();
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

    #[cfg(target_os = "linux")]
    #[test]
    fn one_peer_with_half_open_connections_does_not_keep_the_others_out() {
        // None of them ends by itself while this runs.
        let limits =
            ConnectionLimits { loopback_is_a_crowd: false, head_within: 10 * PATIENCE, ..ConnectionLimits::default() };
        let address = served(limits.with_connections(4, Some(3)));
        let half = || client_from("127.0.0.2", address, b"GET / HTTP/1.1\r\nhost: x\r\nx-a: ");
        let mut kept = vec![half(), half(), half()];
        for _ in 0..8 {
            // Nothing is written: with bytes that nobody reads, the end would be a reset.
            assert_eq!(heard(&mut client_from("127.0.0.2", address, b"")), "", "closed at once");
        }
        let mut another = client_from("127.0.0.3", address, ASKED);
        answered(&mut another).unwrap();
        drop(another);
        kept[0].write_all(b"y\r\n\r\n").unwrap();
        answered(&mut kept[0]).unwrap();
        drop(kept.remove(0));
        until_answered(|| client_from("127.0.0.2", address, ASKED));
    }

    /// That a connection has ended is noticed a little later.
    fn until_answered(again: impl Fn() -> std::net::TcpStream) {
        let began = std::time::Instant::now();
        while answered(&mut again()).is_err() {
            assert!(began.elapsed() < PATIENCE, "the place is not given back");
        }
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
