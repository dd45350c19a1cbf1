//! HTTP/2 by its frames, for receivers that a library would not let misbehave.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const MAX_CONCURRENT_STREAMS: u8 = 3;

/// The receiver's side of one connection.
pub(crate) struct Frames<S> {
    stream: S,
    /// What has been read and is no whole frame yet.
    rest: Vec<u8>,
    /// Streams that have begun and have not been answered.
    pub(crate) n_open: usize,
    /// Answers to our pings.
    n_pongs: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Frames<S> {
    /// Shakes hands. `None` if the other side has gone.
    pub(crate) async fn start(mut stream: S, streams_max: Option<u8>) -> Option<Self> {
        stream.read_exact(&mut [0; 24]).await.ok()?;
        let mut frames = Self { stream, rest: Vec::new(), n_open: 0, n_pongs: 0 };
        let settings = streams_max.map(|max| vec![0, MAX_CONCURRENT_STREAMS, 0, 0, 0, max]);
        frames.write(SETTINGS, 0, 0, &settings.unwrap_or_default()).await.then_some(frames)
    }

    /// The stream of the next request that has come as a whole; `None` when the other side has closed.
    pub(crate) async fn next_request(&mut self) -> Option<u32> {
        loop {
            if let Some(id) = self.next_frame().await? {
                return Some(id);
            }
        }
    }

    /// Reads one frame, which may be the end of a request. Nothing is lost if it is given up.
    pub(crate) async fn next_frame(&mut self) -> Option<Option<u32>> {
        let length = loop {
            if let [a, b, c, ..] = self.rest[..] {
                let length = 9 + usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap();
                if self.rest.len() >= length {
                    break length;
                }
            }
            if self.stream.read_buf(&mut self.rest).await.ok()? == 0 {
                return None;
            }
        };
        let frame: Vec<u8> = self.rest.drain(..length).collect();
        let (kind, flags, payload) = (frame[3], frame[4], &frame[9..]);
        let id = u32::from_be_bytes([frame[5], frame[6], frame[7], frame[8]]);
        match kind {
            SETTINGS if flags & ACK == 0 => _ = self.write(SETTINGS, ACK, 0, &[]).await,
            PING if flags & ACK == 0 => _ = self.write(PING, ACK, 0, payload).await,
            PING => self.n_pongs += 1,
            _ => {}
        }
        self.n_open += usize::from(kind == HEADERS);
        Some((matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0).then_some(id))
    }

    /// Answers 200 with nothing else.
    pub(crate) async fn answer(&mut self, id: u32) {
        self.n_open -= 1;
        // `:status: 200` is entry 8 of the table that everybody has.
        self.write(HEADERS, END_STREAM | END_HEADERS, id, &[0x88]).await;
    }

    /// Waits until the other side has read all that was written: a reset would take it away. Says whether a request has
    /// come meanwhile.
    pub(crate) async fn all_read(&mut self) -> Option<bool> {
        let (before, mut asked) = (self.n_pongs, false);
        self.write(PING, 0, 0, &[0; 8]).await;
        while self.n_pongs == before {
            asked |= self.next_frame().await?.is_some();
        }
        Some(asked)
    }

    pub(crate) async fn refuse(&mut self, id: u32) {
        self.n_open -= 1;
        self.write(RST_STREAM, 0, id, &7u32.to_be_bytes()).await;
    }

    /// Goes away: streams above `last` are not processed. What is not above it is answered, until the other side closes.
    /// Requests come in the order of their ends, not of their streams, so there may be some.
    pub(crate) async fn go_away(&mut self, last: u32, n_answered: &AtomicUsize) {
        self.write(GOAWAY, 0, 0, &[last.to_be_bytes(), 0u32.to_be_bytes()].concat()).await;
        while let Some(id) = self.next_request().await {
            if id <= last {
                n_answered.fetch_add(1, Ordering::SeqCst);
                self.answer(id).await;
            }
        }
    }

    /// Says that it processes the streams up to `last`, and closes without answering them.
    pub(crate) async fn abandon(&mut self, last: u32) {
        self.write(GOAWAY, 0, 0, &[last.to_be_bytes(), 0u32.to_be_bytes()].concat()).await;
        let _ = self.stream.shutdown().await;
        while self.next_frame().await.is_some() {}
    }

    async fn write(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) -> bool {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &id.to_be_bytes()].concat();
        self.stream.write_all(&[&head, payload].concat()).await.is_ok()
    }
}
