//! The binary as a process of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::{
    collections::HashSet,
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use common::{Answer, Ask, Client, End, KeyFile, PATIENCE, Raw, chat_body, completions_body, eventually};
use serde_json::{Value, json};
use trtllm_sim::{Config, Engine, Role, expected_answer};

const BINARY: &str = env!("CARGO_BIN_EXE_disagg-sidecar");

/// A running sidecar; killed when it is dropped.
struct Process {
    child: Child,
    /// What it has logged so far.
    log: Arc<Mutex<Vec<String>>>,
    reader: Option<std::thread::JoinHandle<()>>,
    data: SocketAddr,
    admin: SocketAddr,
}

impl Process {
    /// Starts it and waits until it says where it listens.
    async fn start(generation: &Engine, flags: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(BINARY)
            .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--log-format", "json"])
            .args(["--generation-url", &generation.url()])
            .args(flags)
            .env_clear()
            .envs(environment.iter().copied())
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let log = Arc::<Mutex<Vec<String>>>::default();
        let (lines, writes) = (BufReader::new(child.stderr.take().unwrap()).lines(), log.clone());
        let reader = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                writes.lock().unwrap().push(line);
            }
        });
        let serving = || log.lock().unwrap().iter().find(|line| line.contains("\"serving\"")).cloned();
        eventually("it says that it serves", || serving().is_some()).await;
        let line: Value = serde_json::from_str(&serving().unwrap()).unwrap();
        let address = |key: &str| line[key].as_str().unwrap().parse().unwrap();
        let (data, admin) = (address("listen"), address("admin"));
        Self { child, log, reader: Some(reader), data, admin }
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    fn logged(&self, text: &str) -> bool {
        self.log.lock().unwrap().iter().any(|line| line.contains(text))
    }

    /// Waits for its end; returns how it ended and all that it logged.
    async fn end(&mut self) -> (ExitStatus, String) {
        let mut status = None;
        eventually("the process ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        self.reader.take().unwrap().join().unwrap();
        (status.unwrap(), self.log.lock().unwrap().join("\n"))
    }

    async fn admin(&self, path: &str) -> common::Reply {
        Client::http1(self.admin).await.send(&Ask::get(path)).await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn engines() -> (Engine, Engine) {
    let start =
        async |role| Engine::start(Config::new(role).token_gap(Duration::from_millis(10))).await.unwrap();
    (start(Role::Context).await, start(Role::Generation).await)
}

#[tokio::test]
async fn it_serves_and_drains() {
    for signal in ["TERM", "INT"] {
        let (context, generation) = engines().await;
        let mut process = Process::start(&generation, &[], &[]).await;
        for body in [chat_body("a process", true), completions_body("a process", false)] {
            let ask = Ask::of(&body).via(&context.hostport());
            Answer::of(&Client::http1(process.data).await.send(&ask).await).is(&expected_answer(&body));
            Answer::of(&Client::http2(process.data).await.send(&ask).await).is(&expected_answer(&body));
        }
        assert_eq!(process.admin("/livez").await.status, 200);
        assert_eq!(process.admin("/readyz").await.status, 200);
        assert_eq!(process.admin("/nothing").await.status, 404);
        let metrics = process.admin("/metrics").await;
        assert!(metrics.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
        let page = common::Metrics::parse(&metrics.text());
        assert_eq!(page.get("disagg_requests_total{outcome=\"completed\"}"), 4.0);
        assert_eq!(page.get("disagg_generation_streams_total{end=\"done\"}"), 2.0);
        assert_eq!(page.in_flight(), 0.0);
        assert_eq!(page.get("disagg_context_leg_seconds_count{result=\"ok\"}"), 4.0);

        let body = chat_body("finished first", true);
        let mut streaming = Raw::asking(process.data, &Ask::of(&body).via(&context.hostport())).await;
        streaming.until(&trtllm_sim::token_text(expected_answer(&body).completion_token_ids[0])).await;
        process.signal(signal);
        Answer::of(&streaming.reply().await).is(&expected_answer(&body));
        let (status, log) = process.end().await;
        assert_eq!(status.code(), Some(0), "{log}");
        assert_eq!((context.state().kv_held, generation.state().generation_aborts), (0, 0));
    }
}

#[tokio::test]
async fn a_second_signal_cuts() {
    let (context, generation) = engines().await;
    let mut process = Process::start(&generation, &["--drain-timeout", "600s"], &[]).await;
    let body = chat_body("cut", true);
    let hang = json!({"on": "generation", "hang": {"after_tokens": 2}});
    let mut raw = Raw::asking(process.data, &Ask::of(&body).via(&context.hostport()).fault(&hang)).await;
    let word = trtllm_sim::token_text(expected_answer(&body).completion_token_ids[1]);
    raw.until(&word).await;
    process.signal("TERM");
    let draining = async {
        while process.admin("/readyz").await.status != 503 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, draining).await.expect("readiness is withdrawn");
    assert!(process.child.try_wait().unwrap().is_none());
    process.signal("TERM");
    let reply = raw.reply().await;
    assert_eq!(reply.end, End::Cut);
    assert!(reply.text().contains(&word) && !reply.text().contains("[DONE]"));
    let (status, log) = process.end().await;
    assert_eq!(status.code(), Some(1), "{log}");
}

#[tokio::test]
async fn a_drain_that_is_asked_for_over_http() {
    let (_context, generation) = engines().await;
    let mut process = Process::start(&generation, &[], &[]).await;
    assert_eq!(Client::http1(process.admin).await.send(&Ask::post("/drain", "")).await.status, 202);
    assert_eq!(process.end().await.0.code(), Some(0));
}

#[tokio::test]
async fn settings_that_are_wrong_stop_the_start() {
    let directory = std::env::temp_dir().join(format!("disagg-sidecar-test-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (identity, unknown, bad, broken) = (
        file("identity.toml", "node-id = 3\nprocess-id = 64\n"),
        file("unknown.toml", "max-in-flght = 3\n"),
        file("bad.toml", "settle-timeout = \"soon\"\n"),
        file("broken.toml", "max-in-flight = = 3\n"),
    );
    let key = |name: &str, key: &[u8]| {
        let path = directory.join(name);
        std::fs::write(&path, key).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (empty, encoding, large) =
        (key("empty", b"\r\n"), key("encoding", b"SECRET\xff"), key("large", &[b'S'; (64 << 10) + 1]));
    let key_in_file = file("key.toml", &format!("auth-key-file = {empty:?}\n"));
    let none: &[(&str, &str)] = &[];
    for (flags, environment, said) in [
        (&["--no-such-flag"][..], none, "--no-such-flag"),
        (&["--listen", "nowhere"], none, "--listen"),
        (&["--generation-url", "https://h:1"], none, "--generation-url"),
        (&["--max-in-flight", "0"], none, "--max-in-flight"),
        (&["--max-request-bytes", "many"], none, "--max-request-bytes"),
        (&["--context-timeout", "0s"], none, "--context-timeout"),
        (&["--allow-context", "h"], none, "--allow-context"),
        (&["--passthrough", "maybe"], none, "--passthrough"),
        (&["--engine-version", "1.2.1"], none, "1.3.0rc3"),
        (&["--node-id", "3"], none, "--process-id"),
        (&["--node-id", "256", "--process-id", "1"], none, "--node-id"),
        (&["--node-id=-1", "--process-id", "1"], none, "--node-id"),
        (&["--node-id", "1", "--process-id", "64"], none, "0..=63"),
        (&["--machine-id", "1021"], none, "0..=1020"),
        (&["--machine-id", "one"], none, "--machine-id"),
        (&["--machine-id", "1", "--node-id", "1", "--process-id", "1"], none, "--machine-id"),
        (&[], &[("DISAGG_MACHINE_ID", "65536")], "--machine-id"),
        (&["--config", &identity], none, "--process-id"),
        (&["--log", "a=b=c"], none, "--log"),
        (&["--conversation-from", "x-session-id"], none, "header:NAME"),
        (
            &["--conversation-from", "body:/user", "--engine-version", "1.3.0rc20"],
            none,
            "1.3.0rc21 and newer",
        ),
        (
            &["--engine-version", "1.3.0rc5"],
            &[("DISAGG_CONVERSATION_FROM", "body:/user")],
            "--conversation-from",
        ),
        (&[], &[("DISAGG_MAX_IN_FLIGHT", "none")], "--max-in-flight"),
        (&["--config", "/no/such/file.toml"], none, "/no/such/file.toml"),
        (&["--config", &unknown], none, "max-in-flght"),
        (&["--config", &bad], none, "settle-timeout"),
        (&["--config", &broken], none, "broken.toml"),
        (
            &["--auth-key-file", "/no/such/key"],
            none,
            "'/no/such/key' for '--auth-key-file <FILE>': the file cannot be read",
        ),
        (&["--auth-key-file", "/tmp"], none, "'--auth-key-file <FILE>': it is not a regular file"),
        (&["--auth-key-file", &empty], none, "'--auth-key-file <FILE>': the file is empty"),
        (&["--auth-key-file", &encoding], none, "'--auth-key-file <FILE>': the file is not UTF-8"),
        (&["--auth-key-file", &large], none, "'--auth-key-file <FILE>': the file is larger than 65536 bytes"),
        (&[], &[("DISAGG_AUTH_KEY_FILE", "/no/such/key")], "'/no/such/key' for '--auth-key-file <FILE>'"),
        (&["--config", &key_in_file], none, "'--auth-key-file <FILE>': the file is empty"),
    ] {
        let mut child = Command::new(BINARY)
            .args(flags)
            .env_clear()
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() && begun.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // one that was started after all
        let _ = child.kill();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {text}");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(said), "{flags:?}: {text}");
        assert!(!text.contains("SECRET") && !text.contains("SSS"), "{text}");
        assert!(output.stdout.is_empty());
    }
    std::fs::remove_dir_all(&directory).unwrap();
    for (flag, said) in [("--help", "--generation-url"), ("--version", env!("CARGO_PKG_VERSION"))] {
        let output = Command::new(BINARY).arg(flag).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(String::from_utf8_lossy(&output.stdout).contains(said));
    }
}

#[tokio::test]
async fn a_worker_that_is_too_old_for_a_setting_ends_it() {
    let context = Engine::start(Config::new(Role::Context)).await.unwrap();
    for (release, sources, ends) in [
        ("1.3.0rc20", "header:x-chat-id", true),
        ("1.3.0rc20", "", false),
        ("1.3.0rc21", "header:x-chat-id,body:/user", false),
    ] {
        let generation = Engine::start(Config::new(Role::Generation).release(release)).await.unwrap();
        let environment = [("DISAGG_CONVERSATION_FROM", sources)];
        let environment = if sources.is_empty() { &[][..] } else { &environment };
        let mut process = Process::start(&generation, &[], environment).await;
        if !ends {
            let body = chat_body("served", true);
            let ask = Ask::of(&body).via(&context.hostport()).header("x-chat-id", "7f3a");
            Answer::of(&Client::http1(process.data).await.send(&ask).await).is(&expected_answer(&body));
            let seen = generation.state().requests.pop().unwrap();
            assert_eq!(seen.header("x-session-id"), (!sources.is_empty()).then_some("7f3a"));
            process.signal("TERM");
        }
        let (status, log) = process.end().await;
        assert_eq!(status.code(), Some(if ends { 2 } else { 0 }), "{log}");
        let said: Vec<Value> = log
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .filter(|line: &Value| line["level"] == "ERROR")
            .collect();
        assert_eq!(said.len(), usize::from(ends), "{log}");
        for line in said {
            assert_eq!(line["release"], release);
            let message = line["message"].as_str().unwrap();
            assert!(message.contains("--conversation-from") && message.contains("1.3.0rc21"), "{message}");
        }
    }
}

#[tokio::test]
async fn a_port_that_is_taken_is_an_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for flag in ["--listen", "--admin-listen"] {
        let other = if flag == "--listen" { "--admin-listen" } else { "--listen" };
        let output = Command::new(BINARY).args([flag, &address, other, "127.0.0.1:0"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(&address) && text.contains(flag), "{text}");
    }
}

#[tokio::test]
async fn flags_beat_the_environment_which_beats_the_file() {
    let (context, generation) = engines().await;
    let path = std::env::temp_dir().join(format!("disagg-sidecar-test-{}.toml", std::process::id()));
    std::fs::write(
        &path,
        "passthrough = \"off\"\nmax-request-bytes = \"2KiB\"\nengine-version = \"1.3.0rc24\"\n",
    )
    .unwrap();
    let file = path.to_str().unwrap();
    let environment =
        [("DISAGG_CONFIG", file), ("DISAGG_MAX_REQUEST_BYTES", "1KiB"), ("DISAGG_PASSTHROUGH", "verbatim")];
    let process = Process::start(&generation, &["--passthrough", "guarded"], &environment).await;
    let mut client = Client::http1(process.data).await;
    assert_eq!(client.send(&Ask::get("/v1/models")).await.status, 200, "not off, as the file says");
    let mut forbidden = chat_body("x", false);
    forbidden["prompt_token_ids"] = json!([1]);
    client.send(&Ask::of(&forbidden)).await.is_error(400, "handoff_fields_forbidden");
    let body = chat_body(&"x".repeat(1000), false);
    let mut client = Client::http1(process.data).await;
    client.send(&Ask::of(&body).via(&context.hostport())).await.is_error(413, "request_too_large");
    let body = chat_body("x", true);
    let mut client = Client::http1(process.data).await;
    Answer::of(&client.send(&Ask::of(&body).via(&context.hostport())).await).is(&expected_answer(&body));
    assert!(context.state().requests.iter().all(|seen| seen.path != "/version"), "pinned, as the file says");
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn a_hang_up_reads_the_key_again() {
    let key = KeyFile::new("old");
    let (context, old) = engines().await;
    old.set_auth_keys(["old"]);
    let mut process = Process::start(&old, &[], &[("DISAGG_AUTH_KEY_FILE", &key.path())]).await;
    let body = chat_body("signed", true);
    let ask = Ask::of(&body).via(&context.hostport());
    let exchange = async || Client::http1(process.data).await.send(&ask).await;
    Answer::of(&exchange().await).is(&expected_answer(&body));
    process.signal("HUP");
    eventually("it is read", || process.logged("read again and is the same")).await;

    // the worker is restarted with another key, and comes before the file
    let port = old.addr().port();
    old.shutdown().await;
    let config = Config::new(Role::Generation).port(port).auth_key("new");
    let new = Engine::start(config).await.unwrap();
    let refused = exchange().await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    key.change("new");
    process.signal("HUP");
    eventually("it is read", || process.logged("another signing key")).await;
    Answer::of(&exchange().await).is(&expected_answer(&body));
    assert_eq!(new.state().generation_requests, 1);
    process.signal("TERM");
    let (status, log) = process.end().await;
    assert_eq!(status.code(), Some(0), "{log}");
}

#[tokio::test]
async fn a_hang_up_ends_nothing() {
    let (context, generation) = engines().await;
    let mut process = Process::start(&generation, &[], &[]).await;
    let body = chat_body("goes on", true);
    let hang = json!({"on": "generation", "token_gap_ms": 50});
    let mut raw = Raw::asking(process.data, &Ask::of(&body).via(&context.hostport()).fault(&hang)).await;
    raw.until(&trtllm_sim::token_text(expected_answer(&body).completion_token_ids[0])).await;
    for number in 1..=3 {
        process.signal("HUP");
        let said =
            || process.log.lock().unwrap().iter().filter(|line| line.contains("nothing to read")).count();
        eventually("it is said", || said() == number).await;
    }
    Answer::of(&raw.reply().await).is(&expected_answer(&body));
    assert_eq!(process.admin("/readyz").await.status, 200);
    // nor does it count as the second signal of a drain
    let mut raw = Raw::asking(process.data, &Ask::of(&body).via(&context.hostport()).fault(&hang)).await;
    raw.until(&trtllm_sim::token_text(expected_answer(&body).completion_token_ids[0])).await;
    process.signal("TERM");
    eventually("it drains", || process.logged("draining")).await;
    process.signal("HUP");
    Answer::of(&raw.reply().await).is(&expected_answer(&body));
    assert_eq!(process.end().await.0.code(), Some(0));
}

#[tokio::test]
async fn it_outlives_the_place_where_it_logs() {
    let (context, generation) = engines().await;
    // a shell reads the first lines and goes, as a terminal would
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut child = Command::new(BINARY)
        .args(["--listen", &port.to_string(), "--admin-listen", "127.0.0.1:0", "--log", "trace"])
        .args(["--generation-url", &generation.url()])
        .env_clear()
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    while !lines.next().unwrap().unwrap().contains("serving") {}
    drop(lines);
    let signal = |name: &str| {
        let kill = format!("kill -{name} {}", child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    };
    let body = chat_body("goes on", true);
    for _ in 0..3 {
        signal("HUP");
        let ask = Ask::of(&body).via(&context.hostport());
        Answer::of(&Client::http1(port).await.send(&ask).await).is(&expected_answer(&body));
    }
    signal("TERM");
    let mut status = None;
    eventually("the process ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    })
    .await;
    assert_eq!(status.unwrap().code(), Some(0));
}

#[tokio::test]
async fn nothing_secret_is_logged() {
    for level in ["info", "trace"] {
        let (context, generation) = engines().await;
        let key = KeyFile::new("SECRET-KEY");
        let flags = ["--log", level, "--auth-key-file", &key.path()];
        let mut process = Process::start(&generation, &flags, &[]).await;
        let body = chat_body("SECRET-PROMPT", true);
        let ask = Ask::of(&body).via(&context.hostport()).header("authorization", "Bearer SECRET-TOKEN");
        let ask = ask.header("x-trtllm-disagg-auth", "SECRET-SIGNATURE");
        let mut replies = Vec::new();
        for ask in [
            ask.clone(),
            Ask { body: "{\"SECRET-PROMPT\": SECRET".into(), ..ask.clone() },
            ask.clone().fault(&json!({"on": "context", "status": 500, "body": {"error": "SECRET-PROMPT"}})),
            ask.clone().fault(&json!({"on": "context", "reply": "SECRET-STATE"})),
            ask.clone().fault(&json!({"on": "context", "set": {"/choices/0/disaggregated_params/encoded_opaque_state": "SECRET-STATE"}})),
            ask.clone().fault(&json!({"on": "generation", "status": 400, "body": {"error": "encoded_opaque_state SECRET-STATE"}})),
            ask.clone().fault(&json!({"on": "generation", "cut": {"at": "body", "after_bytes": 100, "how": "rst"}})),
            ask.clone().fault(&json!({"on": "generation", "cut": {"at": "head", "how": "rst"}})),
            Ask::of(&body).header("authorization", "Bearer SECRET-TOKEN"),
        ] {
            replies.push(Client::http1(process.data).await.send(&ask).await);
        }
        let states: Vec<String> =
            context.state().requests.iter().filter_map(|seen| seen.request_type()).collect();
        assert!(states.len() >= 6, "{states:?}");
        for reply in &replies {
            assert!(
                !reply.text().contains("SECRET-STATE") && !reply.text().contains("SECRET-TOKEN"),
                "{}",
                reply.text()
            );
        }
        // the real opaque states, from what the generation worker was sent
        let opaque: Vec<String> = generation
            .state()
            .requests
            .iter()
            .filter_map(|seen| {
                seen.json()?["disaggregated_params"]["encoded_opaque_state"].as_str().map(str::to_owned)
            })
            .collect();
        assert!(opaque.len() >= 4);
        let signatures: Vec<String> = generation
            .state()
            .requests
            .iter()
            .filter_map(|seen| {
                seen.header("x-trtllm-disagg-auth")?.strip_prefix("sha256=").map(str::to_owned)
            })
            .collect();
        assert_eq!(signatures.len(), opaque.len());
        for (key_now, said) in [(&b"SECRET-NEXT"[..], "another signing key"), (b"SECRET-\xff", "not UTF-8")] {
            key.change(key_now);
            process.signal("HUP");
            eventually("it is read", || process.logged(said)).await;
        }
        process.signal("TERM");
        let (_, log) = process.end().await;
        assert!(log.contains("\"serving\""));
        assert!(!log.contains("panicked"), "{log}");
        for secret in ["SECRET", "Bearer"].into_iter().map(str::to_owned).chain(opaque).chain(signatures) {
            assert!(!log.contains(&secret), "{level}: {secret} in the log: {log}");
        }
    }
}

#[tokio::test]
async fn b86_no_proxy_of_the_environment_is_used() {
    let recorder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    recorder.set_nonblocking(true).unwrap();
    let proxy = format!("http://{}", recorder.local_addr().unwrap());
    let names = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let mut environment: Vec<_> = names.iter().map(|name| (*name, proxy.as_str())).collect();
    environment.extend([("NO_PROXY", ""), ("no_proxy", "")]);
    let (context, generation) = engines().await;
    let process = Process::start(&generation, &[], &environment).await;
    // by address and by name, handed off and passed through, questions of the sidecar's own among it
    for body in [chat_body("direct", true), completions_body("direct", false)] {
        for to in [context.hostport(), format!("localhost:{}", context.addr().port())] {
            let ask = Ask::of(&body).via(&to);
            Answer::of(&Client::http1(process.data).await.send(&ask).await).is(&expected_answer(&body));
        }
        Answer::of(&Client::http1(process.data).await.send(&Ask::of(&body)).await)
            .is(&expected_answer(&body));
    }
    assert_eq!(process.admin("/readyz").await.status, 200);
    assert!(
        context.state().requests.iter().any(|seen| seen.path == "/version"),
        "the worker was asked directly"
    );
    assert_eq!((context.state().context_requests, generation.state().generation_requests), (4, 4));
    assert!(recorder.accept().is_err(), "the proxy was asked");
}

#[tokio::test]
async fn a_release_newer_than_known_is_said_once() {
    let start = async |role, release| Engine::start(Config::new(role).release(release)).await.unwrap();
    for (context, generation, flags) in [
        ("9.9.9", "9.9.9", &[][..]),
        ("9.9.9", "1.3.0rc24", &[]),
        ("1.3.0rc24", "9.9.9", &[]),
        ("1.3.0rc24", "1.3.0rc24", &["--engine-version", "9.9.9"]),
    ] {
        let contexts = [start(Role::Context, context).await, start(Role::Context, context).await];
        let generation = start(Role::Generation, generation).await;
        let mut process = Process::start(&generation, flags, &[]).await;
        let body = chat_body("new", true);
        for context in contexts.iter().chain(&contexts) {
            let ask = Ask::of(&body).via(&context.hostport());
            assert_eq!(Client::http1(process.data).await.send(&ask).await.status, 200);
        }
        process.signal("TERM");
        let (_, log) = process.end().await;
        let said: Vec<_> = log.lines().filter(|line| line.contains("newer than any release known")).collect();
        assert_eq!(said.len(), 1, "{log}");
        assert!(said[0].contains("9.9.9"));
    }
}

/// Sends a request with each of these texts, many at a time.
async fn hand_off(process: &Process, context: &Engine, texts: impl Iterator<Item = String>) {
    let (data, context) = (process.data, context.hostport());
    let asked = texts.map(|text| {
        let body = chat_body(&text, true);
        let ask = Ask::of(&body).via(&context);
        tokio::spawn(async move {
            Answer::of(&Client::http1(data).await.send(&ask).await).is(&expected_answer(&body));
        })
    });
    for asked in asked.collect::<Vec<_>>() {
        asked.await.unwrap();
    }
}

/// The ids in the context legs whose text starts like this.
fn ids(context: &Engine, text: &str) -> Vec<u64> {
    let legs = context.state().requests.into_iter().filter_map(|seen| {
        let said = seen.json()?["messages"][0]["content"].as_str()?.starts_with(text);
        said.then(|| seen.disagg_request_id().unwrap().try_into().unwrap())
    });
    legs.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_at_once_and_one_after_the_other_never_repeat_an_id() {
    const EACH: usize = 100;
    type Place = fn(u64) -> u64;
    let node_process: Place = |id| id >> 10 & 0x3fff;
    let machine: Place = |id| id >> 12 & 0x3ff;
    // identities that differ in one bit
    for (release, one, two, place, expected) in [
        ("1.3.0rc24", &["--machine-id", "66"][..], &["--machine-id", "67"][..], node_process, (66, 67)),
        ("1.3.0rc20", &["--machine-id", "1020"], &["--machine-id", "508"], machine, (1020, 508)),
        (
            "1.3.0rc24",
            &["--node-id", "200", "--process-id", "63"],
            &["--node-id", "201", "--process-id", "63"],
            node_process,
            (200 * 64 + 63, 201 * 64 + 63),
        ),
        ("1.3.0rc20", &["--node-id", "1", "--process-id", "2"], &[], node_process, (66, u64::MAX)),
    ] {
        let start = async |role| Engine::start(Config::new(role).release(release)).await.unwrap();
        let (context, generation) = (start(Role::Context).await, start(Role::Generation).await);
        let mut first = Process::start(&generation, one, &[]).await;
        let second = Process::start(&generation, two, &[]).await;
        let texts = |name: &str| (0..EACH).map(move |number| format!("{name} {number}")).collect::<Vec<_>>();
        tokio::join!(
            hand_off(&first, &context, texts("first").into_iter()),
            hand_off(&second, &context, texts("second").into_iter())
        );
        // again with the same identity, as soon as it can be
        first.signal("KILL");
        first.end().await;
        let again = Process::start(&generation, one, &[]).await;
        tokio::join!(
            hand_off(&again, &context, texts("again").into_iter()),
            hand_off(&second, &context, texts("second").into_iter())
        );
        let mut all = HashSet::new();
        for (text, count, identity) in
            [("first", EACH, expected.0), ("second", 2 * EACH, expected.1), ("again", EACH, expected.0)]
        {
            let ids = ids(&context, text);
            assert_eq!(ids.len(), count);
            for id in ids {
                assert!((1 << 42..i64::MAX as u64).contains(&id), "{id}");
                assert!(all.insert(id), "{id} came twice");
                // random ids show no identity
                assert!(identity == u64::MAX || place(id) == identity, "{release} {text}: {id:064b}");
            }
        }
        let state = context.state();
        assert_eq!((state.duplicate_ids, state.kv_held, state.requests_dropped), (0, 0, 0));
    }
}
