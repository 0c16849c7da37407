//! `json::Object`, `Value` and `Edit`.
//!
//! Taken is what is one JSON object (RFC 8259), and nothing else, with these differences, each of which the module
//! `json` promises:
//!
//! * no byte-order mark in front;
//! * half of a surrogate pair is taken in a value, at any depth, and in keys below the top, but not in a key that is
//!   looked at;
//! * at most [`MAX_MEMBERS`] members at the top; a text with more is refused for that, whatever stands behind them.
//!
//! Where serde_json can make a tree of a text, the splitter takes it as well. The converse does not hold: a tree has no
//! half surrogates, 128 levels, numbers within a double's range, and no meaning of its own for the key that serde_json
//! marks raw values with.

use bytes::Bytes;
use tower_disagg::json::{self, JsonError, MAX_MEMBERS, Object, Segments, Value};

use crate::{
    oracle::json::{Doc, Json, Kind},
    quote::assert_quotes_nothing,
};

/// Splits `text`, compares what was found with what is there, and edits it in several ways.
pub fn splitter(text: &[u8]) {
    let doc = Doc::parse(text);
    let object = match Object::parse(Bytes::copy_from_slice(text)) {
        Ok(object) => object,
        Err(error) => {
            assert_quotes_nothing(&error, text);
            return assert_refused_rightly(error, text, doc.as_ref());
        }
    };
    let doc = doc.expect("what is taken is JSON");
    assert!(is_readable(doc.root()), "what is no such object was taken");
    assert_eq!(object.text(), text, "the text is kept");
    same_object(&object, doc.root(), 0, 3);
    assert_serde_json_takes_it_too(text, &doc);
    for changes in CHANGES {
        edit(&object, doc.root(), changes);
    }
}

/// Whether the splitter has to take this value for an object.
pub(crate) fn is_readable(json: Json<'_>) -> bool {
    json.kind() == Kind::Object
        && json.children().count() <= MAX_MEMBERS
        && json.children().all(|member| member.key().is_some())
}

fn assert_refused_rightly(error: JsonError, text: &[u8], doc: Option<&Doc<'_>>) {
    let blank = text.iter().all(|byte| b" \t\r\n".contains(byte));
    let utf8 = std::str::from_utf8(text).map_err(|error| error.valid_up_to());
    match error {
        JsonError::Empty => assert!(blank),
        JsonError::ByteOrderMark => assert!(text.starts_with(b"\xef\xbb\xbf")),
        JsonError::NotUtf8(at) => assert_eq!(utf8, Err(at)),
        JsonError::WrongKind => assert!(doc.is_some_and(|doc| doc.root().kind() != Kind::Object)),
        JsonError::TooManyMembers => {
            assert!(doc.is_none_or(|doc| doc.root().children().count() > MAX_MEMBERS));
            assert!(text.iter().filter(|byte| **byte == b':').count() > MAX_MEMBERS);
        }
        JsonError::Syntax { line, column } => {
            assert!(!blank && utf8.is_ok());
            let lines = text.iter().filter(|byte| **byte == b'\n').count() + 1;
            assert!((1..=lines).contains(&line) && (1..=text.len()).contains(&column), "{line}, {column}");
        }
        other => panic!("unknown: {other:?}"),
    }
    if let Some(doc) = doc {
        assert!(!is_readable(doc.root()), "a good object was refused: {error}");
    }
    if let Ok(serde_json::Value::Object(_)) = serde_json::from_slice(text) {
        assert_eq!(error, JsonError::TooManyMembers, "serde_json takes it");
    }
}

// === reading ===

