//! Clients: however many, slow or gone, they cannot hold the server.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::auth::Peer;

#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Connections at the same time; further ones wait to be accepted.
    pub connections_max: usize,
    /// From the first byte of a request, or from the end of the one before, to the end of its headers.
    pub head_within: Duration,
    pub headers_max: usize,
    /// Bytes that are read ahead of what is asked for: the headers have to fit.
    pub buffer_max: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { connections_max: 4_096, head_within: Duration::from_secs(30), headers_max: 64, buffer_max: 64 * 1024 }
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
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(peer);
        router.call(request)
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
