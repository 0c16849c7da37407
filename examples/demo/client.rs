//! A client that notes what it gets.

use std::{error::Error, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::timeline::Timeline;

/// What is asked for.
pub(crate) fn chat(question: &str, stream: bool) -> Value {
    json!({
        "model": "sim",
        "messages": [{"role": "user", "content": question}],
        "max_tokens": 12,
        "stream": stream,
    })
}

/// An answer, as far as the client read it.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
    pub(crate) chunks: usize,
    pub(crate) finish: String,
    pub(crate) done: bool,
}

/// Sends a chat request and reads the answer to its end.
pub(crate) async fn ask(
    sidecar: SocketAddr,
    context: &str,
    body: &Value,
    timeline: &Timeline,
) -> Result<Answer, Box<dyn Error>> {
    let (response, _connection) = send(sidecar, context, body, timeline).await?;
    let mut answer = Answer { status: response.status().as_u16(), ..Answer::default() };
    let mut response = response.into_body();
    let mut unread = Vec::new();
    while let Some(frame) = response.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        unread.extend_from_slice(&data);
        while let Some(event) = take_event(&mut unread) {
            read_event(&event, &mut answer, timeline);
        }
    }
    if !unread.is_empty() {
        // No event stream: one JSON object.
        let whole: Value = serde_json::from_slice(&unread)?;
        let choice = &whole["choices"][0];
        answer.text = choice["message"]["content"].as_str().unwrap_or_default().to_owned();
        answer.finish = choice["finish_reason"].as_str().unwrap_or_default().to_owned();
        let tokens = &whole["usage"]["completion_tokens"];
        timeline.note("client", format!("whole answer: {tokens} tokens, finish_reason {}", answer.finish));
    } else {
        timeline.note(
            "client",
            match answer.chunks {
                0 => format!("end of stream: an empty answer, finish_reason {}", answer.finish),
                chunks => format!("end of stream: {chunks} chunks, finish_reason {}", answer.finish),
            },
        );
    }
    Ok(answer)
}

/// Sends a chat request and leaves as soon as `until` says so.
pub(crate) async fn ask_and_leave(
    sidecar: SocketAddr,
    context: &str,
    body: &Value,
    until: impl Future<Output = ()>,
    timeline: &Timeline,
) -> Result<(), Box<dyn Error>> {
    tokio::select! {
        // Dropped with the connection in it.
        response = send(sidecar, context, body, timeline) => {
            response?;
            Err("the answer began before the client could leave".into())
        }
        () = until => {
            timeline.note("client", "leaves");
            Ok(())
        }
    }
}

async fn send(
    sidecar: SocketAddr,
    context: &str,
    body: &Value,
    timeline: &Timeline,
) -> Result<(Response<Incoming>, Connection), Box<dyn Error>> {
    let io = hyper_util::rt::TokioIo::new(tokio::net::TcpStream::connect(sidecar).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake::<_, Full<Bytes>>(io).await?;
    let connection = Connection(tokio::spawn(async move { connection.await.ok() }));
    let request = Request::post("/v1/chat/completions")
        .header("host", "gateway.example")
        .header("content-type", "application/json")
        .header("x-prefiller-host-port", context)
        .body(Full::from(body.to_string()))?;
    timeline.note("client", "sends POST /v1/chat/completions");
    let response = sender.send_request(request).await?;
    let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or("-");
    timeline.note("client", format!("head: {}, {kind}", response.status()));
    Ok((response, connection))
}

/// Closes the connection when it is dropped.
struct Connection(tokio::task::JoinHandle<Option<()>>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn take_event(unread: &mut Vec<u8>) -> Option<String> {
    let end = unread.windows(2).position(|pair| pair == b"\n\n")?;
    let event: Vec<u8> = unread.drain(..end + 2).collect();
    String::from_utf8_lossy(&event).trim().strip_prefix("data: ").map(str::to_owned)
}

fn read_event(event: &str, answer: &mut Answer, timeline: &Timeline) {
    if event == "[DONE]" {
        answer.done = true;
        return;
    }
    let chunk: Value = serde_json::from_str(event).unwrap_or_default();
    let choice = &chunk["choices"][0];
    if let Some(finish) = choice["finish_reason"].as_str() {
        answer.finish = finish.to_owned();
    }
    if let Some(text) = choice["delta"]["content"].as_str().filter(|text| !text.is_empty()) {
        if answer.chunks == 0 {
            timeline.note("client", format!("first token: {text:?}"));
        }
        answer.chunks += 1;
        answer.text.push_str(text);
    }
}

/// Waits until `done` holds, or `limit` has passed; says whether it does.
pub(crate) async fn wait_until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let waiting = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(limit, waiting).await.is_ok()
}
