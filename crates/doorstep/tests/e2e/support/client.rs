//! HTTP/1.1 with a kept connection: just enough to talk to the API, and to say things that no decent client would.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{KEY, PATIENCE, until};

/// The server may end a connection that was silent for long; just then a request could be lost.
const KEPT_FOR: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Client {
    address: SocketAddr,
    key: String,
    kept: Option<(BufReader<TcpStream>, Instant)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, key: KEY.to_owned(), kept: None }
    }

    pub(crate) fn with_key(mut self, key: &str) -> Self {
        key.clone_into(&mut self.key);
        self
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"").unwrap()
    }

    /// What is there.
    pub(crate) fn read(&mut self, path: &str) -> Value {
        self.get(path).expect(200)
    }

    pub(crate) fn post(&mut self, path: &str, body: impl ToString) -> Answer {
        self.ask("POST", path, &[], body.to_string().as_bytes()).unwrap()
    }

    pub(crate) fn patch(&mut self, path: &str, body: impl ToString) -> Answer {
        self.ask("PATCH", path, &[], body.to_string().as_bytes()).unwrap()
    }

    /// The ID of a new tenant.
    pub(crate) fn tenant(&mut self) -> String {
        text(&self.post("/v1/tenants", json!({"name": "Acme"})).expect(201), "id")
    }

    /// A new destination.
    pub(crate) fn destination(&mut self, tenant: &str, url: &str, settings: Value) -> Value {
        let mut body = settings;
        body["tenant_id"] = tenant.into();
        body["url"] = url.into();
        self.post("/v1/destinations", body).expect(201)
    }

    /// The ID of a new event.
    pub(crate) fn event(&mut self, tenant: &str, more: Value) -> String {
        let mut body = json!({"tenant_id": tenant, "type": "invoice.paid", "payload": {"amount": 1}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        text(&self.post("/v1/events", body).expect(202), "id")
    }

    /// The one delivery of an event to a destination.
    pub(crate) fn delivery_of(&mut self, destination: &str, event: &str) -> Value {
        let page = self.read(&format!("/v1/deliveries?destination_id={destination}&limit=200"));
        let found = page["data"].as_array().unwrap().iter().find(|line| line["event_id"] == event);
        let id = text(found.unwrap_or_else(|| panic!("no delivery of {event}: {page}")), "id");
        self.read(&format!("/v1/deliveries/{id}"))
    }

    /// The delivery of an event, once it looks like this.
    pub(crate) fn delivery_when(
        &mut self,
        destination: &str,
        event: &str,
        what: &str,
        fits: impl Fn(&Value) -> bool,
    ) -> Value {
        until(&format!("the delivery of {event} to be {what}"), || {
            Some(self.delivery_of(destination, event)).filter(|delivery| fits(delivery))
        })
    }

    /// The delivery of an event, once it has this status.
    pub(crate) fn delivery_in(&mut self, destination: &str, event: &str, status: &str) -> Value {
        self.delivery_when(destination, event, status, |delivery| delivery["status"] == status)
    }

    /// The delivery of an event, once it waits for this.
    pub(crate) fn delivery_waiting(&mut self, destination: &str, event: &str, why: &str) -> Value {
        self.delivery_when(destination, event, &format!("waiting for {why}"), |delivery| delivery["waiting_for"] == why)
    }

    /// A destination, once it has this status.
    pub(crate) fn destination_in(&mut self, destination: &str, status: &str) -> Value {
        until(&format!("{destination} to be {status}"), || {
            let shown = self.read(&format!("/v1/destinations/{destination}"));
            Some(shown).filter(|shown| shown["status"] == status)
        })
    }

    /// What people do with a destination: `pause`, `resume`, `probe`.
    pub(crate) fn tell(&mut self, destination: &str, verb: &str) -> Value {
        self.post(&format!("/v1/destinations/{destination}/{verb}"), "").expect(200)
    }

    /// A request with a body (none if it is empty) and the key, unless the headers have one.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.address);
        let given = |name: &str| headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        if !given("authorization") {
            head += &format!("authorization: Bearer {}\r\n", self.key);
        }
        if !body.is_empty() && !given("content-type") {
            head += "content-type: application/json\r\n";
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("content-length: {}\r\n\r\n", body.len());
        self.exchange(&[head.as_bytes(), body].concat())
    }

    /// These bytes, and the answer to them.
    pub(crate) fn exchange(&mut self, request: &[u8]) -> io::Result<Answer> {
        let kept = self.kept.take().filter(|(_, used)| used.elapsed() < KEPT_FOR);
        let mut stream = match kept {
            Some((stream, _)) => stream,
            None => {
                let stream = TcpStream::connect(self.address)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_nodelay(true)?;
                BufReader::new(stream)
            }
        };
        // Who refuses a long body may answer and close before it has been sent.
        let sent = stream.get_mut().write_all(request);
        let answer = read_answer(&mut stream).map_err(|fault| sent.err().unwrap_or(fault))?;
        if answer.header("connection") != Some("close") {
            self.kept = Some((stream, Instant::now()));
        }
        Ok(answer)
    }
}

impl Answer {
    /// The body, if the status is this one.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        if self.body.is_empty() { Value::Null } else { serde_json::from_slice(&self.body).unwrap() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A text field of an object.
#[track_caller]
pub(crate) fn text(of: &Value, field: &str) -> String {
    of[field].as_str().unwrap_or_else(|| panic!("no text at {field}: {of}")).to_owned()
}

fn read_answer(stream: &mut impl BufRead) -> io::Result<Answer> {
    let line = read_line(stream)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(ErrorKind::InvalidData)?;
    let mut answer = Answer { status, headers: Vec::new(), body: Vec::new() };
    loop {
        let line = read_line(stream)?;
        let Some((name, value)) = line.split_once(':') else { break };
        answer.headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let length: usize = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
    answer.body = vec![0; length];
    stream.read_exact(&mut answer.body)?;
    Ok(answer)
}

fn read_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}
