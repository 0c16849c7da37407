use bytes::Bytes;

use super::{Handoff, Minted, Open, Primed, Validated, Verdict};
use crate::{
    settle::Settler,
    trtllm::{ClientRequest, ContextReply, DisaggRequestId, Endpoint},
};

mod body;
mod stages;

const CANARY: &str = "CANARY-5f3a";
const REQUEST: &str = r#"{"model":"m","messages":[{"role":"user","content":"CANARY-5f3a"}]}"#;
const ID: u64 = 21_831_656_151_937_025;

fn validated() -> Handoff<Validated> {
    let request = ClientRequest::parse(Endpoint::Chat, Bytes::from_static(REQUEST.as_bytes())).unwrap();
    Handoff::validated(request, "prefill-0:8001".parse().unwrap())
}

fn minted() -> Handoff<Minted> {
    validated().mint(DisaggRequestId::new(ID).unwrap())
}

/// A context reply that ends the request (`stop`), or one that a generation leg has to follow (`length`).
fn reply(finish_reason: &str) -> ContextReply {
    let params = format!(
        r#"{{"request_type":"context_only","first_gen_tokens":[32],"ctx_request_id":{ID},"encoded_opaque_state":"{CANARY}","draft_tokens":null,"disagg_request_id":{ID},"ctx_dp_rank":0,"ctx_info_endpoint":"tcp://10.0.0.9:5555","schedule_style":0}}"#
    );
    let text = format!(
        r#"{{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"{CANARY}"}},"finish_reason":"{finish_reason}","disaggregated_params":{params}}}],"usage":{{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}},"prompt_token_ids":[1,2,3]}}"#
    );
    ContextReply::parse(Endpoint::Chat, text.into()).unwrap()
}

fn primed(finish_reason: &str, settler: &Settler) -> Handoff<Primed> {
    minted().prime_with(reply(finish_reason), settler.ticket())
}

fn open(settler: &Settler) -> Handoff<Open> {
    match primed("length", settler).judge() {
        Verdict::Generate(open) => open,
        Verdict::Terminal(_) => panic!("a generation leg is due"),
    }
}
