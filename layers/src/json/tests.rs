use std::collections::HashMap;

use bytes::Bytes;
use serde::de::IgnoredAny;

use super::*;

mod pointers;
mod properties;

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn object(text: &str) -> Object {
    Object::parse(bytes(text)).unwrap()
}

fn value(text: &str) -> Value {
    object(&format!(r#"{{"v":{text}}}"#)).last("v").unwrap()
}

fn refusal(text: &[u8]) -> JsonError {
    Object::parse(Bytes::copy_from_slice(text)).unwrap_err()
}

// === splitting ===

#[test]
fn members_are_found_in_order_with_their_text() {
    let body =
        object("\t{ \"a\" :\r\n 1.50e+2 , \"b\":[ {\"c\":\"}\"} ],\"\":null,\"b\" : \"\\u00e9\\\"\" }\n");
    let members: Vec<_> =
        body.members().map(|(key, value)| (key.to_owned(), value.as_str().to_owned())).collect();
    let expected = [("a", "1.50e+2"), ("b", r#"[ {"c":"}"} ]"#), ("", "null"), ("b", r#""\u00e9\"""#)];
    assert_eq!(members, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    assert!(body.contains("") && !body.contains("c"));
    assert!(!body.is_empty() && object(" { } ").is_empty());
}

#[test]
fn a_repeated_key_is_no_answer_but_has_a_last_value() {
    let body = object(r#"{"stream":true,"n":1,"str\u0065am":false}"#);
    assert_eq!(body.get("stream").unwrap_err(), DuplicateKey("stream"));
    assert_eq!(body.last("stream").unwrap().as_str(), "false");
    assert_eq!(body.get("n").unwrap().unwrap().as_str(), "1");
    assert!(body.get("x").unwrap().is_none() && body.last("x").is_none());
    assert_eq!(DuplicateKey("stream").to_string(), "`stream` occurs more than once");
}

#[test]
fn keys_are_compared_decoded() {
    let body = object(r#"{"disaggregated\u005fparams":1,"\ud83d\ude00":2,"\/\"\\\n":3,"é":4}"#);
    for (key, text) in [("disaggregated_params", "1"), ("😀", "2"), ("/\"\\\n", "3"), ("\u{e9}", "4")] {
        assert_eq!(body.last(key).unwrap().as_str(), text, "{key}");
    }
}

#[test]
fn keys_that_serde_json_uses_inside_are_ordinary() {
    let text = r#"{"$serde_json::private::RawValue":"1","x":{"$serde_json::private::RawValue":"]"},"$serde_json::private::Number":"z"}"#;
    let body = object(text);
    assert_eq!(body.members().count(), 3);
    assert_eq!(body.last("$serde_json::private::RawValue").unwrap().as_str(), r#""1""#);
    assert_eq!(body.last("x").unwrap().object().unwrap().members().count(), 1);
    assert_eq!(body.edit().finish().to_bytes(), text);
}

#[test]
fn what_is_not_one_object_is_refused() {
    let table: &[(&[u8], JsonError)] = &[
        (b"", JsonError::Empty),
        (b" \r\n\t", JsonError::Empty),
        (b"\xef\xbb\xbf{}", JsonError::ByteOrderMark),
        (b"\xef\xbb\xbf", JsonError::ByteOrderMark),
        (b"{\"a\":\"\xff\"}", JsonError::NotUtf8(6)),
        (b"\xff\xfe{\0}\0", JsonError::NotUtf8(0)),
        (b"\xfe\xff\0{\0}", JsonError::NotUtf8(0)),
        // UTF-16 without a mark is UTF-8 with zero bytes, and no JSON.
        (b"{\0}\0", JsonError::Syntax { line: 1, column: 2 }),
        (b"\0{\0}", JsonError::Syntax { line: 1, column: 1 }),
        (b"[]", JsonError::WrongKind),
        (b" null ", JsonError::WrongKind),
        (b"\"{}\"", JsonError::WrongKind),
        (b"-0.5e3", JsonError::WrongKind),
        (b"nul", JsonError::Syntax { line: 1, column: 3 }),
        (b"[1,", JsonError::Syntax { line: 1, column: 3 }),
        (b"{} {}", JsonError::Syntax { line: 1, column: 4 }),
        (b"{}x", JsonError::Syntax { line: 1, column: 3 }),
        (b"{}\0", JsonError::Syntax { line: 1, column: 3 }),
        (b"{", JsonError::Syntax { line: 1, column: 1 }),
        (b"{\"a\":1,}", JsonError::Syntax { line: 1, column: 8 }),
        (b"{\n\"a\":1\n\"b\":2}", JsonError::Syntax { line: 3, column: 1 }),
    ];
    for (text, error) in table {
        assert_eq!(refusal(text), *error, "{:?}", String::from_utf8_lossy(text));
    }
    for text in [
        "{a:1}",
        "{'a':1}",
        "{1:2}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\" 1}",
        "{,}",
        "{\"a\":01}",
        "{\"a\":+1}",
        "{\"a\":.5}",
        "{\"a\":1.}",
        "{\"a\":1e}",
        "{\"a\":NaN}",
        "{\"a\":Infinity}",
        "{\"a\":-}",
        "{\"a\":\"\t\"}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12g4\"}",
        "{\"a\":\"}",
        "{\"a\":[1,]}",
        "{\"a\":[1 2]}",
        "{\"a\":[}",
        "{\"a\":{\"b\"}}",
        "{\"a\":tru}",
        "{\"a\":1/*x*/}",
        "\u{feff}",
        "{\"a\":\u{a0}1}",
        "{\"a\":1,\"\\ud83d\":2}",
        "{\"\\udc00x\":2}",
        "{\"a\nb\":1}",
    ] {
        assert!(Object::parse(bytes(text)).is_err(), "{text}");
    }
}

#[test]
fn a_bad_key_is_reported_where_it_stands() {
    let JsonError::Syntax { line, column } = refusal(b"{\n\"a\":1,\n  \"\\ud83d\" : 2}") else { panic!() };
    assert_eq!(line, 3);
    assert!(column >= 3, "{column}");
}

#[test]
fn texts_of_errors_quote_nothing() {
    for text in [&b"{\"SECRET\":SECRET}"[..], b"SECRET", b"{\"SECRET\\ud83d\":1}", b"{\"SECRET\":\"\xff\"}"] {
        let error = refusal(text);
        assert!(!error.to_string().contains("SECRET") && !format!("{error:?}").contains("SECRET"));
    }
    let body = object(r#"{"SECRET":"SECRET"}"#);
    assert_eq!(
        format!("{body:?} {:?}", body.last("SECRET").unwrap()),
        "Object(1 members, 19 bytes) Value(String, 8 bytes)"
    );
}

#[test]
fn half_a_surrogate_pair_is_kept_in_a_value() {
    let text = r#"{"content":"hi \ud83d","n":["\udc00"]}"#;
    let body = object(text);
    assert_eq!(body.edit().finish().to_bytes(), text);
    assert_eq!(body.last("content").unwrap().as_text(), None);
}

#[test]
fn the_number_of_members_is_bounded() {
    let many = |count: usize| {
        let members: Vec<String> = (0..count).map(|number| format!("\"k{number}\":{number}")).collect();
        format!("{{{}}}", members.join(","))
    };
    assert_eq!(object(&many(MAX_MEMBERS)).members().count(), MAX_MEMBERS);
    assert_eq!(refusal(many(MAX_MEMBERS + 1).as_bytes()), JsonError::TooManyMembers);
    let nested = object(&format!(r#"{{"v":{}}}"#, many(MAX_MEMBERS + 1)));
    assert_eq!(nested.last("v").unwrap().object().unwrap_err(), JsonError::TooManyMembers);
}

#[test]
fn depth_costs_no_stack() {
    const DEPTH: usize = 200_000;
    let (lists, objects) = ("[".repeat(DEPTH), "{\"a\":".repeat(DEPTH));
    for open in [lists.clone(), objects.clone(), format!("{{\"a\":{lists}"), format!("{{\"a\":{objects}")] {
        assert!(matches!(refusal(open.as_bytes()), JsonError::Syntax { .. }));
    }
    assert_eq!(refusal(format!("{lists}{}", "]".repeat(DEPTH)).as_bytes()), JsonError::WrongKind);
    for deep in [format!("{lists}{}", "]".repeat(DEPTH)), format!("{objects}null{}", "}".repeat(DEPTH))] {
        let text = format!("{{\"a\":{deep},\"b\":1}}");
        let body = object(&text);
        assert_eq!(body.edit().set("b", "2").finish().to_bytes(), text.replace("\"b\":1", "\"b\":2"));
        let inner = body.last("a").unwrap();
        // One level further down works as well.
        if inner.kind() == Kind::Array {
            assert_eq!(inner.elements(1).unwrap().len(), 1);
        } else {
            assert_eq!(inner.object().unwrap().members().count(), 1);
        }
    }
}

#[test]
fn accepts_numbers_that_no_type_holds() {
    let digits = "9".repeat(5000);
    for number in ["1e400", "-1e400", "18446744073709551616", "0.1234567890123456789012345", &digits] {
        let text = format!("{{\"x\":{number}}}");
        assert_eq!(
            object(&text).edit().set("y", "1").finish().to_bytes(),
            format!("{{\"x\":{number},\"y\":1}}")
        );
    }
}

// === values ===

#[test]
fn values_tell_their_kind() {
    for (text, kind) in [
        ("null", Kind::Null),
        ("true", Kind::Bool),
        ("false", Kind::Bool),
        ("-1", Kind::Number),
        ("0", Kind::Number),
        ("\"\"", Kind::String),
        ("[ ]", Kind::Array),
        ("{}", Kind::Object),
    ] {
        let value = value(text);
        assert_eq!((value.kind(), value.as_str()), (kind, text));
        assert_eq!(value.is_null(), text == "null");
        assert_eq!(value.as_bool(), text.parse().ok());
    }
}

#[test]
fn integers_are_read_without_a_float() {
    for (text, number) in [
        ("0", Some(0)),
        ("-0", Some(0)),
        ("9007199254740993", Some(9007199254740993)),
        ("9223372036854775807", Some(i128::from(i64::MAX))),
        ("18446744073709551616", Some(1 << 64)),
        ("170141183460469231731687303715884105727", Some(i128::MAX)),
        ("170141183460469231731687303715884105728", None),
        ("1.0", None),
        ("1e3", None),
        ("\"1\"", None),
        ("true", None),
        ("[1]", None),
    ] {
        assert_eq!(value(text).as_i128(), number, "{text}");
    }
    assert_eq!(value("1e400").as_f64(), Some(f64::INFINITY));
    assert_eq!(value("1.0e0").as_f64(), Some(1.0));
    assert_eq!(value("\"1\"").as_f64(), None);
}

#[test]
fn strings_are_decoded() {
    assert_eq!(value(r#""a\u0000\/\ud83d\ude00é""#).as_text().unwrap(), "a\0/😀é");
    assert_eq!(value("1").as_text(), None);
}

#[test]
fn lists_are_walked_as_far_as_asked() {
    let list = value(r#"[ 1, "a,]" ,[2,3],{"k":4},null ]"#);
    let texts = |most| {
        list.elements(most).map(|values| values.iter().map(|v| v.as_str().to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(texts(5).unwrap(), ["1", r#""a,]""#, "[2,3]", r#"{"k":4}"#, "null"]);
    assert_eq!(texts(4).unwrap_err(), JsonError::TooManyMembers);
    assert_eq!(value("[]").elements(0).unwrap().len(), 0);
    let mut seen = 0;
    list.for_each(|_| {
        seen += 1;
        seen < 2
    })
    .unwrap();
    assert_eq!(seen, 2);
    assert_eq!(value("{}").elements(1).unwrap_err(), JsonError::WrongKind);
    assert_eq!(value("[]").object().unwrap_err(), JsonError::WrongKind);
}

// === editing ===

#[test]
fn edits_keep_the_rest() {
    let text = r#" { "a" : 1 ,  "b":[2], "c":"x","d":null } "#;
    let body = object(text);
    for (edit, expected) in [
        (body.edit(), text),
        (body.edit().remove("x"), text),
        (body.edit().remove("c"), r#" { "a" : 1 ,  "b":[2],"d":null } "#),
        (body.edit().remove("a"), r#" { "b":[2], "c":"x","d":null } "#),
        (body.edit().remove("a").remove("b"), r#" { "c":"x","d":null } "#),
        (body.edit().remove("d"), r#" { "a" : 1 ,  "b":[2], "c":"x" } "#),
        (body.edit().remove("d").remove("a"), r#" { "b":[2], "c":"x" } "#),
        (body.edit().remove("b").remove("c"), r#" { "a" : 1,"d":null } "#),
        (body.edit().set("b", "[]"), r#" { "a" : 1 ,  "b":[], "c":"x","d":null } "#),
        (body.edit().set("a", "0").set("d", "3"), r#" { "a" : 0 ,  "b":[2], "c":"x","d":3 } "#),
        (body.edit().remove("a").set("b", "0"), r#" { "b":0, "c":"x","d":null } "#),
        (
            body.edit().set("e", "1").set("f\"", "2"),
            r#" { "a" : 1 ,  "b":[2], "c":"x","d":null,"e":1,"f\"":2 } "#,
        ),
        (body.edit().set("a", "5").remove("a"), r#" { "b":[2], "c":"x","d":null } "#),
        (
            body.edit().remove("e").set("e", "5").set("e", "6"),
            r#" { "a" : 1 ,  "b":[2], "c":"x","d":null,"e":6 } "#,
        ),
        (body.edit().remove("a").remove("b").remove("c").remove("d"), " {  } "),
        (
            body.edit().remove("a").remove("b").remove("c").set("d", "{}").set("g", "1"),
            r#" { "d":{},"g":1 } "#,
        ),
        (body.edit().remove("a").remove("b").remove("c").remove("d").set("g", "1"), r#" { "g":1 } "#),
    ] {
        assert_eq!(edit.finish().to_bytes(), expected);
    }
    assert_eq!(object("{ }").edit().set("a", "1").set("b", "2").finish().to_bytes(), r#"{"a":1,"b":2 }"#);
    assert_eq!(object("{ }").edit().remove("a").finish().to_bytes(), "{ }");
}

#[test]
fn an_edit_reaches_every_occurrence() {
    let body = object(r#"{"s":1,"a":2,"\u0073":3,"b":4,"s":5}"#);
    assert_eq!(body.edit().set("s", "false").finish().to_bytes(), r#"{"s":false,"a":2,"b":4}"#);
    assert_eq!(body.edit().remove("s").finish().to_bytes(), r#"{"a":2,"b":4}"#);
}

#[test]
fn neighbours_that_stay_are_one_slice_of_the_original() {
    let text = bytes(r#"{ "a" : 1 ,  "b":[2], "c":"x","d":null }"#);
    let body = Object::parse(text.clone()).unwrap();
    let out = body.edit().remove("c").finish();
    let parts: Vec<&[u8]> = out.parts().iter().map(|part| &part[..]).collect();
    assert_eq!(parts, [&br#"{ "a" : 1 ,  "b":[2]"#[..], br#","d":null }"#]);
    assert_eq!(out.parts()[0].as_ptr(), text.as_ptr());
    assert_eq!(body.last("b").unwrap().bytes().as_ptr(), text[17..].as_ptr());
    assert_eq!(body.edit().finish().parts().len(), 1);
}

// === segments ===

#[test]
fn segments_count_and_join() {
    let mut text = Segments::new();
    assert!(text.is_empty() && text.to_bytes().is_empty());
    text.push("ab");
    text.push("");
    let one = text.to_bytes();
    assert_eq!(one.as_ptr(), text.parts()[0].as_ptr());
    text.append(Segments::from(String::from("cde")));
    text.append(value("[1]").into());
    assert_eq!((text.len(), text.parts().len()), (8, 3));
    assert_eq!(text.to_bytes(), "abcde[1]");
    assert_eq!(text.into_parts().concat(), b"abcde[1]");
}

/// Whether serde_json takes the text for an object, without a look at what numbers or surrogates mean.
fn serde_takes(text: &str) -> bool {
    serde_json::from_str::<HashMap<String, IgnoredAny>>(text).is_ok()
}
