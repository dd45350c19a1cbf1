//! A name server in this process: every name has the addresses that the test says.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

const A: u8 = 1;
const AAAA: u8 = 28;

/// It lives as long as the tests do.
#[derive(Debug)]
pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    says: Arc<Mutex<Vec<IpAddr>>>,
    n_questions: Arc<AtomicUsize>,
}

impl NameServer {
    /// On a port of its own.
    pub(crate) fn start() -> Self {
        Self::start_at("127.0.0.1:0").unwrap()
    }

    pub(crate) fn start_at(address: impl ToSocketAddrs) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        let server = Self { address: socket.local_addr()?, says: Arc::default(), n_questions: Arc::default() };
        let (says, n_questions) = (Arc::clone(&server.says), Arc::clone(&server.n_questions));
        thread::spawn(move || {
            let mut packet = [0; 1_500];
            while let Ok((length, from)) = socket.recv_from(&mut packet) {
                n_questions.fetch_add(1, Ordering::SeqCst);
                socket.send_to(&answer(&packet[..length], &says.lock().unwrap()), from).unwrap();
            }
        });
        Ok(server)
    }

    /// From now on every name has these addresses, which are not to be remembered.
    pub(crate) fn say(&self, addresses: &[IpAddr]) {
        *self.says.lock().unwrap() = addresses.to_vec();
    }

    pub(crate) fn n_questions(&self) -> usize {
        self.n_questions.load(Ordering::SeqCst)
    }
}

/// The addresses of the family that was asked for.
fn answer(packet: &[u8], addresses: &[IpAddr]) -> Vec<u8> {
    let mut end = 12;
    while packet[end] != 0 {
        end += 1 + usize::from(packet[end]);
    }
    let (question, kind) = (&packet[12..end + 5], packet[end + 2]);
    let octets = |address: &IpAddr| match address {
        IpAddr::V4(address) if kind == A => Some(address.octets().to_vec()),
        IpAddr::V6(address) if kind == AAAA => Some(address.octets().to_vec()),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    };
    let found: Vec<Vec<u8>> = addresses.iter().filter_map(octets).collect();
    let n = u8::try_from(found.len()).unwrap();
    let mut reply = [&packet[..2], &[0x81, 0x80, 0, 1, 0, n, 0, 0, 0, 0], question].concat();
    for address in found {
        let length = u8::try_from(address.len()).unwrap();
        reply.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 0, 0, length]);
        reply.extend(address);
    }
    reply
}
