//! What an engine has seen and done.

use crate::conversation::Conversation;
use crate::json::{Value, text};
use bytes::Bytes;
use http::{HeaderMap, Method};
use std::sync::atomic::{AtomicU64, Ordering};

/// A snapshot of an engine.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct State {
    /// How many requests' KV is held for a pull.
    pub kv_held: usize,
    /// The ids it is registered under.
    pub kv_ids: Vec<i64>,
    /// Requests being served: from their head to the end of the answer's body.
    pub open_requests: usize,
    /// Connections that are open, of clients, not of pulls.
    pub open_connections: usize,
    /// Connections accepted so far.
    pub connections: u64,
    /// The latest requests, oldest first, without those to `/sim/` and `/health`.
    pub requests: Vec<SeenRequest>,
    /// Requests that fell out of that list.
    pub requests_dropped: u64,
    /// Context steps given up because their client left before the reply.
    pub aborts: u64,
    /// Generation requests whose client left while the KV was arriving. The
    /// real engine leaks or crashes then.
    pub transfer_aborts: u64,
    /// Generation and aggregated requests whose client left later, or before the KV was asked for.
    pub generation_aborts: u64,
    /// KV that was pulled whole from this engine.
    pub pulls: u64,
    /// KV that this engine pulled whole.
    pub fetched: u64,
    /// Pulls of this engine that failed.
    pub failed_fetches: u64,
    /// Pulls refused: wrong ids, wrong state, wrong prompt, or nothing there.
    pub failed_pulls: u64,
    /// Pulls that broke off; their KV stays until the timeout.
    pub stranded: u64,
    /// KV freed by the transfer timeout.
    pub expired: u64,
    /// Context steps that ended the answer and held nothing.
    pub terminal: u64,
    /// Requests with an id that was live already. Always a bug of the sender.
    pub duplicate_ids: u64,
    /// `context_only` requests accepted.
    pub context_requests: u64,
    /// `generation_only` requests accepted.
    pub generation_requests: u64,
    /// Why requests were refused, latest last, at most 1,000 of at most 300 characters.
    pub rejections: Vec<String>,
    /// Faults that hold now.
    pub faults: usize,
    /// The conversations that are kept on a rank, at most 4,096, the latest first.
    pub conversations: Vec<Conversation>,
    /// Bytes of answer bodies given to the connections.
    pub body_bytes: u64,
}

/// A request that reached an engine.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SeenRequest {
    /// Its number, from 1, in the order of arrival.
    pub number: u64,
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// All headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
    /// Which connection it came on, counted from 1.
    pub connection: u64,
    /// The id of its conversation, as a worker reads it, once it was accepted.
    pub conversation: Option<String>,
    /// The rank it was placed on, once it was accepted.
    pub rank: Option<usize>,
}

impl SeenRequest {
    /// The body as JSON, when it is any that `serde_json` reads.
    #[must_use]
    pub fn json(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The `request_type` in `disaggregated_params`.
    #[must_use]
    pub fn request_type(&self) -> Option<String> {
        let body = self.json()?;
        let kind = body.get("disaggregated_params")?.get("request_type")?;
        kind.as_str().map(str::to_owned)
    }

    /// The `disagg_request_id` in `disaggregated_params`.
    #[must_use]
    pub fn disagg_request_id(&self) -> Option<i64> {
        let body = self.json()?;
        body.get("disaggregated_params")?.get("disagg_request_id")?.as_i64()
    }

    /// A header's value, when there is one and it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// A count that only grows, or a gauge.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn sub_one(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All counts of an engine.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) open_requests: Count,
    pub(crate) open_connections: Count,
    pub(crate) connections: Count,
    pub(crate) seen: Count,
    pub(crate) aborts: Count,
    pub(crate) transfer_aborts: Count,
    pub(crate) generation_aborts: Count,
    pub(crate) pulls: Count,
    pub(crate) fetched: Count,
    pub(crate) failed_fetches: Count,
    pub(crate) failed_pulls: Count,
    pub(crate) stranded: Count,
    pub(crate) expired: Count,
    pub(crate) terminal: Count,
    pub(crate) duplicate_ids: Count,
    pub(crate) context_requests: Count,
    pub(crate) generation_requests: Count,
    pub(crate) body_bytes: Count,
    pub(crate) replies: Count,
    pub(crate) local_ids: Count,
}

/// Bytes of a body that the state page shows, and how many requests.
const SHOWN_BODY: usize = 16 << 10;
const SHOWN_REQUESTS: usize = 1_000;

impl State {
    /// The JSON of `/sim/state`.
    pub(crate) fn to_json(&self) -> String {
        let count = |n: u64| Value::int(n);
        let hidden = self.requests.len().saturating_sub(SHOWN_REQUESTS);
        let requests = self.requests.iter().skip(hidden).map(|request| {
            let headers = request.headers.iter().map(|(name, value)| {
                let pair = [Value::str(name.as_str()), Value::str(String::from_utf8_lossy(value.as_bytes()))];
                Value::Arr(pair.to_vec())
            });
            let shown = &request.body[..request.body.len().min(SHOWN_BODY)];
            Value::obj([
                ("number", count(request.number)),
                ("method", Value::str(request.method.as_str())),
                ("path", Value::str(request.path.as_str())),
                ("headers", Value::Arr(headers.collect())),
                ("body", Value::str(String::from_utf8_lossy(shown))),
                ("body_bytes", count(request.body.len() as u64)),
                ("connection", count(request.connection)),
                ("conversation", request.conversation.as_deref().map_or(Value::Null, Value::str)),
                ("rank", request.rank.map_or(Value::Null, |rank| count(rank as u64))),
            ])
        });
        let conversations = self.conversations.iter().map(|conversation| {
            Value::obj([
                ("id", Value::str(conversation.id.as_str())),
                ("rank", count(conversation.rank as u64)),
                ("requests", count(conversation.requests)),
            ])
        });
        let rejections = self.rejections.iter().map(|r| Value::str(r.as_str()));
        text(&Value::obj([
            ("kv_held", count(self.kv_held as u64)),
            ("kv_ids", Value::ints(&self.kv_ids)),
            ("open_requests", count(self.open_requests as u64)),
            ("open_connections", count(self.open_connections as u64)),
            ("connections", count(self.connections)),
            ("aborts", count(self.aborts)),
            ("transfer_aborts", count(self.transfer_aborts)),
            ("generation_aborts", count(self.generation_aborts)),
            ("pulls", count(self.pulls)),
            ("fetched", count(self.fetched)),
            ("failed_fetches", count(self.failed_fetches)),
            ("failed_pulls", count(self.failed_pulls)),
            ("stranded", count(self.stranded)),
            ("expired", count(self.expired)),
            ("terminal", count(self.terminal)),
            ("duplicate_ids", count(self.duplicate_ids)),
            ("context_requests", count(self.context_requests)),
            ("generation_requests", count(self.generation_requests)),
            ("faults", count(self.faults as u64)),
            ("body_bytes", count(self.body_bytes)),
            ("conversations", Value::Arr(conversations.collect())),
            ("rejections", Value::Arr(rejections.collect())),
            ("requests_dropped", count(self.requests_dropped)),
            ("requests", Value::Arr(requests.collect())),
        ]))
    }
}
