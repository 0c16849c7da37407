use super::*;
use serde_json::json;

fn chat(extra: serde_json::Value) -> serde_json::Value {
    let mut request = json!({"model": "m", "messages": [{"role": "user", "content": "Hello é你😀"}]});
    if let (Some(request), Some(extra)) = (request.as_object_mut(), extra.as_object()) {
        request.extend(extra.clone());
    }
    request
}

#[test]
fn the_answer_follows_from_the_prompt() {
    let one = expected_answer(&chat(json!({})));
    assert_eq!(one, expected_answer(&chat(json!({"temperature": 0.3}))));
    assert_eq!(one.finish_reason, "stop");
    assert_eq!(one.completion_tokens, crate::config::DEFAULT_TOKENS);
    assert_eq!(one.text, answer_text(&one.prompt_token_ids, one.completion_tokens));
    let by_ids = json!({"model": "m", "prompt": one.prompt_token_ids});
    assert_eq!(expected_answer(&by_ids).text, one.text);
    let ids = json!({"prompt_token_ids": one.prompt_token_ids, "messages": []});
    assert_eq!(expected_answer(&ids).text, one.text);
    let other = json!({"model": "m", "messages": [{"role": "user", "content": "Hello"}]});
    assert_ne!(expected_answer(&other).text, one.text);
    // Neighbours always differ, so a doubled token shows.
    let ids = one.completion_token_ids;
    assert!(ids.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn limits_and_stops() {
    let all = expected_answer(&chat(json!({})));
    let cut = expected_answer(&chat(json!({"max_tokens": 3})));
    assert_eq!((cut.finish_reason.as_str(), cut.completion_tokens), ("length", 3));
    assert!(all.text.starts_with(&cut.text));
    let exact = expected_answer(&chat(json!({"max_completion_tokens": all.completion_tokens})));
    assert_eq!(exact.finish_reason, "stop");
    let long = expected_answer(&chat(json!({"max_tokens": 40, "ignore_eos": true})));
    assert_eq!((long.finish_reason.as_str(), long.completion_tokens), ("length", 40));
    let least = expected_answer(&chat(json!({"min_tokens": 30})));
    assert_eq!((least.finish_reason.as_str(), least.completion_tokens), ("stop", 30));

    let word = token_text(all.completion_token_ids[4]);
    let stop = &word[2..];
    let stopped = expected_answer(&chat(json!({"stop": ["zzz", stop]})));
    assert_eq!(stopped.finish_reason, "stop");
    assert_eq!(stopped.stop_reason.as_deref(), Some(stop));
    assert_eq!(stopped.text, all.text[..all.text.find(stop).unwrap()]);
    let kept = expected_answer(&chat(json!({"stop": stop, "include_stop_str_in_output": true})));
    assert!(kept.text.contains(stop));
    let id = all.completion_token_ids[2];
    let by_id = expected_answer(&chat(json!({"stop_token_ids": [id]})));
    assert_eq!(by_id.text, answer_text(&all.prompt_token_ids, 2));
    assert_eq!(by_id.stop_reason, Some(id.to_string()));
}

#[test]
fn reasoning_and_tools() {
    let plain = expected_answer(&chat(json!({})));
    for ask in [
        json!({"reasoning_effort": "high"}),
        json!({"chat_template_kwargs": {"enable_thinking": true}}),
        json!({"thinking": {"type": "enabled"}}),
    ] {
        let thought = expected_answer(&chat(ask));
        assert_eq!(format!("{}{}", thought.reasoning, thought.text), plain.text);
        assert!(!thought.reasoning.is_empty() && !thought.text.is_empty());
    }
    for ask in
        [json!({"reasoning_effort": "none"}), json!({"chat_template_kwargs": {"enable_thinking": false}})]
    {
        assert_eq!(expected_answer(&chat(ask)).reasoning, "");
    }
    let tools = json!([{"type": "function", "function": {"name": "a"}}, {"type": "function", "function": {"name": "ab"}}]);
    let named = json!({"type": "function", "function": {"name": "ab"}});
    for (choice, name) in [(json!("required"), Some("a")), (named, Some("ab")), (json!("auto"), None)] {
        let answer = expected_answer(&chat(json!({"tools": tools, "tool_choice": choice})));
        assert_eq!(answer.tool_calls.first().map(|call| call.name.as_str()), name);
        if name.is_some() {
            assert_eq!(answer.finish_reason, "tool_calls");
            assert!(answer.text.is_empty());
            let arguments: serde_json::Value = serde_json::from_str(&answer.tool_calls[0].arguments).unwrap();
            assert_eq!(arguments["text"], plain.text);
        }
    }
    let asked = |content: &str| {
        let request = json!({"tools": tools, "messages": [{"role": "user", "content": content}]});
        expected_answer(&request).tool_calls.first().map(|call| call.name.clone())
    };
    assert_eq!(asked("do #tool").as_deref(), Some("a"));
    assert_eq!(asked("do #tool:ab").as_deref(), Some("ab"));
    assert_eq!(asked("do it"), None);
}

#[test]
fn several_calls_share_the_answer() {
    let tools = json!([{"type": "function", "function": {"name": "a"}}, {"type": "function", "function": {"name": "ab"}}]);
    let ask = |marks: &str, extra: serde_json::Value| {
        let mut request = chat(json!({"tools": tools, "messages": [{"role": "user", "content": marks}]}));
        request.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        request
    };
    let marks = "#tool:ab and #tool";
    let plain = expected_answer_of(&ask(marks, json!({"tool_choice": "none"})), 5);
    let called = expected_answer_of(&ask(marks, json!({})), 5);
    let words: Vec<&str> = plain.text.split_inclusive(' ').map(str::trim).filter(|w| !w.is_empty()).collect();
    let text = |words: &[&str]| format!("{{\"text\":\" {}\"}}", words.join(" "));
    let calls: Vec<_> = called.tool_calls.iter().map(|c| (c.name.as_str(), c.arguments.clone())).collect();
    assert_eq!(calls, [("ab", text(&words[..3])), ("a", text(&words[3..]))]);
    assert_eq!(called.finish_reason, "tool_calls");
    // A limit does not move the border, and closes nothing.
    let cut = expected_answer_of(&ask(marks, json!({"max_tokens": 4})), 5);
    assert_eq!(cut.tool_calls[0], called.tool_calls[0]);
    assert_eq!(cut.tool_calls[1].arguments, format!("{{\"text\":\" {}", words[3]));
    let cut = expected_answer_of(&ask(marks, json!({"max_tokens": 2})), 5);
    assert_eq!((cut.tool_calls.len(), cut.finish_reason.as_str()), (1, "length"));
    // One token cannot call two tools.
    let one = expected_answer_of(&ask(marks, json!({})), 1);
    assert_eq!(one.tool_calls.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["ab"]);
}

#[test]
fn another_text_is_spread_over_the_tokens() {
    let prompt = prompt_tokens("hi");
    let text = "日本語😀e\u{301}";
    for tokens in [1, 2, 3, 16] {
        let mut plan = plan(&prompt, &Want::default(), tokens, &[]);
        let ids: Vec<_> = plan.pieces.iter().map(|piece| piece.id).collect();
        plan.say(text);
        assert_eq!(plan.text(Channel::Content), text);
        assert_eq!(plan.pieces.iter().map(|piece| piece.id).collect::<Vec<_>>(), ids);
    }
}

#[test]
fn tokens_have_texts() {
    assert_eq!(token_text(300_000), " baba");
    assert_eq!(token_text(304_095), " vovo");
    for foreign in [4321, -1, 304_096, i64::MAX, i64::MIN] {
        assert_eq!(token_text(foreign), format!("<{foreign}>"));
    }
    assert_eq!(prompt_tokens("").len(), 1);
    assert_eq!(prompt_tokens("abcdefghi").len(), 4);
}
