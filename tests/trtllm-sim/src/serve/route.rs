//! Which path is what, and what every request goes through first.

use super::{control, inference, info, respond};
use crate::faults::{CutAt, Fault, On};
use crate::http1::{Broken, Conn, Open, SimBody};
use crate::schema::Endpoint;
use crate::shared::Shared;
use crate::state::SeenRequest;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use std::sync::Arc;

/// A request, read.
pub(super) struct Call {
    /// Its number among the requests seen; 0 for one that is not counted.
    pub(super) number: u64,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The fault in its header.
    pub(super) fault: Vec<Fault>,
}

impl Call {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The fault for this request: its own before those of the engine.
    pub(super) fn fault(&self, shared: &Shared, wanted: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let own = self.fault.iter().find(|fault| wanted(fault)).cloned();
        own.or_else(|| shared.faults().take(wanted))
    }
}

/// The header with a fault for one request.
const FAULT_HEADER: &str = "x-sim-fault";

/// Answers one request, or breaks the connection.
pub(crate) async fn handle(
    shared: Arc<Shared>,
    request: Request<Incoming>,
    conn: Arc<Conn>,
) -> Result<Response<SimBody>, Broken> {
    let before = conn.request_starts();
    let open = Open::new(Arc::clone(&shared), Arc::clone(&conn));
    if before > 0 {
        let reuse = |fault: &Fault| fault.cut.is_some_and(|cut| cut.at == CutAt::Reuse);
        let fault = shared.faults().take(reuse);
        if let Some(cut) = fault.and_then(|fault| fault.cut) {
            conn.end_with(cut.how);
            return Err(Broken(cut.how));
        }
    }
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, shared.config.max_body).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            return Ok(respond::detail(413, "Request Entity Too Large"));
        }
        // The client broke off in its own body; nobody is there to be told.
        Err(_) => return Err(Broken(Default::default())),
    };
    let path = parts.uri.path().to_owned();
    let control = path.starts_with("/sim/");
    let mut number = 0;
    if !control && path != "/health" {
        number = shared.counts.seen.next();
        let full = parts.uri.path_and_query().map(|full| full.as_str());
        shared.saw(SeenRequest {
            number,
            method: parts.method.clone(),
            path: full.unwrap_or(&path).to_owned(),
            headers: parts.headers.clone(),
            body: body.clone(),
            connection: conn.number,
            conversation: None,
            rank: None,
        });
    }
    let mut call =
        Call { number, method: parts.method, path, headers: parts.headers, body, fault: Vec::new() };
    if let Some(value) = call.headers.get(FAULT_HEADER) {
        let json = value.to_str().map_err(|_| "not visible ASCII".to_owned());
        match json.and_then(Fault::from_json) {
            Ok(fault) => call.fault = fault,
            Err(error) => {
                let message = format!("{FAULT_HEADER}: {error}");
                shared.refused(&message);
                return Ok(respond::detail(400, &message));
            }
        }
    }
    let response = dispatch(&shared, &call, &conn).await?;
    Ok(response.map(|body| body.open(open)))
}

async fn dispatch(shared: &Arc<Shared>, call: &Call, conn: &Arc<Conn>) -> Result<Response<SimBody>, Broken> {
    let path = call.path.as_str();
    let get = call.method == Method::GET || call.method == Method::HEAD;
    match path {
        "/v1/chat/completions" | "/v1/completions" => {
            if call.method != Method::POST {
                return Ok(not_allowed("POST"));
            }
            let endpoint = if path == "/v1/completions" { Endpoint::Completions } else { Endpoint::Chat };
            inference::serve(shared, call, endpoint, conn).await
        }
        "/sim/state" | "/sim/faults" => Ok(control::serve(shared, call)),
        "/health" | "/version" if get => {
            let on = if path == "/health" { On::Health } else { On::Version };
            let fault = call.fault(shared, |fault| fault.on == on);
            info::faulty(shared, path, fault, conn).await
        }
        _ if get && info::known(path) => Ok(info::serve(shared, path)),
        _ if info::known(path) => Ok(not_allowed("GET")),
        _ => Ok(unknown(path)),
    }
}

fn not_allowed(allow: &'static str) -> Response<SimBody> {
    let mut response = respond::detail(405, "Method Not Allowed");
    let allow = http::HeaderValue::from_static(allow);
    response.headers_mut().insert(http::header::ALLOW, allow);
    response
}

/// A known path with a slash at its end is redirected, any other is not there.
fn unknown(path: &str) -> Response<SimBody> {
    let trimmed = path.trim_end_matches('/');
    let known = matches!(trimmed, "/v1/chat/completions" | "/v1/completions") || info::known(trimmed);
    if !known || trimmed.len() + 1 != path.len() {
        return respond::detail(404, "Not Found");
    }
    let mut response = respond::answer(307, "", SimBody::whole(""));
    if let Ok(to) = http::HeaderValue::from_str(trimmed) {
        response.headers_mut().insert(http::header::LOCATION, to);
    }
    response
}
