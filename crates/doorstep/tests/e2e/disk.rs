//! A full disk: nothing that was acknowledged is lost, and it goes on by itself (C3).

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::support::{Home, Listener, Server, skipped, until};

/// A small file system in memory.
struct Tmpfs(PathBuf);

impl Tmpfs {
    /// None where that is not permitted.
    fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        mount(&["-t", "tmpfs", "-o", "size=4m", "tmpfs"], at).then(|| Self(at.to_owned()))
    }

    fn grow(&self) {
        assert!(mount(&["-o", "remount,size=64m"], &self.0));
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Also while it is still in use.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn mount(options: &[&str], at: &Path) -> bool {
    Command::new("mount").args(options).arg(at).output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_full_disk_is_told_to_producers_and_loses_nothing() {
    let home = Home::new();
    let Some(disk) = Tmpfs::mount(&home.data()) else {
        return skipped("mounting a small file system needs root");
    };
    let (server, listener) = (Server::start(&home), Listener::start(&[]));
    let mut client = server.client();
    let tenant = client.tenant();
    client.destination(&tenant, &listener.url("/"), json!({}));
    let filling = "x".repeat(20_000);
    let mut acknowledged = Vec::new();
    let send = |client: &mut crate::support::Client, acknowledged: &mut Vec<String>| {
        let id = format!("e{}", acknowledged.len());
        // The same again until it is taken: it may have been written although that was not answered.
        let body = json!({"tenant_id": tenant, "id": id, "type": "a.b", "payload": filling});
        let answer = client.post("/v1/events", body);
        if answer.status == 202 {
            acknowledged.push(id);
        }
        answer
    };
    let refused = loop {
        let answer = send(&mut client, &mut acknowledged);
        if answer.status != 202 {
            break answer;
        }
        assert!(acknowledged.len() < 1_000, "20 MB fit on a disk of 4 MiB");
    };
    let problem = refused.expect(503);
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert!(refused.header("retry-after").unwrap().parse::<u32>().unwrap() > 0);
    assert!(problem["code"].is_string(), "{problem}");
    let before = acknowledged.len();
    assert!(before > 20, "{before} events on 4 MiB");
    // Reading and living go on.
    assert_eq!(client.get("/healthz").status, 200);
    assert_eq!(client.get("/v1/events/e0").status, 200);

    disk.grow();
    until("events to be taken again", || (send(&mut client, &mut acknowledged).status == 202).then_some(()));
    for _ in 0..10 {
        assert_eq!(send(&mut client, &mut acknowledged).status, 202);
    }
    for id in &acknowledged {
        listener.wait_for(id, 200);
    }
    until("an empty queue", || {
        let mut n = |status| client.read(&format!("/v1/deliveries?status={status}"))["data"].as_array().unwrap().len();
        (n("queued") + n("retry_scheduled") == 0).then_some(())
    });
    println!(
        "{before} events until the disk was full, {} in all, {} requests",
        acknowledged.len(),
        listener.records.len()
    );
    server.kill();

    let server = Server::start(&home);
    let shown = server.client().get(&format!("/v1/events/{}", acknowledged.last().unwrap()));
    assert_eq!(shown.status, 200, "what was acknowledged is still there");
    server.kill();
    drop(disk);
}
