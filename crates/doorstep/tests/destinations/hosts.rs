//! One host behind many destinations (G10).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::support::{PATIENCE, Server, text};

/// Takes its time with each request, and notes how many it had at once.
async fn slow_receiver() -> (String, Arc<AtomicUsize>, mpsc::UnboundedReceiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (answered, answers) = mpsc::unbounded_channel();
    let noted = Arc::clone(&most);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (open, most, answered) = (Arc::clone(&open), Arc::clone(&noted), answered.clone());
            tokio::spawn(async move {
                let mut request = vec![0; 4_096];
                while let Ok(1..) = stream.read(&mut request).await {
                    most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    open.fetch_sub(1, Ordering::SeqCst);
                    if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.is_err() {
                        return;
                    }
                    let _ = answered.send(());
                }
            });
        }
    });
    (base, most, answers)
}

/// The most requests that one host had at once, with eight events for two destinations of each tenant.
async fn most_at_once(flags: &[&str], n_tenants: usize) -> usize {
    let server = Server::start(flags).await;
    let (base, most, mut answers) = slow_receiver().await;
    let mut events = Vec::new();
    for tenant in 0..n_tenants {
        let tenant_id = text(&server.post("/v1/tenants", json!({"name": "T"})).await, "id");
        for n in 0..2 {
            server.destination(&format!("{base}/{tenant}/{n}"), json!({"tenant_id": tenant_id})).await;
        }
        events.extend(vec![json!({"tenant_id": tenant_id, "type": "a.b", "payload": 1}); 8]);
    }
    server.post("/v1/events/batch", json!({"events": events})).await;
    for _ in 0..16 * n_tenants {
        tokio::time::timeout(PATIENCE, answers.recv()).await.expect("nothing came").unwrap();
    }
    most.load(Ordering::SeqCst)
}

#[tokio::test]
async fn two_destinations_at_one_host_keep_to_its_cap_together() {
    assert_eq!(most_at_once(&["--per-host-max", "4"], 4).await, 4);
    assert_eq!(most_at_once(&["--per-host-max", "4"], 1).await, 3, "one is kept for other tenants");
    let without = most_at_once(&[], 1).await;
    assert!(without > 4, "{without}");
}
