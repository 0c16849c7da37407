use super::*;

fn value(json: &str) -> Value {
    let text = format!(r#"{{"x":{json}}}"#);
    Object::parse(text.into_bytes().into()).unwrap().last("x").unwrap()
}

#[test]
fn lists_of_integers() {
    for json in ["[1]", "[0, -1 ,\n2]", "[\t151643\r]", "[999999999999999999]"] {
        assert_eq!(check_list(&value(json)), Ok(()), "{json}");
        assert_eq!(check_prompt(&value(json)), Ok(()), "{json}");
    }
    for json in [
        "[]",
        "[ ]",
        "[1.5]",
        "[1e3]",
        "[1,null]",
        "[true]",
        r#"["1"]"#,
        "[{}]",
        "[1,[2]]",
        "[9999999999999999999]",
    ] {
        assert!(check_list(&value(json)).is_err(), "{json}");
        assert!(check_prompt(&value(json)).is_err(), "{json}");
    }
    for json in ["1", "null", "{}", r#""[1]""#, "true"] {
        assert!(check_list(&value(json)).is_err(), "{json}");
        assert!(check_prompt(&value(json)).is_err(), "{json}");
    }
}

#[test]
fn a_prompt_may_be_one_list_in_a_list() {
    for json in ["[[1,2]]", "[ [ 1 ] ]"] {
        assert_eq!(check_prompt(&value(json)), Ok(()), "{json}");
        assert!(check_list(&value(json)).is_err(), "{json}");
    }
    for json in ["[[]]", "[[1],[2]]", "[[1],2]", "[[[1]]]", r#"[["1"]]"#, "[[1.0]]"] {
        assert!(check_prompt(&value(json)).is_err(), "{json}");
    }
}

#[test]
fn a_generated_token_is_no_negative_number() {
    assert_eq!(check_generated(&value("[0,7]")), Ok(()));
    for json in ["[]", "[-1]", "[3,-1]", r#"["a"]"#, "[[1]]", "5"] {
        assert!(check_generated(&value(json)).is_err(), "{json}");
    }
}
