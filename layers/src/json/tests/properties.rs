//! Properties over generated texts. What serde_json makes of a text is the yardstick.

use proptest::{prelude::*, sample::select};

use super::*;

fn space() -> impl Strategy<Value = &'static str> {
    select(vec!["", "", "", " ", "\n", "\t ", " \r\n"])
}

fn string() -> impl Strategy<Value = String> {
    let piece = select(vec![
        "a",
        "é",
        "😀",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        " ",
        r"\n",
        r"\\",
        r#"\""#,
        r"\/",
        r"\u0061",
        r"\u0000",
        r"\ud83d\ude00",
        r"\u00E9",
    ]);
    prop::collection::vec(piece, 0..6).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn scalar() -> impl Strategy<Value = String> {
    let plain = select(vec![
        "null",
        "true",
        "false",
        "0",
        "-0",
        "1",
        "-12",
        "9007199254740993",
        "18446744073709551616",
        "0.10",
        "1e3",
        "-2.5E-7",
        "1e+30",
    ]);
    prop_oneof![plain.prop_map(str::to_owned), string()]
}

/// Several spellings of few names, so that repeated keys are common.
fn key() -> impl Strategy<Value = &'static str> {
    select(vec![
        r#""a""#,
        r#""\u0061""#,
        r#""b""#,
        r#""b\u0063""#,
        r#""bc""#,
        r#""""#,
        r#""é""#,
        r#""\u00e9""#,
        r#""\"""#,
    ])
}

const NAMES: [&str; 7] = ["a", "b", "bc", "", "é", "\"", "absent"];

fn members(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let member = (space(), key(), space(), space(), value, space())
        .prop_map(|(s1, key, s2, s3, value, s4)| format!("{s1}{key}{s2}:{s3}{value}{s4}"));
    (space(), prop::collection::vec(member, 0..6)).prop_map(|(inside, members)| {
        if members.is_empty() { format!("{{{inside}}}") } else { format!("{{{}}}", members.join(",")) }
    })
}

fn any_value() -> impl Strategy<Value = String> {
    scalar().prop_recursive(5, 40, 4, |inner| {
        let element =
            (space(), inner.clone(), space()).prop_map(|(s1, value, s2)| format!("{s1}{value}{s2}"));
        let list = prop::collection::vec(element, 0..4).prop_map(|list| format!("[{}]", list.join(",")));
        prop_oneof![list, members(inner)]
    })
}

fn any_object() -> impl Strategy<Value = String> {
    (space(), members(any_value()), space()).prop_map(|(s1, object, s2)| format!("{s1}{object}{s2}"))
}

fn changes() -> impl Strategy<Value = Vec<(&'static str, Option<String>)>> {
    prop::collection::vec((select(NAMES.to_vec()), prop::option::of(any_value())), 0..5)
}

