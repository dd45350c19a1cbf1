//! A receiver in this process, for what `doorstep listen` does not do: show headers, and break every rule.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::Journal;

pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// It lives as long as the tests do.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    pub(crate) requests: Arc<Journal<Request>>,
    n_connections: Arc<AtomicUsize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }
}

impl Receiver {
    /// One that answers everything with 200.
    pub(crate) fn start() -> Self {
        Self::answering(|peer, _| peer.write_all(OK))
    }

    /// `answer` is called for each request, and may do with the connection what it likes; after a fault it is closed.
    pub(crate) fn answering(
        answer: impl Fn(&mut TcpStream, &Request) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::answering_at("127.0.0.1:0", answer)
    }

    pub(crate) fn answering_at(
        address: &str,
        answer: impl Fn(&mut TcpStream, &Request) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let requests = Arc::new(Journal::default());
        let heard = Arc::clone(&requests);
        let receiver = Self::raw_at(address, move |stream| converse(stream, &heard, &answer));
        Self { requests, ..receiver }
    }

    /// One behind TLS that answers everything with 200.
    pub(crate) fn secure(config: Arc<ServerConfig>) -> Self {
        let requests = Arc::new(Journal::default());
        let heard = Arc::clone(&requests);
        let receiver = Self::raw(move |stream| {
            let stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
            converse(stream, &heard, |peer, _| peer.write_all(OK));
        });
        Self { requests, ..receiver }
    }

    /// `serve` is handed each connection before anything was read from it.
    pub(crate) fn raw(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        Self::raw_at("127.0.0.1:0", serve)
    }

    fn raw_at(address: &str, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let n_connections = Arc::new(AtomicUsize::new(0));
        let (counted, serve) = (Arc::clone(&n_connections), Arc::new(serve));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                counted.fetch_add(1, Ordering::SeqCst);
                let serve = Arc::clone(&serve);
                thread::spawn(move || {
                    stream.set_nodelay(true).unwrap();
                    serve(stream);
                });
            }
        });
        Self { address, requests: Arc::new(Journal::default()), n_connections }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn secure_url(&self) -> String {
        format!("https://{}/", self.address)
    }

    pub(crate) fn n_connections(&self) -> usize {
        self.n_connections.load(Ordering::SeqCst)
    }
}

/// Answers one request after the other, until the peer or `answer` has had enough.
fn converse<S: io::Read>(stream: S, heard: &Journal<Request>, answer: impl Fn(&mut S, &Request) -> io::Result<()>) {
    let mut stream = BufReader::new(stream);
    while let Ok(request) = read_request(&mut stream) {
        heard.push(request.clone());
        if answer(stream.get_mut(), &request).is_err() {
            break;
        }
    }
}

fn read_request(stream: &mut impl BufRead) -> io::Result<Request> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut request = Request { path, headers: Vec::new(), body: Vec::new() };
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    request.body = vec![0; length];
    stream.read_exact(&mut request.body)?;
    Ok(request)
}
