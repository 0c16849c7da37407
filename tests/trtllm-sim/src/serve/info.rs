//! The endpoints that tell about the worker.

use super::respond;
use crate::faults::{Cut, CutAt, Fault, Hang};
use crate::http1::{Broken, Conn, SimBody};
use crate::json::{Value, text};
use crate::release::Generation;
use crate::shared::Shared;
use http::Response;

const PATHS: [&str; 8] = [
    "/health",
    "/health_generate",
    "/version",
    "/v1/models",
    "/server_info",
    "/metrics",
    "/perf_metrics",
    "/prometheus/metrics",
];

pub(super) fn known(path: &str) -> bool {
    PATHS.contains(&path)
}

pub(super) fn serve(shared: &Shared, path: &str) -> Response<SimBody> {
    match path {
        "/version" => {
            let version = Value::str(shared.config.release.as_str());
            respond::json(200, text(&Value::obj([("version", version)])))
        }
        "/v1/models" => respond::json(200, models(shared)),
        "/server_info" => respond::json(200, server_info(shared)),
        "/metrics" | "/perf_metrics" => respond::json(200, "[]"),
        "/prometheus/metrics" => respond::answer(200, respond::PLAIN, SimBody::whole("")),
        _ => respond::answer(200, "", SimBody::whole("")),
    }
}

/// The same, after the fault that was set for the path.
pub(super) async fn faulty(
    shared: &Shared,
    path: &str,
    fault: Option<Fault>,
    conn: &Conn,
) -> Result<Response<SimBody>, Broken> {
    let fault = fault.unwrap_or_default();
    tokio::time::sleep(fault.before_head).await;
    if fault.hang == Some(Hang::BeforeHead) {
        std::future::pending::<()>().await;
    }
    let mut response = match fault.status {
        Some(status) => {
            let body = fault.body.unwrap_or_else(|| "engine is not healthy".into());
            respond::answer(status, respond::PLAIN, SimBody::whole(body))
        }
        None => match (serve(shared, path), fault.reply) {
            (response, Some(reply)) => response.map(|_| SimBody::whole(reply)),
            (response, None) => response,
        },
    };
    match fault.cut {
        Some(Cut { at: CutAt::Head, how }) => {
            conn.end_with(how);
            return Err(Broken(how));
        }
        Some(Cut { at: CutAt::Body(bytes), how }) => {
            response = response.map(|body| body.cut_after(bytes, how));
        }
        _ => {}
    }
    respond::add_headers(&mut response, &fault.headers);
    Ok(response)
}

fn models(shared: &Shared) -> String {
    let model = Value::obj([
        ("id", Value::str(shared.config.model.as_str())),
        ("object", Value::str("model")),
        ("created", Value::int(super::inference::now())),
        ("owned_by", Value::str("tensorrt_llm")),
    ]);
    text(&Value::obj([("object", Value::str("list")), ("data", Value::Arr(vec![model]))]))
}

/// Here the endpoint is a list, while a context reply has it as a text.
fn server_info(shared: &Shared) -> String {
    let mut params = Vec::new();
    if shared.generation >= Generation::G1 {
        let endpoints = vec![Value::str(shared.endpoint.as_str())];
        params.push(("ctx_info_endpoint", Value::Arr(endpoints)));
    }
    text(&Value::obj([
        ("disaggregated_params", Value::obj(params)),
        ("max_batch_size", Value::int(2_048)),
        ("tokens_per_block", Value::int(32)),
    ]))
}
