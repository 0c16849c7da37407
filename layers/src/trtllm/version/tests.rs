use super::*;
use crate::trtllm::schema;

fn release(text: &str) -> Release {
    Release::parse(text)
}

#[test]
fn releases_are_in_the_order_of_their_publication() {
    let ordered = [
        "1.0.0",
        "1.2.0",
        "1.3.0.dev3",
        "1.3.0a1",
        "1.3.0b1",
        "1.3.0rc2",
        "1.3.0rc3.dev1",
        "1.3.0rc3",
        "1.3.0rc22",
        "1.3.0rc22.post1",
        "1.3.0rc22.post2",
        "1.3.0rc23",
        "1.3.0",
        "1.3.0.post1",
        "1.3.1rc1",
        "1.4.0rc0",
        "1.4.0rc1",
        "9.9.9",
    ];
    for pair in ordered.windows(2) {
        assert!(release(pair[0]).is_recognised(), "{}", pair[0]);
        assert!(release(pair[0]) < release(pair[1]), "{} < {}", pair[0], pair[1]);
        assert_ne!(release(pair[0]), release(pair[1]));
    }
}

#[test]
fn spellings_of_one_release_are_equal() {
    for (one, other) in [
        ("1.3.0rc24", "v1.3.0rc24"),
        ("1.3.0rc24", " 1.3.0RC24\n"),
        ("1.3.0rc24", "1.3.0.rc24"),
        ("1.3.0rc24", "1.3.0-rc.24"),
        ("1.3.0rc24", "1.3.0rc24+cu130.git1234567"),
        ("1.3", "1.3.0"),
    ] {
        assert_eq!(release(one), release(other));
    }
}

#[test]
fn a_text_that_names_no_release_is_kept_and_equals_itself_only() {
    let long = format!("1.3.0rc{}", "1".repeat(80));
    for text in [
        "",
        "main",
        "1.3.0rc24x",
        "1.3.0.0",
        "1.3.0rc24 rc25",
        "1..3",
        "rc24",
        "1.3.0rc99999999999",
        "1.3.0.dev4294967295",
        "١.٣",
        &long,
    ] {
        let unknown = release(text);
        assert!(!unknown.is_recognised(), "{text}");
        assert_eq!(unknown, release(text));
        assert_ne!(unknown, release("1.3.0rc24"));
        assert_eq!(unknown.partial_cmp(&release("1.3.0rc24")), None);
    }
}

#[test]
fn display_gives_the_text_back_but_is_bounded_and_on_one_line() {
    assert_eq!(release("1.3.0rc22.post1").to_string(), "1.3.0rc22.post1");
    assert_eq!(release("a\nb é").to_string(), "a?b??");
    assert_eq!(release("").to_string(), "?");
    assert_eq!(release(&"é".repeat(1000)).to_string().len(), 64);
}

#[test]
fn version_replies() {
    let read = |body: &str| Release::from_version_reply(body.as_bytes()).map(|release| release.to_string());
    assert_eq!(read(r#"{"version":"1.3.0rc24"}"#).as_deref(), Some("1.3.0rc24"));
    assert_eq!(read(r#"{"version":"nightly","x":1}"#).as_deref(), Some("nightly"));
    for body in [
        "",
        "null",
        r#""1.3.0rc24""#,
        "{}",
        r#"{"version":null}"#,
        r#"{"version":1.3}"#,
        r#"{"version":" "}"#,
    ] {
        assert_eq!(read(body), None, "{body}");
    }
}

#[test]
fn releases_can_do_what_the_texts_say() {
    let oldest = |text: &str| release(text.split(' ').next().unwrap());
    let (supported, conversations) = (oldest(SUPPORTED), oldest(KEEPS_CONVERSATIONS));
    for text in [
        "1.0.0",
        "1.2.0",
        "1.3.0rc2",
        "1.3.0rc3",
        "1.3.0rc3.post1",
        "1.3.0rc20.post1",
        "1.3.0rc21",
        "1.3.0rc29",
        "1.3.0",
        "1.4.0rc1",
        "9.9.9",
    ] {
        let worker = Engine::Known(release(text));
        assert_eq!(worker.is_supported(), release(text) >= supported, "{text}");
        assert_eq!(worker.schema().keeps_conversations(), release(text) >= conversations, "{text}");
    }
    for unknown in [Engine::Unknown, Engine::Known(release("nightly"))] {
        assert!(unknown.is_supported() && unknown.schema().keeps_conversations());
    }
}

#[test]
fn newer_than_known() {
    let newer = |text: &str| Engine::Known(release(text)).is_newer_than_known();
    let newest = schema::newest();
    // Whatever the newest row is: itself, what amends it and all that is older are known.
    for text in [
        &*newest,
        &format!("{newest}.post1"),
        &format!("{newest}+cu13"),
        "1.3.0rc29",
        "1.3.0",
        "1.4.0rc7",
        "x",
    ] {
        assert!(!newer(text), "{text}");
    }
    assert!(newer("9.9.9"));
    assert!(!Engine::Unknown.is_newer_than_known());
}

#[test]
fn a_line_has_candidates_or_what_amends_a_release() {
    let line = |text: &str| Number::parse(text).unwrap().line();
    for (one, other, order) in [
        ("1.4.0rc0", "1.4.0rc7", Ordering::Equal),
        ("1.4.0rc0", "1.4.0rc7.post1", Ordering::Equal),
        ("1.4.0", "1.4.0.post1", Ordering::Equal),
        ("1.4.0b2", "1.4.0rc0", Ordering::Less),
        ("1.4.0rc7", "1.4.0", Ordering::Less),
        ("1.4.0", "1.4.1rc0", Ordering::Less),
        ("1.4.0.post1", "1.5.0.dev1", Ordering::Less),
    ] {
        assert_eq!(line(one).cmp(&line(other)), order, "{one}, {other}");
    }
}

/// Releases of rows.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.release;
        write!(f, "{major}.{minor}.{patch}")?;
        match self.stage {
            Stage::Final => Ok(()),
            Stage::Candidate => write!(f, "rc{}", self.stage_number),
            other => panic!("a row since {other:?}"),
        }
    }
}
