//! Generation: the KV first, then token after token.

use super::context::{edited, silent};
use super::inference::{Outcome, now};
use super::respond;
use super::route::Call;
use super::stream::{Pace, Writer};
use super::work::{Phase, Work};
use crate::answer::plan;
use crate::answer::tokens;
use crate::auth;
use crate::config::Role;
use crate::faults::{Fault, Hang};
use crate::http1::SimBody;
use crate::kv::{self, Pull};
use crate::release::Generation;
use crate::reply::{self, Job};
use crate::schema::ask::Params;
use crate::schema::{Ask, Fail, RequestType};
use crate::shared::Shared;
use std::sync::Arc;

/// What can be refused before any work.
pub(super) fn begin(shared: &Shared, call: &Call, params: &Params) -> Result<(), Fail> {
    if shared.config.role == Role::Context {
        return Err(Fail::Engine(
            "this worker has the role context and takes no generation_only request".into(),
        ));
    }
    let header = call.header("x-trtllm-disagg-auth");
    let valid = |key: &String| auth::valid(key, &params.raw, header);
    if shared.generation >= Generation::G3 && !shared.auth_keys().accept(valid) {
        return Err(Fail::Engine("the internal authentication header is missing or wrong".into()));
    }
    // The real schema takes an empty list; an engine has nothing to start from.
    if params.first_gen_tokens.is_empty() {
        return Err(Fail::Engine("first_gen_tokens has no token".into()));
    }
    shared.counts.generation_requests.add(1);
    Ok(())
}

/// Serves a generation or aggregated request.
pub(super) async fn run(shared: &Arc<Shared>, ask: Ask, fault: &Fault, mut work: Work) -> Outcome {
    let config = &shared.config;
    let pulled = needs_kv(&ask);
    let late = ask.stream && config.head_first && pulled;
    if pulled && !late {
        work.enters(Phase::Transfer);
        let fetched = fetch(shared, &ask).await;
        work.enters(Phase::Generation);
        if let Err(reason) = fetched {
            work.done();
            return Err(Fail::Engine(reason));
        }
    } else if !pulled {
        let count: usize = ask.prompts.iter().map(Vec::len).sum();
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        tokio::time::sleep(config.prefill_per_token.saturating_mul(count)).await;
    }
    let job = job(shared, ask, fault);
    let pace = Pace {
        first: fault.before_first_token,
        gap: fault.token_gap.unwrap_or(config.token_gap),
        coalesce: config.coalesce,
    };
    if job.ask.stream {
        let mut writer = Writer::new(shared, job, pace, fault, work);
        writer.late = late;
        let body = SimBody::stream(!config.coalesce, |sender| writer.run(sender));
        return Ok(respond::answer(200, respond::EVENTS, body));
    }
    if fault.hang.is_some_and(|hang| hang != Hang::BeforeHead) {
        work.done();
        return Ok(silent());
    }
    let tokens = job.plans.iter().map(|plan| plan.pieces.len()).max();
    let gaps = u32::try_from(tokens.unwrap_or(1).saturating_sub(1)).unwrap_or(u32::MAX);
    let all = pace.first.saturating_add(pace.gap.saturating_mul(gaps));
    tokio::time::sleep(all).await;
    if fault.error_after_tokens.is_some() {
        work.done();
        return Err(Fail::Engine("the engine failed".into()));
    }
    let reply = edited(reply::whole(&job), fault);
    work.done();
    Ok(respond::json(200, reply?))
}

fn needs_kv(ask: &Ask) -> bool {
    ask.params.as_ref().is_some_and(|params| params.request_type == RequestType::Generation)
}

/// Pulls the KV of a generation request.
pub(super) async fn fetch(shared: &Shared, ask: &Ask) -> Result<(), String> {
    let (Some(params), Some(prompt)) = (&ask.params, ask.prompts.first()) else {
        return Err("no prompt".into());
    };
    let request = Pull {
        disagg_request_id: params.disagg_request_id,
        ctx_request_id: params.ctx_request_id,
        nonce: None,
        fingerprint: tokens::fingerprint(prompt),
    };
    let fetched = kv::pull(
        request,
        params.ctx_info_endpoint.as_deref(),
        params.opaque_state.as_deref(),
        shared.config.transfer_timeout + shared.config.kv_transfer,
    );
    let fetched = fetched.await;
    let counts = &shared.counts;
    match &fetched {
        Ok(()) => counts.fetched.add(1),
        Err(_) => counts.failed_fetches.add(1),
    }
    fetched.map_err(|reason| format!("the KV transfer failed: {reason}"))
}

fn job(shared: &Shared, ask: Ask, fault: &Fault) -> Job {
    let params = ask.params.as_ref();
    let generation_only = needs_kv(&ask);
    let replay = match params {
        Some(params) if generation_only => params.first_gen_tokens.as_slice(),
        _ => &[],
    };
    let plans = ask.prompts.iter().flat_map(|prompt| {
        let mut plan = plan(prompt, &ask.want, shared.config.tokens, replay);
        if fault.eos && !generation_only {
            plan.end_at_once();
        }
        fault.dress(&mut plan);
        std::iter::repeat_n(Arc::new(plan), ask.n)
    });
    let plans = plans.collect();
    let prompt: usize = ask.prompts.iter().map(Vec::len).sum();
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let (prompt_tokens, cached_tokens) = match params.and_then(|params| params.ctx_usage) {
        Some(usage) if generation_only => usage,
        // Whatever was pulled looks like a cache hit to this worker.
        None if generation_only => (count(prompt), count(prompt)),
        _ => (count(prompt), count(prompt / 4)),
    };
    let shows_state = generation_only && shared.config.internal_state;
    let echoed = params.filter(|_| shows_state).map(|params| {
        let given: Vec<(&str, _)> = match &params.raw {
            crate::json::Value::Obj(members) => {
                members.iter().map(|(name, value)| (name.as_str(), value.clone())).collect()
            }
            _ => Vec::new(),
        };
        reply::handoff(shared.generation, &given)
    });
    let replayed = params.filter(|_| generation_only).map(|params| {
        let first = params.first_gen_log_probs.as_ref();
        first.and_then(|list| list.first().copied()).filter(|l| l.is_finite())
    });
    Job {
        generation: shared.generation,
        number: shared.counts.replies.next(),
        created: now(),
        plans,
        prompt_tokens,
        cached_tokens,
        params: echoed,
        prompt_ids: shows_state,
        replayed,
        ask,
    }
}
