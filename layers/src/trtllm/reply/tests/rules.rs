//! Every rule of contract, section 3, "What a reply means", one row for each way to keep or break it. Status, content
//! type and coding are rules too: these are in the tests of the context layer, which sees them.

use serde_json::Value as Json;

use super::super::*;
use crate::trtllm::{ReplyErrorKind, fixtures::*};

/// What is done to a good reply.
enum Change {
    /// It is this body.
    Body(String),
    /// The value at this place has another text.
    At(&'static str, String),
    /// The member at this place is not there.
    Without(&'static str),
    /// The member at this place is there twice; the first time with this key (as it is spelt) and value.
    Twice(&'static str, &'static str, &'static str),
    /// Several of these, one after the other; a text that no tree of values holds comes last.
    All(Vec<Change>),
}

use Change::{All, At, Body, Twice, Without};

fn at(place: &'static str, text: &str) -> Change {
    At(place, text.to_owned())
}

/// What the reply then is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict<'a> {
    /// A handoff.
    Due,
    /// The whole answer.
    Ended,
    /// `context_aborted`; whether a cache may be held.
    Aborted(bool),
    /// `invalid_context_reply`, for this field.
    Not(&'a str),
}

use Verdict::{Aborted, Due, Ended, Not};

/// A text that is in no error.
const SECRET: &str = "SECRET";
/// Stands for a text that no tree of values holds.
const MARK: &str = "\"@mark@\"";

/// Where things are, and how errors call the place.
const CHOICES_AT: &str = "/choices";
const CHOICE_AT: &str = "/choices/0";
const FINISH_AT: &str = "/choices/0/finish_reason";
const PARAMS_AT: &str = "/choices/0/disaggregated_params";
const CTX_ID_AT: &str = "/choices/0/disaggregated_params/ctx_request_id";
const DISAGG_ID_AT: &str = "/choices/0/disaggregated_params/disagg_request_id";
const FIRST_AT: &str = "/choices/0/disaggregated_params/first_gen_tokens";
const STATE_AT: &str = "/choices/0/disaggregated_params/encoded_opaque_state";
const ENDPOINT_AT: &str = "/choices/0/disaggregated_params/ctx_info_endpoint";
const RANK_AT: &str = "/choices/0/disaggregated_params/ctx_dp_rank";
const IDS_AT: &str = "/prompt_token_ids";
const BASE64_AT: &str = "/prompt_token_ids_b64";
const IDS: &str = "prompt_token_ids";
const BASE64: &str = "prompt_token_ids_b64";

/// The rule by the row of the contract, what is done, and what a reply of chat and one of completions then is.
type Row = (&'static str, Change, Verdict<'static>, Verdict<'static>);

fn both(rule: &'static str, change: Change, verdict: Verdict<'static>) -> Row {
    (rule, change, verdict, verdict)
}

/// One rule, a place and its texts.
fn each(rule: &'static str, place: &'static str, texts: &[&str], verdict: Verdict<'static>) -> Vec<Row> {
    texts.iter().map(|text| both(rule, at(place, text), verdict)).collect()
}

fn good(endpoint: Endpoint) -> Json {
    match endpoint {
        Endpoint::Chat => chat_reply(),
        Endpoint::Completions => {
            // so that every place is there
            let mut reply = completions_reply();
            merge(&mut reply, serde_json::json!({"prompt_token_ids_b64": null}));
            reply
        }
    }
}

fn changed(reply: &str, change: &Change) -> String {
    let mut tree: Json = serde_json::from_str(reply).unwrap_or(Json::Null);
    let (parent, key) = match change {
        Body(text) => return text.clone(),
        All(changes) => {
            return changes.iter().fold(reply.to_owned(), |reply, change| changed(&reply, change));
        }
        At(place, _) | Without(place) | Twice(place, ..) => place.rsplit_once('/').unwrap(),
    };
    let parent = tree.pointer_mut(parent).unwrap();
    if let Without(_) = change {
        parent.as_object_mut().unwrap().remove(key).unwrap();
        return tree.to_string();
    }
    let mark: Json = serde_json::from_str(MARK).unwrap();
    let before = match parent {
        Json::Array(list) => std::mem::replace(&mut list[key.parse::<usize>().unwrap()], mark),
        parent => parent.as_object_mut().unwrap().insert(key.to_owned(), mark).unwrap_or_default(),
    };
    let text = tree.to_string();
    match change {
        At(_, value) => text.replace(MARK, value),
        Twice(_, spelt, value) => {
            text.replace(&format!("\"{key}\":{MARK}"), &format!("{spelt}:{value},\"{key}\":{before}"))
        }
        _ => unreachable!(),
    }
}

fn rows() -> Vec<Row> {
    let deep = |open: &str| open.repeat(200_000);
    let mut rows = vec![
        both("as it is", All(vec![]), Due),
        // === of the whole: body
        both("body", Body(String::new()), Not("")),
        both("body", Body(" \n".into()), Not("")),
        both("body", Body("null".into()), Not("")),
        both("body", Body("[]".into()), Not("")),
        both("body", Body("17".into()), Not("")),
        both("body", Body("true".into()), Not("")),
        both("body", Body(format!("\"{SECRET}\"")), Not("")),
        both("body", Body(SECRET.into()), Not("")),
        both("body", Body("{".into()), Not("")),
        both("body", Body(format!("{{\"{SECRET}\":{SECRET}}}")), Not("")),
        both("body", Body(format!("{{\"{SECRET}\\ud83d\":1}}")), Not("")),
        both("body", Body(deep("[")), Not("")),
        both("body", Body(format!("{{\"choices\":{}", deep("[{\"a\":"))), Not("")),
        both("body", Body(format!("data: {}\n\n", chat_reply())), Not("")),
        both("body", Body(format!("{}{{}}", chat_reply())), Not("")),
        both("body", Body(format!("\u{feff}{}", chat_reply())), Not("")),
        both("body", Body(chat_reply().to_string().trim_end_matches('}').to_owned()), Not("")),
        both("body, an error in it", Body(format!("{{\"error\":\"{SECRET}\"}}")), Not("error")),
        both("body, an error in it", Twice(CHOICES_AT, "\"error\"", "null"), Due),
        both("body, an error in it", Twice(CHOICES_AT, "\"error\"", "\"SECRET\""), Not("error")),
        both("body, an error in it", Twice(CHOICES_AT, "\"\\u0065rror\"", "{}"), Not("error")),
        both("body, an error in it", Twice(CHOICES_AT, "\"error\"", "1,\"error\":null"), Not("error")),
        both("body, an error in it", Twice(CHOICES_AT, "\"errors\"", "[1]"), Due),
        // === of the whole: choices
        both("choices", Body("{}".into()), Not(CHOICES)),
        both("choices", Without(CHOICES_AT), Not(CHOICES)),
        both("choices", Twice(CHOICES_AT, "\"choices\"", "[]"), Not(CHOICES)),
        both("choices", Twice(CHOICES_AT, "\"ch\\u006fices\"", "null"), Not(CHOICES)),
        both("choices", Twice("/usage", "\"Choices\"", "[]"), Due),
    ];
    rows.extend(each(
        "choices",
        CHOICES_AT,
        &["null", "\"SECRET\"", "{}", "{\"0\":{}}", "5", "[]", "[ ]", "[{},{}]"],
        Not(CHOICES),
    ));
    rows.extend(each("choices", CHOICE_AT, &["null", "[]", "\"SECRET\"", "5", "[{}]"], Not(CHOICE)));
    // === finish_reason
    rows.extend(each("due", FINISH_AT, &["\"length\"", "\"not_finished\"", "\"l\\u0065ngth\""], Due));
    rows.extend(each("null or absent", FINISH_AT, &["null"], Due));
    rows.extend(each(
        "terminal",
        FINISH_AT,
        &["\"stop\"", "\"tool_calls\"", "\"content_filter\"", "\"st\\u006fp\""],
        Ended,
    ));
    let gone = [
        "cancelled",
        "abort",
        "error",
        "timeout",
        "",
        "STOP",
        "Length",
        " stop",
        "function_call",
        "SECRET",
        "\\ud83d",
    ];
    for reason in gone {
        let reason = format!("\"{reason}\"");
        rows.push(both("aborted", at(FINISH_AT, &reason), Aborted(true)));
        // held or not by what the reply shows
        for nothing in [
            Without(PARAMS_AT),
            at(PARAMS_AT, "null"),
            at(PARAMS_AT, "[]"),
            at(CTX_ID_AT, "null"),
            Without(CTX_ID_AT),
        ] {
            rows.push(both("aborted", All(vec![nothing, at(FINISH_AT, &reason)]), Aborted(false)));
        }
        for some in [at(FIRST_AT, "[]"), at(CTX_ID_AT, "\"SECRET\""), at(IDS_AT, "null")] {
            rows.push(both("aborted", All(vec![some, at(FINISH_AT, &reason)]), Aborted(true)));
        }
    }
    rows.extend(each(
        "neither a string nor null",
        FINISH_AT,
        &["7", "true", "[]", "[\"stop\"]", "{\"SECRET\":1}", "0"],
        Not(FINISH),
    ));
    rows.extend([
        both("null or absent", Without(FINISH_AT), Due),
        both("null or absent", All(vec![Without(FINISH_AT), Without(PARAMS_AT)]), Not(PARAMS)),
        both("null or absent", All(vec![at(FINISH_AT, "null"), at(PARAMS_AT, "null")]), Not(PARAMS)),
        both("null or absent", All(vec![at(FINISH_AT, "null"), at(CTX_ID_AT, "null")]), Not(CTX_REQUEST_ID)),
        both("null or absent", All(vec![Without(FINISH_AT), at(FIRST_AT, "[]")]), Not(FIRST_GEN_TOKENS)),
        both("repeated", Twice(FINISH_AT, "\"finish_reason\"", "\"stop\""), Not(FINISH)),
        both("repeated", Twice(FINISH_AT, "\"finish_re\\u0061son\"", "null"), Not(FINISH)),
        both("terminal", All(vec![at(FINISH_AT, "\"stop\""), Without(PARAMS_AT)]), Ended),
        both("terminal", All(vec![at(FINISH_AT, "\"stop\""), at(PARAMS_AT, "null")]), Ended),
        both("terminal", All(vec![at(FINISH_AT, "\"stop\""), at(PARAMS_AT, "\"SECRET\"")]), Ended),
        both(
            "terminal",
            All(vec![
                at(FINISH_AT, "\"stop\""),
                at(CTX_ID_AT, "null"),
                at(DISAGG_ID_AT, "null"),
                at(FIRST_AT, "null"),
            ]),
            Ended,
        ),
        both("terminal", All(vec![at(FINISH_AT, "\"stop\""), Without(IDS_AT)]), Ended),
        both("terminal", All(vec![at(FINISH_AT, "\"stop\""), at(IDS_AT, "[]")]), Ended),
        // === of a handoff that is due: disaggregated_params
        both("disaggregated_params", Without(PARAMS_AT), Not(PARAMS)),
        both("disaggregated_params", at(PARAMS_AT, "{}"), Not(CTX_REQUEST_ID)),
        both("repeated", Twice(PARAMS_AT, "\"disaggregated_params\"", "{}"), Not(PARAMS)),
        both("repeated", Twice(PARAMS_AT, "\"disaggregated\\u005fparams\"", "null"), Not(PARAMS)),
        both("repeated", Twice(CTX_ID_AT, "\"ctx_request_id\"", "5"), Not(PARAMS)),
        both("repeated", Twice(RANK_AT, "\"ctx_dp_r\\u0061nk\"", "5"), Not(PARAMS)),
        both("repeated", Twice(RANK_AT, "\"future\"", "1,\"future\":1"), Not(PARAMS)),
    ]);
    rows.extend(each(
        "disaggregated_params",
        PARAMS_AT,
        &["null", "\"SECRET\"", "[]", "[{}]", "5", "true"],
        Not(PARAMS),
    ));
    // === ids
    let no_ids = [
        "\"7\"",
        "\"SECRET\"",
        "1.5",
        "7.0",
        "1e18",
        "-1",
        "true",
        "[7]",
        "{}",
        "18446744073709551616",
        "340282366920938463463374607431768211456",
    ];
    let ids = [
        "0",
        "-0",
        "7",
        "9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
    ];
    rows.extend(each("ctx_request_id", CTX_ID_AT, &no_ids, Not(CTX_REQUEST_ID)));
    rows.extend(each("ctx_request_id", CTX_ID_AT, &["null"], Not(CTX_REQUEST_ID)));
    rows.extend(each("ctx_request_id", CTX_ID_AT, &ids, Due));
    rows.push(both("ctx_request_id", Without(CTX_ID_AT), Not(CTX_REQUEST_ID)));
    rows.extend(each("disagg_request_id", DISAGG_ID_AT, &no_ids, Not(DISAGG_REQUEST_ID)));
    rows.extend(each("disagg_request_id, another, or none", DISAGG_ID_AT, &ids, Due));
    rows.extend(each("disagg_request_id, another, or none", DISAGG_ID_AT, &["null"], Due));
    rows.push(both("disagg_request_id, another, or none", Without(DISAGG_ID_AT), Due));
    // === first_gen_tokens
    let no_list = [
        "5",
        "{}",
        "\"5\"",
        "true",
        "[\"SECRET\"]",
        "[5.0]",
        "[1e3]",
        "[true]",
        "[null]",
        "[[5]]",
        "[{}]",
        "[1,\"2\"]",
        "[9999999999999999999]",
    ];
    rows.extend(each("first_gen_tokens", FIRST_AT, &no_list, Not(FIRST_GEN_TOKENS)));
    rows.extend(each(
        "first_gen_tokens",
        FIRST_AT,
        &["null", "[]", "[ ]", "[-1]", "[1,-2]"],
        Not(FIRST_GEN_TOKENS),
    ));
    rows.extend(each("first_gen_tokens", FIRST_AT, &["[0]", "[ 1 ,\n2 ]", "[999999999999999999]"], Due));
    rows.push(both("first_gen_tokens", Without(FIRST_AT), Not(FIRST_GEN_TOKENS)));
    // === state and endpoint
    let no_string = ["5", "0", "true", "[]", "{}", "[\"SECRET\"]"];
    rows.extend(each("state and endpoint", STATE_AT, &no_string, Not(OPAQUE_STATE)));
    rows.extend(each("state and endpoint", ENDPOINT_AT, &no_string, Not(INFO_ENDPOINT)));
    rows.extend(each("state and endpoint", STATE_AT, &["null", "\"\"", "\"!!\"", "\"\\u0041\""], Due));
    rows.extend(each("state and endpoint", ENDPOINT_AT, &["null", "\"\"", "\"SECRET\""], Due));
    for none in ["null", "\"\""] {
        for nothing in [at(ENDPOINT_AT, "null"), at(ENDPOINT_AT, "\"\""), Without(ENDPOINT_AT)] {
            rows.push(both("state and endpoint", All(vec![at(STATE_AT, none), nothing]), Not(OPAQUE_STATE)));
        }
    }
    rows.extend([
        both("state and endpoint", Without(STATE_AT), Due),
        both("state and endpoint", Without(ENDPOINT_AT), Due),
        both("state and endpoint", All(vec![Without(STATE_AT), Without(ENDPOINT_AT)]), Not(OPAQUE_STATE)),
        // === prompt_token_ids
        both("prompt_token_ids", Twice(IDS_AT, "\"prompt_token_ids\"", "[1]"), Not(IDS)),
        both("prompt_token_ids", Twice(IDS_AT, "\"prompt\\u005ftoken_ids\"", "null"), Not(IDS)),
        both("prompt_token_ids", Twice(BASE64_AT, "\"prompt_token_ids_b64\"", "null"), Not(BASE64)),
        ("prompt_token_ids, absent", Without(IDS_AT), Due, Not(IDS)),
        ("prompt_token_ids, absent", at(IDS_AT, "null"), Due, Not(IDS)),
        ("prompt_token_ids, nested", at(IDS_AT, "[[1,2]]"), Not(IDS), Due),
        ("prompt_token_ids, nested", at(IDS_AT, "[ [ 1 ]\n]"), Not(IDS), Due),
        // the other form is an alternative on chat only, and the list is what counts when there are both
        ("prompt_token_ids_b64", All(vec![at(IDS_AT, "null"), at(BASE64_AT, "\"AQAAAA==\"")]), Due, Not(IDS)),
        ("prompt_token_ids_b64", All(vec![Without(IDS_AT), at(BASE64_AT, "\"\"")]), Not(BASE64), Not(IDS)),
        ("prompt_token_ids_b64", All(vec![Without(IDS_AT), at(BASE64_AT, "[1]")]), Not(BASE64), Not(IDS)),
        ("prompt_token_ids_b64", All(vec![Without(IDS_AT), at(BASE64_AT, "5")]), Not(BASE64), Not(IDS)),
        both("prompt_token_ids_b64", at(BASE64_AT, "5"), Due),
        both("other members", Twice("/usage", "\"usage\"", "null"), Due),
        both("other members", Without("/usage"), Due),
        both("other members", at("/usage", "\"SECRET\""), Due),
        both("other members", Without("/id"), Due),
        both("other members", at(RANK_AT, "\"SECRET\""), Due),
    ]);
    rows.extend(each("prompt_token_ids", IDS_AT, &["[0]", "[-1]", "[1 ,\n2]"], Due));
    let no_prompt = [
        "[]",
        "[[]]",
        "[[1],[2]]",
        "[[1],2]",
        "[1,[2]]",
        "[[[1]]]",
        "[[\"1\"]]",
        "[\"SECRET\"]",
        "[1.5]",
        "[true]",
        "[null]",
        "{}",
        "\"SECRET\"",
        "5",
        "[9999999999999999999]",
    ];
    rows.extend(each("prompt_token_ids", IDS_AT, &no_prompt, Not(IDS)));
    rows
}

#[test]
fn every_rule() {
    for (rule, change, chat, completions) in rows() {
        for (endpoint, verdict) in [(Endpoint::Chat, chat), (Endpoint::Completions, completions)] {
            let body = changed(&good(endpoint).to_string(), &change);
            let shown: String = body.chars().take(1200).collect();
            let read = ContextReply::parse(endpoint, Bytes::from(body));
            let found = match &read {
                Ok(reply) if reply.due() == super::super::Due::Generation => Due,
                Ok(_) => Ended,
                Err(error) => match error.kind() {
                    ReplyErrorKind::Aborted => {
                        assert_eq!(error.field(), FINISH, "{rule}: {shown}");
                        Aborted(error.may_hold_cache())
                    }
                    ReplyErrorKind::NotUsable => {
                        assert!(error.may_hold_cache());
                        Not(error.field())
                    }
                },
            };
            assert!(found == verdict, "{rule}, {endpoint:?}: {found:?} and not {verdict:?}: {shown}");
            // which field, why, and nothing of the reply
            let (text, debug) = match &read {
                Ok(reply) => (String::new(), format!("{reply:?}")),
                Err(error) => {
                    let text = error.to_string();
                    let named = if error.field().is_empty() {
                        "the body".into()
                    } else {
                        format!("`{}`", error.field())
                    };
                    assert!(text.starts_with(&named) && text.contains(error.reason()), "{text}");
                    assert!(error.reason().len() > 5, "{text}");
                    (text, format!("{error:?}"))
                }
            };
            for internal in [SECRET, "AAEC", "10.0.0.5", "4321"] {
                assert!(!text.contains(internal) && !debug.contains(internal), "{rule}: {text} {debug}");
            }
        }
    }
}

#[test]
fn bytes_that_are_no_text() {
    for bad in [&b"{\"a\":\"\xff\"}"[..], b"\x1f\x8b\x08\x00", b"\xff\xfe{\x00}\x00", b"{\x00}\x00"] {
        let error = ContextReply::parse(Endpoint::Chat, Bytes::copy_from_slice(bad)).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ReplyErrorKind::NotUsable, ""));
    }
}
