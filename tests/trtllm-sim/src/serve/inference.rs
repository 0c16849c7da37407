//! A chat or completions request, from validation to the right kind of work.

use super::respond;
use super::route::Call;
use super::work::{Phase, Work};
use super::{context, generate};
use crate::conversation;
use crate::faults::{Cut, CutAt, Fault, Hang, On};
use crate::http1::{Broken, Conn, SimBody};
use crate::schema::{self, Ask, Endpoint, Fail, RequestType};
use crate::shared::Shared;
use http::Response;
use http::header::CONTENT_TYPE;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// How a request's work ended.
pub(super) type Outcome = Result<Response<SimBody>, Fail>;

/// Seconds since the epoch.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

pub(super) async fn serve(
    shared: &Arc<Shared>,
    call: &Call,
    endpoint: Endpoint,
    conn: &Conn,
) -> Result<Response<SimBody>, Broken> {
    let content_type = call.header(CONTENT_TYPE.as_str());
    let asked = schema::ask(endpoint, shared.generation, content_type, &call.body);
    let kind = asked.as_ref().ok().map(kind);
    let fault = call.fault(shared, |fault| applies(fault, kind));
    let fault = fault.unwrap_or_default();
    let mut work = Work::new(
        shared,
        match kind {
            Some(RequestType::Context) => Phase::Context,
            _ => Phase::Generation,
        },
    );
    // Registered before any wait, so that a second request with the same id shows.
    let begun = match asked {
        Ok(ask) => begin(shared, call, ask, &fault, &mut work),
        Err(fail) => Err(fail),
    };
    tokio::time::sleep(fault.before_head).await;
    if fault.hang == Some(Hang::BeforeHead) {
        std::future::pending::<()>().await;
    }
    if let Some(Cut { at: CutAt::Head, how }) = fault.cut {
        work.done();
        conn.end_with(how);
        return Err(Broken(how));
    }
    if let Some(status) = fault.status {
        work.done();
        return Ok(fixed(status, &fault));
    }
    let outcome = match begun {
        Ok((ask, kind)) => {
            let headers = || conversation::in_headers(shared.generation, &call.headers);
            let conversation = ask.conversation.clone().or_else(headers);
            let rank = shared.place(call.number, conversation);
            match kind {
                RequestType::Context => context::run(shared, ask, rank, &fault, work).await,
                _ => generate::run(shared, ask, &fault, work).await,
            }
        }
        Err(fail) => {
            work.done();
            Err(fail)
        }
    };
    let mut response = outcome.unwrap_or_else(|fail| {
        shared.refused(&fail.reason());
        respond::failed(&fail)
    });
    respond::add_headers(&mut response, &fault.headers);
    if let Some(Cut { at: CutAt::Body(bytes), how }) = fault.cut {
        response = response.map(|body| body.cut_after(bytes, how));
    }
    Ok(response)
}

fn kind(ask: &Ask) -> RequestType {
    ask.params.as_ref().map_or(RequestType::Both, |params| params.request_type)
}

/// Whether a fault is for a request of this kind; a request that cannot be
/// read is of none, and only meets faults for any.
fn applies(fault: &Fault, kind: Option<RequestType>) -> bool {
    let of_connection = |cut: Cut| matches!(cut.at, CutAt::Accept | CutAt::Reuse);
    if fault.cut.is_some_and(of_connection) {
        return false;
    }
    match fault.on {
        On::Any => true,
        On::Context => kind == Some(RequestType::Context),
        On::Generation => kind == Some(RequestType::Generation),
        On::Aggregated => kind == Some(RequestType::Both),
        On::Health | On::Version => false,
    }
}

/// The checks that come before any work, and the registration of a context request.
fn begin(
    shared: &Arc<Shared>,
    call: &Call,
    ask: Ask,
    fault: &Fault,
    work: &mut Work,
) -> Result<(Ask, RequestType), Fail> {
    let kind = kind(&ask);
    let Some(params) = &ask.params else {
        return Ok((ask, kind));
    };
    if kind == RequestType::Both {
        return Ok((ask, kind));
    }
    if params.schedule_style == Some(1) {
        return Err(Fail::Engine("generation-first scheduling is not simulated".into()));
    }
    if ask.prompts.len() != 1 || ask.n != 1 {
        return Err(Fail::Engine("a disaggregated request has one prompt and one answer".into()));
    }
    if kind == RequestType::Context {
        context::begin(shared, &ask, fault, work)?;
    } else {
        generate::begin(shared, call, params)?;
    }
    Ok((ask, kind))
}

fn fixed(status: u16, fault: &Fault) -> Response<SimBody> {
    let kind = if status < 500 { "BadRequestError" } else { "InternalServerError" };
    let body = fault.body.clone();
    let body = body.unwrap_or_else(|| respond::error_object(status, kind, "a fault was asked for"));
    let mut response = respond::json(status, body);
    respond::add_headers(&mut response, &fault.headers);
    response
}
