//! Bytes to the server, and what it answers to them.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::support::{KEY, PATIENCE, Server};

pub(crate) struct Raw(BufReader<TcpStream>);

/// One answer, as it came.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Raw {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    /// A connection over which this was said.
    pub(crate) fn saying(server: &Server, bytes: impl AsRef<[u8]>) -> Self {
        let mut raw = Self::to(server.address);
        raw.say(bytes);
        raw
    }

    #[track_caller]
    pub(crate) fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    pub(crate) fn try_to_say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// The next answer; `None` if the connection was closed instead.
    pub(crate) fn hear(&mut self) -> io::Result<Option<Said>> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            match self.0.read_line(&mut head) {
                Ok(0) => return Ok(None),
                // That is how a connection is closed on which more was said than heard.
                Err(fault) if fault.kind() == ErrorKind::ConnectionReset && head.is_empty() => return Ok(None),
                read => read?,
            };
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        self.0.read_exact(&mut body)?;
        Ok(Some(Said { status, body: String::from_utf8(body).unwrap() }))
    }

    /// All answers until the server closes the connection, which it has to.
    #[track_caller]
    pub(crate) fn hear_all(&mut self) -> Vec<Said> {
        let mut all = Vec::new();
        while let Some(said) = self.hear().unwrap() {
            all.push(said);
        }
        all
    }
}

/// The head of a request with the administrator's key, up to where further headers go.
pub(crate) fn head(line: &str) -> String {
    format!("{line} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/json\r\n")
}

pub(crate) fn statuses(all: &[Said]) -> Vec<u16> {
    all.iter().map(|said| said.status).collect()
}