/// `base` is where the text of `object` begins in the whole text.
fn same_object(object: &Object, json: Json<'_>, base: usize, depth: usize) {
    let members: Vec<_> = object.members().collect();
    assert_eq!(members.len(), json.children().count());
    assert_eq!(object.is_empty(), members.is_empty());
    for ((key, value), member) in members.iter().zip(json.children()) {
        assert_eq!(Some(*key), member.key());
        assert_eq!(value.as_str(), member.raw());
        let offset = value.bytes().as_ptr() as usize - object.text().as_ptr() as usize;
        assert_eq!(offset, member.span().0 - base, "a slice of the text");
        same_value(value, member, depth);
        assert!(object.contains(key));
        let last = object.last(key).map(|last| last.bytes().as_ptr());
        let expected = members.iter().rfind(|(other, _)| other == key);
        assert_eq!(last, expected.map(|(_, value)| value.bytes().as_ptr()));
    }
    for key in KEYS {
        let named = json.named(key);
        match object.get(key) {
            Ok(found) => {
                assert!(named.len() < 2);
                assert_eq!(found.as_ref().map(Value::as_str), named.first().map(|member| member.raw()));
            }
            Err(error) => assert!(named.len() > 1 && error.0 == key),
        }
        assert_eq!(object.contains(key), !named.is_empty());
    }
}

fn same_value(value: &Value, json: Json<'_>, depth: usize) {
    let kind = match value.kind() {
        json::Kind::Null => Kind::Null,
        json::Kind::Bool => Kind::Bool,
        json::Kind::Number => Kind::Number,
        json::Kind::String => Kind::String,
        json::Kind::Array => Kind::Array,
        json::Kind::Object => Kind::Object,
    };
    assert_eq!(kind, json.kind());
    assert_eq!(value.is_null(), json.raw() == "null");
    assert_eq!(value.as_bool(), json.raw().parse().ok());
    assert_eq!(value.as_i128(), json.integer());
    assert_eq!(value.as_f64().is_some(), kind == Kind::Number);
    assert_eq!(value.as_text(), json.text());
    let Some(deeper) = depth.checked_sub(1) else { return };
    match value.object() {
        Ok(object) => same_object(&object, json, json.span().0, deeper),
        Err(_) => assert!(!is_readable(json)),
    }
    let elements: Vec<_> = json.children().collect();
    if kind != Kind::Array {
        assert_eq!(value.elements(usize::MAX).unwrap_err(), JsonError::WrongKind);
        return;
    }
    let found = value.elements(elements.len()).expect("as many as there are");
    assert_eq!(found.len(), elements.len());
    found.iter().zip(&elements).for_each(|(found, json)| same_value(found, *json, deeper));
    if let Some(fewer) = elements.len().checked_sub(1) {
        assert_eq!(value.elements(fewer).unwrap_err(), JsonError::TooManyMembers);
    }
}

/// What is taken and serde_json cannot make a tree of has one of the things that trees do not have.
fn assert_serde_json_takes_it_too(text: &[u8], doc: &Doc<'_>) {
    if serde_json::from_slice::<serde_json::Value>(text).is_ok() {
        return;
    }
    let key_without_text = |json: Json<'_>| json.key_span().is_some() && json.key().is_none();
    let odd = |json: Json<'_>| match json.kind() {
        Kind::String => json.text().is_none(),
        Kind::Number => json.raw().contains(['e', 'E']) || json.raw().len() > 300,
        Kind::Object => {
            let first = json.children().next().and_then(Json::key);
            first == Some("$serde_json::private::RawValue")
        }
        _ => false,
    };
    let odd = doc.all().any(|json| odd(json) || key_without_text(json));
    assert!(odd || doc.depth() > 127, "serde_json refuses it");
}

// === editing ===

type Change = (&'static str, Option<&'static str>);

const KEYS: [&str; 6] = ["a", "b", "stream", "", "é", "disaggregated_params"];

