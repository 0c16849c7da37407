//! Requests, for every kind of client.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request};
use http_body_util::Full;
use serde_json::{Value, json, value::RawValue};

/// A request to the sidecar.
#[derive(Debug, Clone)]
pub struct Ask {
    pub method: Method,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

impl Ask {
    /// A request with a body of JSON.
    pub fn post(path: &str, body: impl Into<Bytes>) -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Self { method: Method::POST, path: path.to_owned(), headers, body: body.into() }
    }

    pub fn get(path: &str) -> Self {
        Self { method: Method::GET, path: path.to_owned(), headers: Vec::new(), body: Bytes::new() }
    }

    /// To the endpoint that this body is for.
    pub fn of(body: &Value) -> Self {
        let chat = body.get("messages").is_some();
        Self::post(if chat { "/v1/chat/completions" } else { "/v1/completions" }, body.to_string())
    }

    /// Routed to this context worker.
    pub fn via(self, context: &str) -> Self {
        self.header("x-prefiller-host-port", context)
    }

    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// With a fault, or a list of them, for this request only.
    pub fn fault(self, fault: &Value) -> Self {
        self.header("x-sim-fault", fault.to_string())
    }

    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// For hyper, which adds the length.
    pub fn request(&self, host: &str) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = format!("http://{host}{}", self.path).parse().unwrap();
        for (name, value) in &self.headers {
            let name: HeaderName = name.parse().unwrap();
            request.headers_mut().append(name, HeaderValue::from_str(value).unwrap());
        }
        request
    }

    /// The head on the wire, with whatever says the length.
    pub fn head(&self, framing: &str) -> String {
        let mut head = format!("{} {} HTTP/1.1\r\nhost: gateway.example\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head + framing + "\r\n\r\n"
    }

    /// Head and body on the wire.
    pub fn wire(&self) -> Vec<u8> {
        let mut wire = self.head(&format!("content-length: {}", self.body.len())).into_bytes();
        wire.extend_from_slice(&self.body);
        wire
    }
}

/// A chat request; its answer follows from `text`.
pub fn chat_body(text: &str, stream: bool) -> Value {
    json!({
        "model": "sim",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 12,
        "stream": stream,
    })
}

/// The same for completions.
pub fn completions_body(text: &str, stream: bool) -> Value {
    json!({"model": "sim", "prompt": text, "max_tokens": 12, "stream": stream})
}

/// The members of a JSON object, each with the text of its value as it was written. Refuses repeated keys.
pub fn members(json: &[u8]) -> BTreeMap<String, String> {
    struct Members(BTreeMap<String, String>);
    impl<'de> serde::Deserialize<'de> for Members {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visitor;
            impl<'de> serde::de::Visitor<'de> for Visitor {
                type Value = Members;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("an object without repeated keys")
                }
                fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                    let mut members = BTreeMap::new();
                    while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                        let before = members.insert(key, value.get().to_owned());
                        assert!(before.is_none(), "a key occurs twice");
                    }
                    Ok(Members(members))
                }
            }
            deserializer.deserialize_map(Visitor)
        }
    }
    serde_json::from_slice::<Members>(json).unwrap().0
}

/// The members of a JSON object as they were written and in that order: each key with its quotes and escapes, and the
/// text of its value; repeated ones included.
pub fn spelt(json: &[u8]) -> Vec<(String, String)> {
    struct Spelt(Vec<(String, String)>);
    impl<'de> serde::Deserialize<'de> for Spelt {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visitor;
            impl<'de> serde::de::Visitor<'de> for Visitor {
                type Value = Spelt;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("an object")
                }
                fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Spelt, A::Error> {
                    let mut members = Vec::new();
                    while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
                        members.push((key.get().to_owned(), value.get().to_owned()));
                    }
                    Ok(Spelt(members))
                }
            }
            deserializer.deserialize_map(Visitor)
        }
    }
    serde_json::from_slice::<Spelt>(json).unwrap().0
}
