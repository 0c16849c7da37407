use proptest::prelude::*;
use serde_json::json;

use super::*;

fn message(body: &str) -> Option<String> {
    worker_message(body.as_bytes())
}

#[test]
fn each_shape_of_error_has_its_message() {
    let text = "prompt length (9000) exceeds max_seq_len (8192)";
    for body in [
        json!({"error": text}).to_string(),
        json!({"object": "error", "message": text, "type": "BadRequestError", "param": null, "code": 400})
            .to_string(),
        json!({"error": {"message": text, "type": "x", "code": "y"}}).to_string(),
        json!({"detail": text}).to_string(),
        json!({"error": null, "message": text}).to_string(),
        text.to_owned(),
        format!("  {text}\n"),
    ] {
        assert_eq!(message(&body).as_deref(), Some(text), "{body}");
    }
}

#[test]
fn lists_of_validation_errors_are_reduced_to_place_and_reason() {
    let list = json!({"detail": [
        {"type": "missing", "loc": ["body", "messages", 0, "role"], "msg": "Field required", "input": {"p": "SECRET"}},
        {"type": "x", "loc": [], "msg": "second"}
    ]});
    assert_eq!(message(&list.to_string()).as_deref(), Some("body.messages.0.role: Field required"));
    let no_place = json!({"detail": [{"msg": "Field required"}]});
    assert_eq!(message(&no_place.to_string()).as_deref(), Some("Field required"));

    let old = r#"[{'type': 'extra_forbidden', 'loc': ('body', 'priority'), 'msg': 'Extra inputs are not permitted', 'input': {'msg': 'SECRET'}}]"#;
    let new = format!(
        "1 validation error:\n  {}\n\n  File \"/usr/lib/x.py\", line 7, in chat\n    POST /v1/chat/completions",
        old.trim_matches(['[', ']'])
    );
    for text in [old, new.as_str()] {
        let body = json!({"error": text}).to_string();
        assert_eq!(message(&body).as_deref(), Some("body.priority: Extra inputs are not permitted"));
    }
    let quoted = r#"[{'type': 'value_error', 'loc': ('body',), 'msg': "Value error, it's \"bad\"", 'input': {'disaggregated_params': {}}}]"#;
    assert_eq!(
        message(&json!({"error": quoted}).to_string()).as_deref(),
        Some(r#"body: Value error, it's "bad""#)
    );
}

#[test]
fn what_quotes_the_proxys_request_is_dropped() {
    for text in [
        "bad request {'disaggregated_params': {'request_type': 'context_only'}}",
        "disagg_request_id 5 is in use",
        // What a worker says that knows no global id.
        "[{'type': 'extra_forbidden', 'loc': ('body', 'disaggregated_params', 'disagg_request_id'), 'msg': 'Extra inputs are not permitted', 'input': 5}]",
        // A list cut short, where no reason can be told from the client's text.
        "[{'type': 'value_error', 'loc': ('body',), 'input': {'disaggregated_params': {}}, 'msg': 'x'}]",
    ] {
        assert_eq!(message(&json!({"error": text}).to_string()), None, "{text}");
    }
}

#[test]
fn bodies_without_a_message_have_none() {
    for body in [
        "",
        " \n",
        "null",
        "{}",
        "[]",
        r#""x""#,
        r#"{"error":null}"#,
        r#"{"error":""}"#,
        r#"{"error":{"code":5}}"#,
        r#"{"error":5}"#,
        r#"{"detail":[]}"#,
        r#"{"detail":[5]}"#,
        r#"{"error":"cut sho"#,
        "<html><body>502 Bad Gateway</body></html>",
    ] {
        assert_eq!(message(body), None, "{body}");
    }
    assert_eq!(worker_message(b"\xff\xfe"), None);
}

#[test]
fn the_message_is_bounded_and_on_one_line() {
    assert_eq!(message("a\r\nb\u{1b}[31m\u{202e}c\u{0}d").as_deref(), Some("a  b [31m c d"));
    let exact = "x".repeat(MAX_MESSAGE - 3);
    assert_eq!(message(&exact).as_deref(), Some(exact.as_str()));
    for letter in ["x", "é", "😀"] {
        let cut = message(&letter.repeat(5000)).unwrap();
        assert!(cut.len() <= MAX_MESSAGE && cut.len() > MAX_MESSAGE - 8, "{}", cut.len());
        assert!(cut.ends_with('…'));
    }
}

proptest! {
    #[test]
    fn any_error_text_is_shown_within_bounds(text in "\\PC{0,3000}", raw in prop::collection::vec(any::<u8>(), 0..200)) {
        let shown = message(&json!({"error": text}).to_string());
        prop_assert!(shown.is_none_or(|shown| shown.len() <= MAX_MESSAGE && !shown.contains(char::is_control)));
        worker_message(&raw);
    }

    #[test]
    fn any_list_of_validation_errors_is_read(text in "\\[\\{'type': ['\"\\\\(),:a-zé 'input': 'loc': 'msg': ]{0,80}") {
        message(&json!({"error": text}).to_string());
    }
}
