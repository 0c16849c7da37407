use super::*;
use crate::json::text;

#[test]
fn each_generation_dumps_its_own_keys_in_order() {
    let start = r#"{"request_type":"context_only","first_gen_tokens":[5],"#;
    let table = [
        (Generation::G0, r#""ctx_request_id":null,"encoded_opaque_state":null,"draft_tokens":null}"#),
        (
            Generation::G1,
            r#""ctx_request_id":null,"encoded_opaque_state":null,"draft_tokens":null,"disagg_request_id":null,"ctx_dp_rank":null,"ctx_info_endpoint":null,"schedule_style":null}"#,
        ),
        (
            Generation::G2Early,
            r#""first_gen_log_probs":null,"first_gen_logits":null,"ctx_request_id":null,"encoded_opaque_state":null,"draft_tokens":null,"disagg_request_id":null,"ctx_dp_rank":null,"ctx_info_endpoint":null,"schedule_style":null,"conversation_id":null}"#,
        ),
        (
            Generation::G2Late,
            r#""first_gen_log_probs":null,"first_gen_logits":null,"ctx_request_id":null,"encoded_opaque_state":null,"draft_tokens":null,"disagg_request_id":null,"ctx_dp_rank":null,"ctx_info_endpoint":null,"schedule_style":null,"conversation_id":null,"ctx_usage":null}"#,
        ),
        (
            Generation::G3,
            r#""first_gen_log_probs":null,"first_gen_logits":null,"ctx_request_id":null,"encoded_opaque_state":null,"draft_tokens":null,"disagg_request_id":null,"ctx_dp_rank":null,"ctx_info_endpoint":null,"schedule_style":null,"conversation_id":null,"ctx_usage":null,"return_prompt_token_ids_b64":false}"#,
        ),
        (
            Generation::G4,
            r#""first_gen_log_probs":null,"first_gen_logits":null,"ctx_request_id":null,"encoded_opaque_state":null,"draft_tokens":null,"disagg_request_id":null,"ctx_dp_rank":null,"ctx_info_endpoint":null,"schedule_style":null,"ctx_usage":null,"return_prompt_token_ids_b64":false,"resolved_thinking":null}"#,
        ),
    ];
    let given = [
        ("first_gen_tokens", Value::ints(&[5])),
        ("request_type", Value::str("context_only")),
        ("unheard_of", Value::Null),
    ];
    for (generation, rest) in table {
        assert_eq!(text(&handoff(generation, &given)), format!("{start}{rest}"), "{generation}");
    }
}
