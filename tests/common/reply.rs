//! What came back.

use http::{HeaderMap, StatusCode};
use serde_json::Value;

/// How a message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As its framing promised.
    Complete,
    /// Before that: the connection was closed, or the stream was reset.
    Cut,
}

/// A reply, as far as it came.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub end: End,
}

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.status, self.text()))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The payloads of an event stream, as far as they are whole.
    pub fn events(&self) -> Vec<String> {
        let text = self.text();
        let whole = text.rsplit_once("\n\n").map_or("", |(whole, _)| whole);
        whole
            .split("\n\n")
            .filter_map(|event| event.strip_prefix("data: "))
            .map(|e| e.trim().to_owned())
            .collect()
    }

    /// That it is an error object in the shape of the OpenAI API; returns the `error` in it.
    #[track_caller]
    pub fn error(&self) -> Value {
        assert_eq!(self.end, End::Complete);
        assert_eq!(self.header("content-type"), Some("application/json"), "{}", self.text());
        let whole = self.json();
        let error = whole["error"].clone();
        assert_eq!(whole.as_object().map(|members| members.len()), Some(1), "{whole}");
        let keys: Vec<_> = error.as_object().expect("an error object").keys().cloned().collect();
        assert_eq!(keys, ["code", "message", "param", "type"], "{whole}");
        assert!(error["message"].as_str().is_some_and(|message| message.len() > 10), "{whole}");
        let kind = if self.status.is_client_error() { "invalid_request_error" } else { "server_error" };
        assert_eq!(error["type"], kind, "{whole}");
        error
    }

    /// That it is this error of the sidecar.
    #[track_caller]
    pub fn is_error(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status.as_u16(), status, "expected {code}: {}", self.text());
        let error = self.error();
        assert_eq!(error["code"], code, "{error}");
        error
    }

    /// What it says, without what differs from reply to reply (ids, times) and without what is internal.
    #[track_caller]
    pub fn comparable(&self) -> Vec<Value> {
        let stream = self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        let texts = if stream { self.events() } else { vec![self.text()] };
        texts
            .iter()
            .map(|text| {
                if text == "[DONE]" {
                    return Value::from("[DONE]");
                }
                let mut value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
                let members = value.as_object_mut().expect("an object");
                for name in ["id", "created", "prompt_token_ids", "prompt_token_ids_b64"] {
                    members.remove(name);
                }
                for choice in value["choices"].as_array_mut().into_iter().flatten() {
                    choice.as_object_mut().expect("a choice").remove("disaggregated_params");
                }
                value
            })
            .collect()
    }
}
