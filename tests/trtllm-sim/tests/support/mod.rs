//! A small HTTP client that shows how a reply ended, and builders of legs.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use trtllm_sim::{Engine, State};

/// A reply, as far as it came.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    /// Whether the message ended as its framing promised.
    pub complete: bool,
    /// How many chunks a chunked body had.
    pub chunks: usize,
}

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.status, self.text()))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The `data:` payloads of an event stream.
    pub fn events(&self) -> Vec<String> {
        let text = self.text();
        text.split("\n\n")
            .filter_map(|event| event.strip_prefix("data: "))
            .map(|event| event.trim_end().to_owned())
            .collect()
    }

    /// The text of a stream, chat or completions.
    pub fn streamed(&self) -> String {
        self.chunks_json()
            .iter()
            .filter_map(|chunk| {
                let choice = chunk["choices"].get(0)?;
                let text = choice["delta"]["content"].as_str();
                text.or(choice["text"].as_str()).map(str::to_owned)
            })
            .collect()
    }

    pub fn chunks_json(&self) -> Vec<Value> {
        let events = self.events();
        let chunks = events.iter().filter(|event| *event != "[DONE]");
        chunks.map(|event| serde_json::from_str(event).unwrap()).collect()
    }
}

/// The bytes of a request that closes its connection.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n");
    for (name, value) in headers {
        bytes.push_str(&format!("{name}: {value}\r\n"));
    }
    bytes.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    [bytes.as_bytes(), body].concat()
}

/// Sends bytes and reads to the end, whichever end that is; `None` when nothing came.
pub async fn exchange(engine: &Engine, bytes: &[u8]) -> Option<Reply> {
    let mut stream = TcpStream::connect(engine.addr()).await.unwrap();
    let _ = stream.write_all(bytes).await;
    let mut all = Vec::new();
    let mut buf = vec![0; 64 << 10];
    while let Ok(Ok(n @ 1..)) = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut buf)).await {
        all.extend_from_slice(&buf[..n]);
    }
    parse(&all)
}

fn parse(all: &[u8]) -> Option<Reply> {
    let split = all.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&all[..split]).into_owned();
    let mut rest = &all[split + 4..];
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let mut reply = Reply { status, head, body: Vec::new(), complete: false, chunks: 0 };
    if let Some(length) = reply.header("content-length") {
        reply.complete = length.parse() == Ok(rest.len());
        reply.body = rest.to_vec();
        return Some(reply);
    }
    if reply.header("transfer-encoding").is_none() {
        reply.complete = rest.is_empty();
        return Some(reply);
    }
    loop {
        let Some(line) = rest.windows(2).position(|w| w == b"\r\n") else {
            return Some(reply);
        };
        let size = usize::from_str_radix(&String::from_utf8_lossy(&rest[..line]), 16);
        let Ok(size) = size else {
            return Some(reply);
        };
        rest = &rest[line + 2..];
        if size == 0 {
            reply.complete = rest == b"\r\n";
            return Some(reply);
        }
        let now = size.min(rest.len());
        reply.body.extend_from_slice(&rest[..now]);
        reply.chunks += 1;
        match rest.get(size + 2..) {
            Some(more) => rest = more,
            None => return Some(reply),
        }
    }
}

pub const JSON: (&str, &str) = ("content-type", "application/json");

/// Posts JSON; the reply must have come.
pub async fn post(engine: &Engine, path: &str, body: &Value) -> Reply {
    post_bytes(engine, path, &[JSON], body.to_string().as_bytes()).await
}

pub async fn post_bytes(engine: &Engine, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let bytes = request("POST", path, headers, body);
    exchange(engine, &bytes).await.expect("a reply")
}

pub async fn get(engine: &Engine, path: &str) -> Reply {
    let bytes = request("GET", path, &[], b"");
    exchange(engine, &bytes).await.expect("a reply")
}

pub const CHAT: &str = "/v1/chat/completions";
pub const COMPLETIONS: &str = "/v1/completions";

pub fn chat() -> Value {
    json!({
        "model": "m",
        "messages": [{"role": "user", "content": "Tell me of the sea \u{e9}\u{4f60}\u{1f600}"}],
    })
}

pub fn completion() -> Value {
    json!({"model": "m", "prompt": "Once upon a time"})
}

/// A value with members set.
pub fn with(mut value: Value, extra: Value) -> Value {
    if let (Some(object), Some(extra)) = (value.as_object_mut(), extra.as_object()) {
        object.extend(extra.clone());
    }
    value
}

/// The context leg of a client's request.
pub fn context_leg(client: &Value, id: i64) -> Value {
    let mut leg = with(
        client.clone(),
        json!({
            "stream": false,
            "disaggregated_params":
                {"request_type": "context_only", "disagg_request_id": id, "schedule_style": 0},
        }),
    );
    leg.as_object_mut().unwrap().remove("stream_options");
    leg
}

/// The generation leg that follows a context reply, with the members named dropped.
pub fn generation_leg(client: &Value, reply: &Value, drop: &[&str]) -> Value {
    let mut params = reply["choices"][0]["disaggregated_params"].clone();
    let members = params.as_object_mut().expect("disaggregated_params");
    members
        .retain(|name, value| !value.is_null() && *value != json!(false) && !drop.contains(&name.as_str()));
    members.insert("request_type".into(), json!("generation_only"));
    members.insert("schedule_style".into(), json!(0));
    if !drop.contains(&"ctx_usage") {
        members.insert("ctx_usage".into(), reply["usage"].clone());
    }
    let ids = if client.get("messages").is_some() { "prompt_token_ids" } else { "prompt" };
    with(client.clone(), json!({"disaggregated_params": params, ids: reply["prompt_token_ids"]}))
}

/// Waits until the state is as wanted; the time is for slow machines only.
pub async fn until(engine: &Engine, what: &str, wanted: impl Fn(&State) -> bool) -> State {
    for _ in 0..500 {
        let state = engine.state();
        if wanted(&state) {
            return state;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within 5 s: {what}: {:?}", engine.state());
}
