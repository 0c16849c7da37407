//! The context step: one token, and KV that waits to be fetched.

use super::inference::{Outcome, now};
use super::respond;
use super::stream::{Pace, Writer};
use super::work::Work;
use crate::answer::{END_OF_ANSWER, Finish, Plan, plan, tokens};
use crate::config::Role;
use crate::faults::{Fault, Hang};
use crate::http1::SimBody;
use crate::json::{self, Value};
use crate::kv::{Entry, Opaque};
use crate::release::Generation;
use crate::reply::{self, Job};
use crate::schema::{Ask, Fail};
use crate::shared::Shared;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::sync::Arc;
use std::time::Instant;

/// Registers the request's KV, so that its id is taken from now on.
pub(super) fn begin(shared: &Arc<Shared>, ask: &Ask, fault: &Fault, work: &mut Work) -> Result<(), Fail> {
    if shared.config.role == Role::Generation {
        return Err(Fail::Engine(
            "this worker has the role generation and takes no context_only request".into(),
        ));
    }
    let (Some(params), Some(prompt)) = (&ask.params, ask.prompts.first()) else {
        return Err(Fail::Engine("no prompt".into()));
    };
    // Ids of the worker itself are small.
    let global = fault.register_id.or(params.disagg_request_id);
    let id = match global {
        Some(id) => id,
        None => i64::try_from(shared.counts.local_ids.next()).unwrap_or(i64::MAX),
    };
    let entry = Entry::new(id, global.is_some(), tokens::fingerprint(prompt), prompt.len());
    if !shared.kv().begin(id, entry) {
        shared.counts.duplicate_ids.add(1);
        eprintln!("trtllm-sim: request id {id} is in use already: the sender repeats ids");
        return Err(Fail::Engine(format!("request id {id} is in use already")));
    }
    shared.counts.context_requests.add(1);
    work.holds(id);
    Ok(())
}

/// Does the step and answers.
pub(super) async fn run(
    shared: &Arc<Shared>,
    ask: Ask,
    rank: usize,
    fault: &Fault,
    mut work: Work,
) -> Outcome {
    let prompt = ask.prompts.first().map(Vec::as_slice).unwrap_or_default();
    let count = u32::try_from(prompt.len()).unwrap_or(u32::MAX);
    tokio::time::sleep(shared.config.prefill_per_token.saturating_mul(count)).await;
    tokio::time::sleep(fault.before_first_token).await;

    let mut whole = plan(prompt, &ask.want, shared.config.tokens, &[]);
    let eos = fault.eos || shared.config.eos_in_context;
    if eos {
        whole.end_at_once();
    }
    fault.dress(&mut whole);
    let (plan, terminal) = step(whole, shared.config.whole_in_context);
    let first: Vec<i64> =
        if eos { vec![END_OF_ANSWER] } else { plan.pieces.iter().map(|piece| piece.id).collect() };
    let mut given =
        vec![("request_type", Value::str("context_only")), ("first_gen_tokens", Value::ints(&first))];
    if ask.logprobs.is_some() && !eos {
        let logprobs = first.iter().map(|id| Value::Float(tokens::logprob(*id)));
        given.push(("first_gen_log_probs", Value::Arr(logprobs.collect())));
    }
    if let Some(style) = ask.params.as_ref().and_then(|p| p.schedule_style) {
        given.push(("schedule_style", Value::int(style)));
    }
    if ask.want.mode == crate::answer::Mode::Reasoning {
        given.push(("resolved_thinking", Value::Bool(true)));
    }
    if let Some(params) = &ask.params {
        given.push(("return_prompt_token_ids_b64", Value::Bool(params.ids_in_base64)));
    }
    if terminal {
        shared.counts.terminal.add(1);
    } else if let Some(id) = work.kv() {
        hold(shared, id, rank, &mut given);
    }
    let job = Job {
        generation: shared.generation,
        number: shared.counts.replies.next(),
        created: now(),
        prompt_tokens: i64::try_from(prompt.len()).unwrap_or(i64::MAX),
        cached_tokens: i64::try_from(prompt.len() / 4).unwrap_or(i64::MAX),
        params: Some(reply::handoff(shared.generation, &given)),
        prompt_ids: true,
        replayed: None,
        plans: vec![Arc::new(plan)],
        ask,
    };
    if job.ask.stream {
        // A context step that is asked to stream does so, and its handoff is lost.
        work.keep();
        let pace = Pace::default();
        let writer = Writer::new(shared, job, pace, fault, work);
        let body = SimBody::stream(true, |sender| writer.run(sender));
        return Ok(respond::answer(200, respond::EVENTS, body));
    }
    let reply = edited(reply::whole(&job), fault)?;
    if !terminal {
        // From here on the KV stays when the request goes.
        work.keep();
    }
    work.done();
    Ok(match fault.hang {
        Some(Hang::AfterHead | Hang::AfterTokens(_)) => silent(),
        _ => respond::json(200, reply),
    })
}

/// The part of an answer that the context step makes, and whether it is all.
fn step(mut whole: Plan, at_once: bool) -> (Plan, bool) {
    if whole.finish != Finish::Length && (at_once || whole.pieces.len() == 1) {
        return (whole, true);
    }
    whole.pieces.truncate(1);
    whole.finish = Finish::Length;
    whole.stop_reason = None;
    (whole, false)
}

/// Holds the KV and says how to get at it.
fn hold(shared: &Arc<Shared>, id: i64, rank: usize, given: &mut Vec<(&'static str, Value)>) {
    let config = &shared.config;
    let nonce = Opaque::nonce();
    given.push(("ctx_request_id", Value::int(id)));
    given.push(("disagg_request_id", Value::int(id)));
    given.push(("ctx_dp_rank", Value::int(rank as u64)));
    // Before G1 there is only the opaque state to carry the endpoint.
    if config.info_endpoint && shared.generation >= Generation::G1 {
        given.push(("ctx_info_endpoint", Value::str(shared.endpoint.as_str())));
    }
    if config.opaque_state {
        let opaque = Opaque { endpoint: shared.endpoint.clone(), nonce: nonce.clone() };
        let state = STANDARD.encode(opaque.encode(config.opaque_bytes));
        given.push(("encoded_opaque_state", Value::Str(state)));
    }
    let nonce = config.opaque_state.then_some(nonce);
    let mut kv = shared.kv();
    kv.commit(id, nonce, Instant::now(), config.transfer_timeout);
}

/// The reply's bytes, as the fault wants them.
pub(super) fn edited(mut reply: Value, fault: &Fault) -> Result<String, Fail> {
    if let Some(text) = &fault.reply {
        return Ok(text.clone());
    }
    let wrong = |error: String| Fail::Engine(format!("fault: {error}"));
    for (pointer, value) in &fault.set {
        let value = json::read(value).map_err(|error| wrong(format!("{error:?}")))?;
        reply.set(pointer, value).map_err(wrong)?;
    }
    for pointer in &fault.remove {
        reply.remove(pointer).map_err(wrong)?;
    }
    // The worker's encoder refuses such numbers when all work is done.
    if reply.has_non_finite() {
        return Err(Fail::Engine("Out of range float values are not JSON compliant".into()));
    }
    Ok(json::text(&reply))
}

/// A head, and then nothing.
pub(super) fn silent() -> http::Response<SimBody> {
    let body = SimBody::stream(true, |sender| async move {
        // The sender is kept, so the body does not end.
        let _sender = sender;
        std::future::pending::<()>().await;
    });
    respond::answer(200, respond::JSON, body)
}