const CHANGES: [&[Change]; 8] = [
    &[],
    &[("a", Some("1"))],
    &[("a", None)],
    &[("b", Some("[]")), ("a", None), ("stream", Some("false"))],
    &[("a", Some("1")), ("a", Some(r#"{"x":[null]}"#)), ("", None)],
    &[("é", Some(r#""\u00e9""#)), ("é", None), ("", Some("\"\""))],
    &[("b", None), ("b", Some("2")), ("disaggregated_params", Some("{}"))],
    &[("a", None), ("b", None), ("stream", None), ("", None), ("é", None), ("disaggregated_params", None)],
];

fn edit(object: &Object, json: Json<'_>, changes: &[Change]) {
    let edit = changes.iter().fold(object.edit(), |edit, (key, value)| match value {
        Some(value) => edit.set(key, *value),
        None => edit.remove(key),
    });
    let out = edit.finish();
    assert_copies_nothing(object, &out, changes);
    let text = out.to_bytes();
    assert_eq!(out.len(), text.len());
    let doc = Doc::parse(&text).expect("an edit makes JSON");
    assert_eq!(doc.root().kind(), Kind::Object);
    assert_edited(json, doc.root(), changes);
}

/// Panics unless `after` is `before` with `changes`, and nothing else was touched.
pub(crate) fn assert_edited(before: Json<'_>, after: Json<'_>, changes: &[(&str, Option<&str>)]) {
    let change = |key: &str| changes.iter().rfind(|(changed, _)| *changed == key).map(|(_, value)| *value);
    let mut after_members = after.children();
    let mut written: Vec<&str> = Vec::new();
    let mut neighbour: Option<(Json<'_>, Json<'_>)> = None;
    for member in before.children() {
        let key = member.key().expect("a key that can be read");
        let changed = change(key);
        if changed == Some(None) || written.contains(&key) {
            neighbour = None;
            continue;
        }
        let found = after_members.next().expect("no member is lost");
        assert_eq!(found.key_raw(), member.key_raw(), "the key and its place are kept");
        assert_eq!(
            between(after, key_end(found), found.span().0),
            between(before, key_end(member), member.span().0)
        );
        if let Some((before_it, after_it)) = neighbour {
            let gap = between(before, before_it.span().1, key_start(member));
            assert_eq!(
                between(after, after_it.span().1, key_start(found)),
                gap,
                "what stands between is kept"
            );
        }
        match changed {
            Some(Some(value)) => {
                assert_eq!(found.raw(), value);
                written.push(changes.iter().map(|(key, _)| *key).find(|changed| *changed == key).unwrap());
                neighbour = None;
            }
            _ => {
                assert_eq!(found.raw(), member.raw(), "the value is kept");
                neighbour = Some((member, found));
            }
        }
    }
    let mut added: Vec<&str> = Vec::new();
    for (key, _) in changes {
        let Some(Some(value)) = change(key) else { continue };
        if written.contains(key) || added.contains(key) {
            continue;
        }
        added.push(key);
        let found = after_members.next().expect("a new member is at the end");
        assert_eq!((found.key(), found.raw()), (Some(*key), value));
    }
    assert!(after_members.next().is_none(), "nothing else is added");
}

fn key_start(member: Json<'_>) -> usize {
    member.key_span().unwrap().0
}

fn key_end(member: Json<'_>) -> usize {
    member.key_span().unwrap().1
}

/// A piece of the text that `object` is of.
fn between<'a>(object: Json<'a>, from: usize, to: usize) -> &'a str {
    let start = object.span().0;
    &object.raw()[from - start..to - start]
}

/// What is kept is shared with the original.
fn assert_copies_nothing(object: &Object, out: &Segments, changes: &[Change]) {
    let original = object.text().as_ptr_range();
    let foreign = out.parts().iter().filter(|part| !original.contains(&part.as_ptr()));
    let foreign: usize = foreign.map(Bytes::len).sum();
    let new: usize = changes.iter().map(|(key, value)| key.len() + value.map_or(0, str::len) + 8).sum();
    assert!(foreign <= new + object.members().count() + 2, "{foreign} bytes were copied");
    assert!(out.parts().iter().all(|part| !part.is_empty()));
}