fn apply(object: &Object, changes: &[(&'static str, Option<String>)]) -> Segments {
    let edit = changes.iter().fold(object.edit(), |edit, (key, value)| match value {
        Some(value) => edit.set(key, value.clone()),
        None => edit.remove(key),
    });
    edit.finish()
}

/// The text of every member, key, colon and spaces included, except those named by a change.
fn untouched(object: &Object, changes: &[(&'static str, Option<String>)]) -> Vec<Bytes> {
    let stays = |key: &str| changes.iter().all(|(changed, _)| *changed != key);
    let members = object.spans().iter().filter(|member| stays(&member.key));
    members.map(|member| object.text().slice(member.span.clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_edit_means_what_the_same_change_to_a_tree_means(text in any_object(), changes in changes()) {
        let out = apply(&object(&text), &changes);
        let joined = out.to_bytes();
        prop_assert_eq!(out.len(), joined.len());
        let mut tree: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
        for (key, value) in &changes {
            match value {
                Some(value) => tree.insert((*key).to_owned(), serde_json::from_str(value).unwrap()),
                None => tree.remove(*key),
            };
        }
        let edited: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&joined).unwrap();
        prop_assert_eq!(edited, tree);
    }

    #[test]
    fn an_edit_leaves_other_members_as_they_were(text in any_object(), changes in changes()) {
        let before = object(&text);
        let after = Object::parse(apply(&before, &changes).to_bytes()).unwrap();
        prop_assert_eq!(untouched(&after, &changes), untouched(&before, &changes));
    }

    #[test]
    fn an_edit_sets_each_key_once(text in any_object(), changes in changes()) {
        let after = Object::parse(apply(&object(&text), &changes).to_bytes()).unwrap();
        for (key, value) in changes.iter().rev().scan(Vec::new(), |seen, (key, value)| {
            let first = !seen.contains(key);
            seen.push(*key);
            Some(first.then_some((*key, value)))
        }).flatten() {
            let found = after.get(key).unwrap();
            prop_assert_eq!(found.as_ref().map(Value::as_str), value.as_deref(), "{}", key);
        }
    }

    #[test]
    fn an_edit_leaves_the_text_around_as_it_was(text in any_object(), changes in changes()) {
        let before = object(&text);
        prop_assert_eq!(before.edit().finish().to_bytes(), text.as_bytes());
        let out = apply(&before, &changes).to_bytes();
        if let (Some(first), Some(last)) = (before.spans().first(), before.spans().last()) {
            prop_assert!(out.starts_with(&text.as_bytes()[..first.span.start]));
            prop_assert!(out.ends_with(&text.as_bytes()[last.span.end..]));
        }
        // A value that is replaced takes nothing else along.
        for member in before.spans() {
            let name = NAMES.into_iter().find(|name| *name == &*member.key).unwrap();
            let Ok(Some(value)) = before.get(name) else { continue };
            let (from, to) = (member.value.start, member.value.end);
            let replaced = format!("{}[{}]{}", &text[..from], value.as_str(), &text[to..]);
            prop_assert_eq!(before.edit().set(name, format!("[{}]", value.as_str())).finish().to_bytes(), replaced.as_bytes());
        }
    }

    #[test]
    fn members_are_those_that_serde_json_finds(text in any_object()) {
        let tree: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
        let body = object(&text);
        prop_assert!(body.members().all(|(key, _)| tree.contains_key(key)));
        for (key, value) in &tree {
            let last = body.last(key).unwrap();
            prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(last.as_str()).unwrap(), value);
            prop_assert_eq!(last.is_null(), value.is_null());
            prop_assert_eq!(last.as_bool(), value.as_bool());
            prop_assert_eq!(last.as_text(), value.as_str().map(str::to_owned));
            prop_assert_eq!(last.elements(100).ok().map(|list| list.len()), value.as_array().map(Vec::len));
        }
    }

    #[test]
    fn a_pointer_finds_what_serde_json_finds(
        text in any_object(),
        parts in prop::collection::vec(select(vec!["a", "b", "bc", "", "é", "\"", "0", "1", "00", "-"]), 1..4),
    ) {
        let tree: serde_json::Value = serde_json::from_str(&text).unwrap();
        let pointer = format!("/{}", parts.join("/"));
        let found = pointer.parse::<Pointer>().unwrap().find(&object(&text)).unwrap();
        let found = found.map(|value| serde_json::from_str::<serde_json::Value>(value.as_str()).unwrap());
        prop_assert_eq!(found.as_ref(), tree.pointer(&pointer), "{}", pointer);
    }

    #[test]
    fn a_damaged_text_is_taken_exactly_when_serde_json_takes_it(
        text in any_object(),
        damage in prop::collection::vec(
            (any::<prop::sample::Index>(), select("{}[],:\"\\ \t\n0-.e+tu\0é".chars().collect::<Vec<_>>()), 0..3),
            0..3,
        ),
    ) {
        let mut chars: Vec<char> = text.chars().collect();
        for (at, char, how) in damage {
            match how {
                0 => chars.insert(at.index(chars.len() + 1), char),
                1 if !chars.is_empty() => drop(chars.remove(at.index(chars.len()))),
                _ if !chars.is_empty() => { let at = at.index(chars.len()); chars[at] = char; }
                _ => {}
            }
        }
        let text: String = chars.into_iter().collect();
        let taken = Object::parse(bytes(&text)).is_ok();
        prop_assert_eq!(taken, serde_takes(&text), "{}", text);
        // What serde_json can make a tree of is taken in any case.
        let tree = serde_json::from_str::<serde_json::Value>(&text);
        prop_assert!(taken || !tree.is_ok_and(|tree| tree.is_object()), "{}", text);
    }

    #[test]
    fn any_bytes_are_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..64)) {
        let taken = Object::parse(Bytes::from(text.clone())).is_ok();
        prop_assert_eq!(taken, std::str::from_utf8(&text).is_ok_and(serde_takes));
    }
}
