//! The client's answer when the context step was all (contract, section 4, "Terminal answers").

use bytes::Bytes;
use tower_disagg::trtllm::{ClientRequest, ContextReply, Endpoint, terminal_stream, terminal_whole};

use super::verdict::choice;
use crate::{
    cleaning::assert_clean,
    oracle::{
        json::{Doc, Json, Kind},
        sse::events,
    },
    splitter::is_readable,
};

const INTERNAL: [&str; 3] = ["disaggregated_params", "prompt_token_ids", "prompt_token_ids_b64"];

pub(super) fn check(reply: &ContextReply, json: Json<'_>) {
    let whole = terminal_whole(reply).to_bytes();
    assert_clean(json, &whole);
    assert_keeps_secret(json, &whole);
    for (usage, options) in [("", false), (r#","stream_options":{}"#, true)] {
        let body = format!(r#"{{"model":"asked","messages":[],"prompt":"a","stream":true{usage}}}"#);
        let client = ClientRequest::parse(reply.endpoint(), Bytes::from(body)).unwrap();
        let text = terminal_stream(&client, reply).to_bytes();
        stream(reply.endpoint(), json, &text, options);
        assert_keeps_secret(json, &text);
    }
}

/// What the reply holds as opaque state, and nowhere else, is not in the answer.
fn assert_keeps_secret(reply: Json<'_>, answer: &[u8]) {
    let state = choice(reply).and_then(|choice| choice.last("disaggregated_params"));
    let state = state.and_then(|params| params.last("encoded_opaque_state"));
    let Some(state) = state.filter(|state| state.kind() == Kind::String && state.raw().len() > 8) else {
        return;
    };
    let answer = String::from_utf8_lossy(answer);
    let inside = state.raw().trim_matches('"');
    if reply.raw().matches(inside).count() == 1 {
        assert!(!answer.contains(inside), "the opaque state is shown");
    }
}

fn stream(endpoint: Endpoint, reply: Json<'_>, text: &[u8], with_usage: bool) {
    let events = events(text);
    assert!(events.unfinished.is_none() && text.ends_with(b"\n\n"));
    let Some((b"[DONE]", chunks)) = events.data.split_last().map(|(last, chunks)| (&last[..], chunks)) else {
        panic!("the stream ends with [DONE]")
    };
    let lines = text.split(|byte| *byte == b'\n' || *byte == b'\r').count() - 1;
    assert_eq!(lines, 2 * events.data.len(), "an event is one line of data and an empty line");
    let docs: Vec<_> = chunks.iter().map(|chunk| Doc::parse(chunk).expect("a chunk is JSON")).collect();
    let chunks: Vec<_> = docs.iter().map(Doc::root).collect();
    let (usage, chunks): (Vec<_>, Vec<_>) = chunks
        .into_iter()
        .partition(|chunk| chunk.last("choices").is_some_and(|choices| choices.raw() == "[]"));

    let expected = present(reply, "usage").filter(|_| with_usage).map(one_line);
    let usage: Vec<_> =
        usage.iter().map(|chunk| chunk.last("usage").map(|usage| usage.raw().to_owned())).collect();
    assert_eq!(usage, Vec::from_iter(expected.map(Some)), "the usage comes when it was asked for, and once");

    let choices: Vec<_> = chunks.iter().map(|chunk| head(endpoint, reply, *chunk)).collect();
    let (last, others) = choices.split_last().expect("a chunk");
    let source = choice(reply).expect("one choice");
    let finish = source.last("finish_reason").expect("a reason").raw();
    assert_eq!(last.last("finish_reason").map(Json::raw), Some(finish));
    assert!(others.iter().all(|choice| choice.last("finish_reason").is_none_or(Json::is_null)));
    assert_eq!(gathered(&choices, "logprobs"), Vec::from_iter(present(source, "logprobs").map(one_line)));
    assert_eq!(
        gathered(&choices, "stop_reason"),
        Vec::from_iter(present(source, "stop_reason").map(one_line))
    );
    match endpoint {
        Endpoint::Completions => {
            assert_eq!(said(&choices, "text"), Vec::from_iter(string(source, "text").map(Json::raw)));
        }
        Endpoint::Chat => chat(source, &choices),
    }
}

/// What all chunks have alike; the chunk's choice.
fn head<'a>(endpoint: Endpoint, reply: Json<'_>, chunk: Json<'a>) -> Json<'a> {
    let object = match endpoint {
        Endpoint::Chat => r#""chat.completion.chunk""#,
        Endpoint::Completions => r#""text_completion""#,
    };
    let of_kind = |key: &str, kind: Kind, otherwise: &'static str| {
        reply.last(key).filter(|value| value.kind() == kind).map_or(otherwise.to_owned(), one_line)
    };
    let model = of_kind("model", Kind::String, r#""asked""#);
    for (key, expected) in [
        ("id", of_kind("id", Kind::String, r#""""#)),
        ("created", of_kind("created", Kind::Number, "0")),
        ("model", model),
        ("object", object.to_owned()),
    ] {
        let [value] = chunk.named(key)[..] else { panic!("{key} is there once") };
        assert_eq!(value.raw(), expected, "{key}");
    }
    let [choices] = chunk.named("choices")[..] else { panic!("choices are there once") };
    let [choice] = choices.children().collect::<Vec<_>>()[..] else { panic!("one choice") };
    for key in INTERNAL {
        assert!(chunk.named(key).is_empty() && choice.named(key).is_empty(), "{key} is shown");
    }
    choice
}

fn chat(source: Json<'_>, choices: &[Json<'_>]) {
    let deltas: Vec<_> = choices.iter().map(|choice| choice.last("delta").expect("a delta")).collect();
    let message = source.last("message").filter(|message| is_readable(*message));
    let role = message.and_then(|message| message.last("role")).filter(|role| role.kind() == Kind::String);
    let first = deltas[0].last("role").map(Json::raw);
    match role.map(Json::raw) {
        // One that is empty is as good as none.
        None | Some(r#""""#) => assert!(matches!(first, Some(r#""assistant""# | r#""""#)), "{first:?}"),
        said => assert_eq!(first, said, "the role comes first"),
    }
    for key in ["content", "reasoning_content", "reasoning", "refusal"] {
        let expected = message.and_then(|message| string(message, key));
        assert_eq!(said(&deltas, key), Vec::from_iter(expected.map(Json::raw)), "{key}");
    }
    let calls: Vec<_> = deltas.iter().filter_map(|delta| delta.last("tool_calls")).collect();
    let calls: Vec<_> = calls.iter().flat_map(|calls| calls.children()).collect();
    let called = message.and_then(|message| message.last("tool_calls"));
    let called = called.filter(|calls| calls.kind() == Kind::Array);
    let called: Vec<_> =
        called.iter().flat_map(|calls| calls.children()).filter(|call| is_readable(*call)).collect();
    assert_eq!(calls.len(), called.len(), "no call is lost");
    for (at, (call, called)) in calls.iter().zip(called).enumerate() {
        assert_eq!(call.last("index").map(Json::raw), Some(&*at.to_string()));
        for member in called.children().filter(|member| member.key() != Some("index")) {
            let key = member.key().unwrap();
            assert!(call.named(key).iter().any(|there| there.raw() == one_line(member)), "{key} is lost");
        }
    }
}

/// The values of a member that are not null.
fn gathered(objects: &[Json<'_>], key: &str) -> Vec<String> {
    objects.iter().filter_map(|object| present(*object, key)).map(|value| value.raw().to_owned()).collect()
}

/// The texts of a member that are not empty.
fn said<'a>(objects: &[Json<'a>], key: &str) -> Vec<&'a str> {
    objects.iter().filter_map(|object| string(*object, key)).map(Json::raw).collect()
}

fn present<'a>(object: Json<'a>, key: &str) -> Option<Json<'a>> {
    object.last(key).filter(|value| !value.is_null())
}

/// A text that is not empty.
fn string<'a>(object: Json<'a>, key: &str) -> Option<Json<'a>> {
    object.last(key).filter(|value| value.kind() == Kind::String && value.raw() != r#""""#)
}

/// JSON as it stands in an event: line ends between tokens are spaces.
fn one_line(value: Json<'_>) -> String {
    value.raw().replace(['\n', '\r'], " ")
}
