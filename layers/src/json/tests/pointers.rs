use super::*;

fn pointer(text: &str) -> Pointer {
    text.parse().unwrap()
}

#[test]
fn a_pointer_names_a_value() {
    let body = object(
        r#"{"a":{"b":{"c":1},"b":{"c":2}},"l":[10,[20,21],{"x":22}],"":{"":3},"m/n":4,"m~n":5,"~1":6,"s\u0065t":7,
            "a":{"b":{"c":8,"\u0063":9}},"null":null,"text":"abc","0":11,"01":12}"#,
    );
    for (text, found) in [
        ("/a/b/c", Some("9")),
        ("/a/b", Some(r#"{"c":8,"\u0063":9}"#)),
        ("/a/b/d", None),
        ("/a/b/c/d", None),
        ("/x", None),
        ("/x/y", None),
        ("/l/0", Some("10")),
        ("/l/1/1", Some("21")),
        ("/l/2/x", Some("22")),
        ("/l/3", None),
        ("/l/00", None),
        ("/l/01", None),
        ("/l/+1", None),
        ("/l/-", None),
        ("/l/", None),
        ("/l/x", None),
        ("/l/99999999999999999999999", None),
        ("/", Some(r#"{"":3}"#)),
        ("//", Some("3")),
        ("/m~1n", Some("4")),
        ("/m~0n", Some("5")),
        ("/~01", Some("6")),
        ("/set", Some("7")),
        ("/null", Some("null")),
        ("/null/x", None),
        ("/text/0", None),
        ("/0", Some("11")),
        ("/01", Some("12")),
    ] {
        let value = pointer(text).find(&body).unwrap();
        assert_eq!(value.as_ref().map(Value::as_str), found, "{text}");
    }
}

#[test]
fn what_is_no_pointer() {
    for (text, error) in [
        ("", PointerError::NoSlash),
        ("a", PointerError::NoSlash),
        ("a/b", PointerError::NoSlash),
        ("#/a", PointerError::NoSlash),
        ("/a~", PointerError::Tilde),
        ("/a~2b", PointerError::Tilde),
        ("/~~0", PointerError::Tilde),
        ("/~/0", PointerError::Tilde),
    ] {
        assert_eq!(text.parse::<Pointer>(), Err(error), "{text}");
    }
}

#[test]
fn pointers_are_written_as_they_were() {
    for text in ["/a/b/c", "/", "//", "/m~1n/~0", "/~01", "/l/0"] {
        assert_eq!(pointer(text).to_string(), text);
    }
}

#[test]
fn an_object_on_the_way_may_be_unreadable() {
    let members: Vec<_> = (0..=MAX_MEMBERS).map(|n| format!("\"{n}\":{n}")).collect();
    let body = object(&format!(r#"{{"many":{{{}}},"half":{{"\ud83d":1}}}}"#, members.join(",")));
    assert_eq!(pointer("/many/1").find(&body).unwrap_err(), JsonError::TooManyMembers);
    assert!(matches!(pointer("/half/x").find(&body), Err(JsonError::Syntax { .. })));
    assert_eq!(pointer("/many").find(&body).unwrap().unwrap().kind(), Kind::Object);
}
