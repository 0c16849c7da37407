use super::*;

#[test]
fn faults_are_read() {
    let read = Fault::from_json(
        r#"[{"on":"context","times":2,"before_head_ms":5,"status":503,"headers":{"retry-after":"7"},
             "body":{"a":1},"set":{"/choices/0/finish_reason":null},"remove":["/x"]},
            {"cut":{"after_bytes":9,"how":"rst"},"hang":{"after_tokens":2},"token_gap_ms":1}]"#,
    )
    .unwrap();
    let first = Fault {
        times: Some(2),
        before_head: Duration::from_millis(5),
        status: Some(503),
        headers: vec![("retry-after".into(), "7".into())],
        body: Some("{\"a\":1}".into()),
        set: vec![("/choices/0/finish_reason".into(), "null".into())],
        remove: vec!["/x".into()],
        ..Fault::on(On::Context)
    };
    let second = Fault {
        cut: Some(Cut { at: CutAt::Body(9), how: CutHow::Rst }),
        hang: Some(Hang::AfterTokens(2)),
        token_gap: Some(Duration::from_millis(1)),
        ..Fault::default()
    };
    assert_eq!(read, [first, second]);
}

#[test]
fn wrong_faults_are_refused_with_the_member() {
    for (json, named) in [
        ("{", "JSON"),
        ("5", "object"),
        (r#"{"nope":1}"#, "nope"),
        (r#"{"status":99}"#, "status"),
        (r#"{"status":"503"}"#, "status"),
        (r#"{"times":-1}"#, "times"),
        (r#"{"on":"ctx"}"#, "on must"),
        (r#"{"cut":{"at":"head","after_bytes":1}}"#, "after_bytes"),
        (r#"{"cut":{"at":"x"}}"#, "cut.at"),
        (r#"{"cut":{}}"#, "cut needs"),
        (r#"{"hang":{"x":1}}"#, "after_tokens"),
        (r#"{"before_head_ms":99999999999}"#, "before_head_ms"),
        (r#"{"eos":1}"#, "eos"),
        (r#"{"say":1}"#, "say"),
        (r#"{"finish":"length"}"#, "finish"),
    ] {
        let error = Fault::from_json(json).unwrap_err();
        assert!(error.contains(named), "{json}: {error}");
    }
}

#[test]
fn faults_wear_off() {
    let mut faults = Faults::default();
    faults.add(Fault::on(On::Context)).unwrap();
    faults.add(Fault { times: Some(2), ..Fault::on(On::Generation) }).unwrap();
    let context = |f: &Fault| f.on == On::Context;
    let generation = |f: &Fault| f.on == On::Generation;
    assert!(faults.take(generation).is_some());
    assert!(faults.take(generation).is_some());
    assert!(faults.take(generation).is_none());
    assert!(faults.take(context).is_some() && faults.take(context).is_some());
    faults.clear();
    assert_eq!(faults.len(), 0);
}
