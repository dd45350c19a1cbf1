//! No secret leaves the server by any way but the request to its receiver: not by a log line at the finest level, not by an
//! answer, not by an error, not by a file.
#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

mod given;
mod http2;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};

/// Slower than any machine should be.
const PATIENCE: Duration = Duration::from_secs(60);

/// Links lead there. As what they agree to is protected, they have to be.
const PUBLIC_URL: &str = "https://doorstep.example";
const ADMIN_KEY: &str = "admin-hush-5c1e9a7d3b-0123456789";
const MASTER_KEY: [u8; 32] = *b"master-hush-0123456789abcdefghij";
const NEXT_MASTER_KEY: [u8; 32] = *b"master-next-hush-0123456789abcde";
/// Signing secrets: at the creation, and of two rotations.
const SIGNING: [[u8; 32]; 3] =
    [*b"signing-hush-one-0123456789abcde", *b"signing-hush-two-0123456789abcde", *b"signing-hush-3rd-0123456789abcde"];
/// The seeds of Ed25519 keys: at the creation, and of a rotation.
const ED25519: [[u8; 32]; 2] = [*b"ed25519-hush-one-0123456789abcde", *b"ed25519-hush-two-0123456789abcde"];
/// Of an event. They are stored as they are, but not logged; and of what is called a token, only the name is shown.
const EVENT_HEADERS: [&str; 2] = ["hush-event-token-71c4", "hush-event-note-e0d8"];
const HEADERS: [&str; 4] = ["hush-header-4f1d", "hush-header-93ab", "hush-header-c07e", "hush-header-2b66"];
/// What is shown to the receiver that speaks HTTP/2; its key is a secret.
static CLIENT: LazyLock<http2::Identity> = LazyLock::new(http2::Identity::new);
/// What is refused is not repeated either.
const REFUSED: [&str; 4] = ["hush-refused-1aa2", "hush-refused-8c3f", "hush-refused-77d0", "hush-refused-0be5"];
/// Stored as it is, but not logged.
const PAYLOAD: &str = "payload-hush-e19d";

fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn signing(n: usize) -> String {
    format!("whsec_{}", base64(&SIGNING[n]))
}

/// Everything that must not be found, with a name for it; what was given out on the way is not among it.
fn needles() -> Vec<(String, Vec<u8>)> {
    let keys = [MASTER_KEY, NEXT_MASTER_KEY].into_iter().chain(SIGNING).chain(ED25519).map(|key| key.to_vec());
    let keys = keys.chain([CLIENT.key_der.clone()]).flat_map(|key| {
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        // The end of base64 may be cut or padded in more than one way.
        let encoded = base64(&key);
        let encoded = encoded.as_bytes()[..encoded.len() - 4].to_vec();
        [key.clone(), encoded, hex.into_bytes(), format!("{key:?}").into_bytes()]
    });
    let texts = HEADERS.iter().chain(&REFUSED).chain([&ADMIN_KEY]).map(|text| text.as_bytes().to_vec());
    keys.chain(texts).map(|needle| (String::from_utf8_lossy(&needle).into_owned(), needle)).collect()
}

fn assert_free_of_secrets(what: &str, bytes: &[u8], given: &[String]) {
    let given = given.iter().map(|secret| (secret.clone(), secret.clone().into_bytes()));
    let found = needles().into_iter().chain(given).filter_map(|(name, needle)| {
        let at = bytes.windows(needle.len()).position(|window| window == needle)?;
        let around = String::from_utf8_lossy(&bytes[at.saturating_sub(200)..(at + 200).min(bytes.len())]);
        Some(format!("{name}: …{around}…"))
    });
    let found: Vec<String> = found.collect();
    assert!(found.is_empty(), "{} secrets are in {what}:\n{}", found.len(), found.join("\n"));
}

/// A receiver on this machine that answers `/ok` with 200 and all else with 500, and remembers what it was sent.
struct Receiver {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&seen);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut request = Vec::new();
                let mut byte = [0];
                while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                    request.push(byte[0]);
                }
                let mut request = String::from_utf8_lossy(&request).into_owned();
                let length = request.lines().find_map(|line| line.strip_prefix("content-length: "));
                let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
                if stream.read_exact(&mut body).is_ok() {
                    request.push_str(&String::from_utf8_lossy(&body));
                }
                let status = if request.starts_with("POST /ok") { "200 OK" } else { "500 Internal Server Error" };
                heard.lock().unwrap().push(request);
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                // It may have gone.
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { address, seen }
    }

    fn has_seen(&self, part: &str) -> bool {
        self.seen.lock().unwrap().iter().any(|request| request.contains(part))
    }
}

