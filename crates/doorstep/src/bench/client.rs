//! One kept connection, and one request at a time over it.

use std::net::SocketAddr;

use anyhow::Context;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

pub(super) struct Client {
    address: SocketAddr,
    host: HeaderValue,
    key: Option<HeaderValue>,
    sender: SendRequest<Full<Bytes>>,
}

impl Client {
    pub(super) async fn connect(address: SocketAddr, key: Option<&str>) -> anyhow::Result<Self> {
        let key = key.map(|key| HeaderValue::try_from(format!("Bearer {key}"))).transpose()?;
        let (host, sender) = (HeaderValue::try_from(address.to_string())?, open(address).await?);
        Ok(Self { address, host, key, sender })
    }

    /// The status and the whole answer.
    pub(super) async fn call(&mut self, method: Method, path: &str, body: Bytes) -> anyhow::Result<(u16, Bytes)> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse()?;
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(key) = &self.key {
            headers.insert(AUTHORIZATION, key.clone());
        }
        if self.sender.ready().await.is_err() {
            // It was not needed for so long that the other end has closed it.
            self.sender = open(self.address).await?;
        }
        let response = self.sender.send_request(request).await?;
        let status = response.status().as_u16();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }

    pub(super) async fn get<T: DeserializeOwned>(&mut self, path: &str) -> anyhow::Result<T> {
        read(path, self.call(Method::GET, path, Bytes::new()).await?)
    }

    pub(super) async fn post<T: DeserializeOwned>(&mut self, path: &str, body: &impl Serialize) -> anyhow::Result<T> {
        self.ask(Method::POST, path, body).await
    }

    pub(super) async fn ask<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        let body = serde_json::to_vec(body)?.into();
        read(path, self.call(method, path, body).await?)
    }
}

async fn open(address: SocketAddr) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Whoever waits for an answer hears how it ended.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

fn read<T: DeserializeOwned>(path: &str, (status, body): (u16, Bytes)) -> anyhow::Result<T> {
    let told = || String::from_utf8_lossy(&body).into_owned();
    anyhow::ensure!((200..300).contains(&status), "{path} was answered with {status}: {}", told());
    serde_json::from_slice(&body).with_context(|| format!("{path} was answered with {}", told()))
}
