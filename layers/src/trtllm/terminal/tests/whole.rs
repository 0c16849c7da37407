//! Answers to clients that do not stream.

use super::*;

#[test]
fn keeps_its_bytes_but_for_the_handoff() {
    let body = concat!(
        r#"{"id":"c", "choices":[ {"index":0,"message":{"content":"\ud83d","x":1.00},"finish_reason":"stop","#,
        r#""disaggregated_params":{"encoded_opaque_state":"b3BhcXVl"},"stop_reason":null} ],"prompt_token_ids":[1,2],"#,
        r#""prompt_token_ids_b64":null,"usage":{"prompt_tokens":3}}"#
    );
    let reply = parse(Endpoint::Chat, body).unwrap();
    assert_eq!(
        text(&terminal_whole(&reply)),
        concat!(
            r#"{"id":"c", "choices":[ {"index":0,"message":{"content":"\ud83d","x":1.00},"finish_reason":"stop","#,
            r#""stop_reason":null} ],"usage":{"prompt_tokens":3}}"#
        )
    );
    let nothing_to_remove = r#" {"choices":[{"finish_reason":"stop","text":""}] } "#;
    let reply = parse(Endpoint::Completions, nothing_to_remove).unwrap();
    assert_eq!(text(&terminal_whole(&reply)), nothing_to_remove);
}

#[test]
fn the_handoff_goes_however_it_is_spelt_and_however_often() {
    let stays = r#""mm_embedding_handle":{"h":1},"context_logits":[0.5]"#;
    for (of_choice, of_reply) in [
        (r#""disaggregated_params":{"a":"SECRET"}"#, r#""prompt_token_ids":["SECRET"]"#),
        (r#""disaggregated\u005fparams":{"a":"SECRET"}"#, r#""prompt\u005ftoken_ids":["SECRET"]"#),
        (r#""\u0064isaggregated_params":"SECRET""#, r#""prompt_token_ids\u005fb64":"SECRET""#),
        (
            r#""disaggregated_params":null,"disaggregated_para\u006ds":"SECRET","disaggregated_params":["SECRET"]"#,
            r#""prompt_token_ids":"SECRET","prompt_token_ids_b64":"SECRET","prompt_token_ids":null"#,
        ),
    ] {
        for endpoint in [Endpoint::Chat, Endpoint::Completions] {
            let body = format!(
                r#"{{{of_reply},"choices":[{{{of_choice},"finish_reason":"stop",{stays},{of_choice}}}],{of_reply}}}"#
            );
            let reply = parse(endpoint, &body).unwrap();
            let whole = text(&terminal_whole(&reply));
            assert_eq!(whole, format!(r#"{{"choices":[{{"finish_reason":"stop",{stays}}}]}}"#), "{body}");
            let stream = text(&terminal_stream(&streaming(endpoint, ""), &reply));
            assert!(!stream.contains("SECRET"), "{stream}");
        }
    }
}
