use super::*;

fn parsed(json: &str) -> Value {
    read(json).unwrap_or_else(|error| panic!("{json:.60}: {error:?}"))
}

#[test]
fn reads_what_the_worker_reads() {
    let table = [
        ("[1,-0,1.5,2e3]", "[1,0,1.5,2000.0]"),
        (r#"{"a":1,"b":2,"\u0061":3}"#, r#"{"a":3,"b":2}"#),
        ("[NaN,Infinity,-Infinity]", "[NaN,Infinity,-Infinity]"),
        (r#""\ud83d\ude00""#, "\"😀\""),
        (r#""\ud83d""#, "\"\u{fffd}\""),
        (r#""\u0000""#, r#""\u0000""#),
        (" \t\r\n{ } ", "{}"),
        ("9223372036854775808", "9223372036854775808"),
    ];
    for (json, expected) in table {
        assert_eq!(text(&parsed(json)), expected, "{json}");
    }
    let many: String = (0..500).map(|n| format!("\"k{}\":{n},", n % 100)).collect();
    let Value::Obj(members) = parsed(&format!("{{{many}\"z\":0}}")) else {
        panic!("not an object");
    };
    assert_eq!(members.len(), 101);
    assert_eq!(members[7], ("k7".into(), Value::int(407)));
}

#[test]
fn refuses_what_the_worker_refuses() {
    for json in [
        "",
        "{",
        "[1,]",
        "{\"a\":1,}",
        "[1] x",
        "01",
        "1.",
        ".5",
        "-",
        "+1",
        "\"\n\"",
        "\"\\x\"",
        "\"",
        "{a:1}",
        "nul",
        "[1 2]",
        "\"\\u12\"",
        "{\"a\" 1}",
        "1e",
    ] {
        assert!(matches!(read(json), Err(ReadError::Syntax(..))), "{json:?}: {:?}", read(json));
    }
    assert_eq!(read(r#"{"\ud83d":1}"#), Err(ReadError::Key));
    assert_eq!(read(&"[".repeat(100_000)), Err(ReadError::Limit));
    assert_eq!(read(&"7".repeat(5_000)), Err(ReadError::Limit));
    assert_eq!(parsed(&"7".repeat(400)), Value::Int("7".repeat(400)));
    let deep = format!("{}1{}", "[".repeat(900), "]".repeat(900));
    assert_eq!(text(&parsed(&deep)), deep);
}

#[test]
fn decodes_every_encoding_the_worker_guesses() {
    let json = "{\"a\":\"é😀\"}";
    let le: Vec<u8> = json.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let be: Vec<u8> = json.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let wide: Vec<u8> = json.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
    let with = |mark: &[u8], rest: &[u8]| [mark, rest].concat();
    for bytes in [
        json.as_bytes().to_vec(),
        with(&[0xef, 0xbb, 0xbf], json.as_bytes()),
        le.clone(),
        be.clone(),
        with(&[0xff, 0xfe], &le),
        with(&[0xfe, 0xff], &be),
        wide,
    ] {
        assert_eq!(decode(&bytes).as_deref(), Some(json), "{bytes:x?}");
    }
    assert_eq!(decode(b"\"\xed\xa0\xbd\"").as_deref(), Some("\"\u{fffd}\""));
    for bytes in [&b"\"\xff\""[..], b"\"\xc3", b"{\0\"\0x", b"\xff\xfe{"] {
        assert_eq!(decode(bytes), None, "{bytes:x?}");
    }
}

#[test]
fn quotes_as_the_validator_does() {
    let mut out = String::new();
    repr(&parsed(r#"{"a":[null,true,1,1.5,"it's","x\n\"'"],"b":{}}"#), &mut out);
    assert_eq!(out, r#"{'a': [None, True, 1, 1.5, "it's", 'x\n"\''], 'b': {}}"#);
}

#[test]
fn edits_by_path() {
    let mut value = parsed(r#"{"a":[{"b":1}],"c":2}"#);
    value.set("/a/0/b", Value::Null).unwrap();
    value.set("/d/e", Value::int(5)).unwrap();
    value.remove("/c").unwrap();
    value.remove("/nothing/here").unwrap();
    assert_eq!(text(&value), r#"{"a":[{"b":null}],"d":{"e":5}}"#);
    value.remove("/a/0").unwrap();
    assert_eq!(text(&value), r#"{"a":[],"d":{"e":5}}"#);
    assert!(value.set("/a/7", Value::Null).is_err());
    assert!(value.set("a", Value::Null).is_err());
    assert!(value.set("/d/e/f", Value::Null).is_err());
    assert!(value.remove("").is_err());
    assert!(value.set(&"/a".repeat(65), Value::Null).is_err());
}