/// Where nobody listens.
fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The real server, with its outputs in files.
struct Server {
    process: Child,
    base: String,
    /// Every answer that must not contain a secret.
    answers: Mutex<Vec<u8>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn doorstep(data: &Path, master_key: &[u8]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doorstep"));
    command.env_clear().current_dir(data.parent().unwrap()).stdin(Stdio::null());
    command.env("DOORSTEP_DATA_DIR", data).env("DOORSTEP_MASTER_KEY", base64(master_key));
    command.env("DOORSTEP_LISTEN", "127.0.0.1:0").env("DOORSTEP_ADMIN_KEY", ADMIN_KEY);
    command.env("DOORSTEP_PUBLIC_URL", PUBLIC_URL);
    command.env("DOORSTEP_ALLOW_TARGETS", "127.0.0.0/8").env("DOORSTEP_LOG_LEVEL", "trace");
    command
}

impl Server {
    /// `outputs`: a directory for what it says.
    fn start(data: &Path, outputs: &Path, master_key: &[u8]) -> Self {
        let [out, err] = ["out", "err"].map(|name| {
            let path = outputs.join(format!("{name}-{}", fs::read_dir(outputs).unwrap().count()));
            (File::create(&path).unwrap(), path)
        });
        let process = doorstep(data, master_key).arg("serve").stdout(out.0).stderr(err.0).spawn().unwrap();
        let mut server = Self { process, base: String::new(), answers: Mutex::default() };
        let began = Instant::now();
        while server.base.is_empty() {
            let said = fs::read_to_string(&out.1).unwrap();
            let line = said.lines().find_map(|line| line.split_once("listening on "));
            server.base = line.map(|(_, base)| base.to_owned()).unwrap_or_default();
            let log = || fs::read_to_string(&err.1).unwrap();
            assert!(server.process.try_wait().unwrap().is_none() && began.elapsed() < PATIENCE, "{}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// The answer's status and body. What shows a secret on purpose is left out of what is searched.
    async fn ask(&self, method: Method, path: &str, key: &str, body: impl Into<String>, shows: bool) -> (u16, Value) {
        let request = reqwest::Client::new().request(method, format!("{}{path}", self.base)).bearer_auth(key);
        let answer = request.header("content-type", "application/json").body(body.into()).send().await.unwrap();
        let (status, headers) = (answer.status().as_u16(), format!("{:?}", answer.headers()));
        let text = answer.text().await.unwrap();
        if !shows {
            self.answers.lock().unwrap().extend(format!("{path} {status} {headers} {text}\n").bytes());
        }
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// An answer to something that was asked in another way.
    async fn heard(&self, answer: reqwest::Response, expected: u16) {
        let (status, headers) = (answer.status().as_u16(), format!("{:?}", answer.headers()));
        let text = answer.text().await.unwrap();
        assert_eq!(status, expected, "{text}");
        self.answers.lock().unwrap().extend(format!("{status} {headers} {text}\n").bytes());
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask(Method::GET, path, ADMIN_KEY, "", false).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Something that shows a secret once, or nothing at all.
    async fn post(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.ask(Method::POST, path, ADMIN_KEY, body.to_string(), true).await;
        assert!((200..300).contains(&status), "{path}: {answer}");
        answer
    }

    /// Something that is refused.
    async fn refused(&self, method: Method, path: &str, body: &str) {
        let (status, answer) = self.ask(method, path, ADMIN_KEY, body, false).await;
        assert!((400..500).contains(&status), "{path} {body}: {status} {answer}");
    }

    /// Asks to end, and waits until it has.
    fn stop(mut self) -> Vec<u8> {
        let asked = Command::new("kill").arg(self.process.id().to_string()).status().unwrap();
        assert!(asked.success() && self.process.wait().unwrap().success());
        std::mem::take(&mut *self.answers.lock().unwrap())
    }
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < PATIENCE, "{what} did not come");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_else(|| panic!("no {field} in {value}")).to_owned()
}

#[tokio::test]
async fn no_secret_is_in_any_log_answer_or_file() {
    let place = tempfile::tempdir().unwrap();
    let (data, outputs) = (place.path().join("data"), place.path().join("outputs"));
    fs::create_dir(&outputs).unwrap();
    let receiver = Receiver::start();
    let server = Server::start(&data, &outputs, &MASTER_KEY);
    let mut answers = Vec::new();

    // Made, delivered to, failing, changed, rotated, tried out.
    let tenant_id = text(&server.post("/v1/tenants", &json!({"name": "Acme"})).await, "id");
    let destination = |path: &str, secret: &str, header: &str| {
        let url = format!("http://{}/{path}", receiver.address);
        let headers = json!({"authorization": format!("Bearer {header}"), "x-shop": header});
        json!({"tenant_id": tenant_id, "url": url, "secret": secret, "headers": headers})
    };
    let ok = server.post("/v1/destinations", &destination("ok", &signing(0), HEADERS[0])).await;
    let failing = server.post("/v1/destinations", &destination("fail", &signing(0), HEADERS[1])).await;
    assert_eq!(text(&ok, "secret"), signing(0));
    let mut away = destination("away", &signing(0), HEADERS[1]);
    away["url"] = json!(format!("http://{}/away", nobody()));
    server.post("/v1/destinations", &away).await;
    let (ok, failing) = (text(&ok, "id"), text(&failing, "id"));
    let secure = http2::Receiver::start().await;
    let mut http2 = destination("", &signing(0), HEADERS[3]);
    http2["url"] = json!(secure.url);
    let (certificate, key) = (&CLIENT.certificate_pem, CLIENT.key_pem());
    let ca = &secure.identity.certificate_pem;
    http2["tls"] = json!({"client_certificate_pem": certificate, "client_key_pem": key, "ca_pem": ca});
    server.post("/v1/destinations", &http2).await;
    let event = json!({"tenant_id": tenant_id, "type": "invoice.paid", "payload": {"of": PAYLOAD}});
    server.post("/v1/events", &event).await;
    until("a delivery", async || {
        let done = server.get("/v1/deliveries?status=delivered").await["data"].as_array().unwrap().len();
        let all = server.get("/v1/deliveries").await;
        let all_tried = all["data"].as_array().unwrap().iter().all(|delivery| delivery["attempt_count"] != 0);
        let tried = server.get(&format!("/v1/deliveries?destination_id={failing}&code=500")).await;
        done == 2 && all_tried && tried["data"].as_array().unwrap().len() == 1
    })
    .await;
    assert!(receiver.has_seen(HEADERS[0]) && receiver.has_seen(HEADERS[1]) && receiver.has_seen("webhook-signature"));
    assert!(secure.has_seen(&["HTTP/2.0", HEADERS[3], "webhook-signature"]));
    server.post(&format!("/v1/destinations/{ok}/secrets/rotate"), &json!({"secret": signing(1)})).await;
    let change = json!({"headers": {"x-shop": HEADERS[2]}}).to_string();
    let (status, _) = server.ask(Method::PATCH, &format!("/v1/destinations/{ok}"), ADMIN_KEY, change, false).await;
    assert_eq!(status, 200);
    server.post(&format!("/v1/destinations/{ok}/test"), &json!({})).await;
    assert!(receiver.has_seen(HEADERS[2]));

    // Mistakes of people who have a secret in their hands.
    let [one, two, three, four] = REFUSED;
    let url = format!("http://{}/ok", receiver.address);
    for body in [
        json!({"tenant_id": tenant_id, "url": url, "secret": one}).to_string(),
        json!({"tenant_id": tenant_id, "url": url, "secret": format!("whsec_{one}!")}).to_string(),
        json!({"tenant_id": tenant_id, "url": url, "secret": {"text": two}}).to_string(),
        json!({"tenant_id": tenant_id, "url": url, "secret": [two]}).to_string(),
        json!({"tenant_id": tenant_id, "url": url, "headers": {"x-a": format!("{three}\n")}}).to_string(),
        json!({"tenant_id": tenant_id, "url": url, "headers": {"x-a": [three]}}).to_string(),
        json!({"tenant_id": tenant_id, "url": url, "headers": three}).to_string(),
        json!({"tenant_id": tenant_id, "url": url, "headers": [three]}).to_string(),
        format!(r#"{{"secret": "{four}"#),
        format!(r#"{{"secret": "{four}" "#),
    ] {
        server.refused(Method::POST, "/v1/destinations", &body).await;
        server.refused(Method::PATCH, &format!("/v1/destinations/{ok}"), &body).await;
        server.refused(Method::POST, &format!("/v1/destinations/{ok}/secrets/rotate"), &body).await;
    }
    for key in [one, "", &signing(0)] {
        let (status, _) = server.ask(Method::GET, "/v1/tenants", key, "", false).await;
        assert_eq!(status, 401);
    }

    // All that can be read.
    let deliveries = server.get("/v1/deliveries").await;
    for delivery in deliveries["data"].as_array().unwrap() {
        let one = server.get(&format!("/v1/deliveries/{}", text(delivery, "id"))).await;
        let sent = one["attempts"][0].to_string();
        assert!(sent.contains("x-shop") && sent.contains("***"), "headers are shown without their values: {sent}");
    }
    let given = given::used(&server, &receiver, &secure, &tenant_id).await;
    let lists = ["/v1/tenants", "/v1/destinations", "/v1/deliveries", "/v1/events", "/v1/keys", "/v1/audit?limit=200"];
    for path in lists.into_iter().chain(["/healthz", &format!("/v1/destinations/{ok}")]) {
        server.get(path).await;
    }
    for delivery in server.get("/v1/deliveries").await["data"].as_array().unwrap() {
        server.get(&format!("/v1/deliveries/{}", text(delivery, "id"))).await;
    }
    answers.extend(given::commands(&server, || doorstep(&data, &MASTER_KEY)));
    answers.extend(server.stop());

    // Another master key: refused at first, then changed to.
    let wrong = doorstep(&data, &NEXT_MASTER_KEY).arg("serve").output().unwrap();
    assert_eq!(wrong.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("are sealed with the master key"), "{wrong:?}");
    let key_file = place.path().join("next-key");
    fs::write(&key_file, format!("{}\n", base64(&NEXT_MASTER_KEY))).unwrap();
    let rotated = rotate(&data, &MASTER_KEY, &["--new-key-file", key_file.to_str().unwrap()]);
    assert!(rotated.status.success(), "{rotated:?}");
    for output in [wrong, rotated] {
        answers.extend([output.stdout, output.stderr].concat());
    }
    let server = Server::start(&data, &outputs, &NEXT_MASTER_KEY);
    let beside = rotate(&data, &NEXT_MASTER_KEY, &["--new-key-file", key_file.to_str().unwrap()]);
    assert_eq!(beside.status.code(), Some(6), "not while a server runs");
    assert!(String::from_utf8_lossy(&beside.stderr).contains("in use by another Doorstep"), "{beside:?}");
    let n_before = receiver.seen.lock().unwrap().len();
    server.post(&format!("/v1/destinations/{ok}/secrets/rotate"), &json!({"secret": signing(2)})).await;
    server.post("/v1/events", &event).await;
    until("a delivery after the change", async || {
        receiver.seen.lock().unwrap()[n_before..].iter().any(|request| request.contains(HEADERS[2]))
    })
    .await;
    // What only the write-ahead log holds is looked at too.
    for file in fs::read_dir(&data).unwrap() {
        let path = file.unwrap().path();
        assert_free_of_secrets(&path.display().to_string(), &fs::read(&path).unwrap(), &given);
    }
    answers.extend(server.stop());

    assert_free_of_secrets("the answers", &answers, &given);
    assert!(!String::from_utf8_lossy(&answers).contains(EVENT_HEADERS[0]), "what is called a token is masked");
    for file in fs::read_dir(&data).unwrap().chain(fs::read_dir(&outputs).unwrap()) {
        let path = file.unwrap().path();
        assert_free_of_secrets(&path.display().to_string(), &fs::read(&path).unwrap(), &given);
    }
    let logged: Vec<u8> =
        fs::read_dir(&outputs).unwrap().flat_map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
    let logged = String::from_utf8_lossy(&logged);
    assert!(logged.contains("DEBUG") && logged.contains("no answer"), "the fine lines are there: {logged}");
    assert!(logged.contains("h2::codec"), "those of HTTP/2 too");
    for own in [PAYLOAD].iter().chain(&EVENT_HEADERS) {
        assert!(!logged.contains(own), "{own}: nothing of an event is logged but its name");
    }
}

fn rotate(data: &Path, master_key: &[u8], words: &[&str]) -> Output {
    doorstep(data, master_key).args(["keys", "rotate-master"]).args(words).output().unwrap()
}
