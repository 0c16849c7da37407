//! What is seen of a stream that passes by.

use proptest::prelude::*;

use super::super::watch::StreamWatch;

fn seen(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> (bool, bool) {
    let mut watch = StreamWatch::events();
    parts.into_iter().for_each(|part| watch.data(part.as_ref()));
    let seen = watch.seen();
    watch.data(b"\n");
    // A line end more changes only what the last line, if it had none, is known to be.
    assert!(watch.seen().0 >= seen.0 && watch.seen().1 >= seen.1);
    watch.seen()
}

const CASES: [(&str, (bool, bool)); 17] = [
    ("", (false, false)),
    ("data: [DONE]\n\n", (true, false)),
    ("data: [DONE]\r\n\r\n", (true, false)),
    ("data: [DONE]\r\r", (true, false)),
    ("data: [DONE]", (true, false)),
    ("data: {}\n\ndata: [DONE]\n\nmore\n", (true, false)),
    (" data: [DONE]\n", (false, false)),
    ("data: [DONE] \n", (false, false)),
    ("data: [DONE]]]]]]\n", (false, false)),
    ("data: [DON\nE]\n", (false, false)),
    ("data: {\"content\":\"data: [DONE]\"}\n\n", (false, false)),
    ("data: {\"content\":\"\\ndata: {\\\"error\\\"\"}\n\n", (false, false)),
    ("data: {\"error\":{\"message\":\"m\"}}\n\n", (false, true)),
    ("data: {\"error\": \"m\"}\r\n\r\ndata: [DONE]\r\n\r\n", (true, true)),
    ("data: {\"errors\":1}\n", (false, false)),
    ("data: {\"erro\n", (false, false)),
    (": comment\n\nevent: x\ndata: {\"error\"", (false, true)),
];

#[test]
fn marks_are_whole_lines_however_they_are_cut() {
    for (text, expected) in CASES {
        assert_eq!(seen([text]), expected, "{text:?}");
        assert_eq!(seen(text.as_bytes().chunks(1)), expected, "{text:?} byte by byte");
        for cut in 0..text.len() {
            let (one, two) = text.as_bytes().split_at(cut);
            assert_eq!(seen([one, b"", two]), expected, "{text:?} cut at {cut}");
        }
    }
}

#[test]
fn a_reply_that_is_no_stream_has_no_marks() {
    let mut watch = StreamWatch::anything();
    watch.data(b"data: [DONE]\n\ndata: {\"error\":1}\n");
    assert_eq!(watch.seen(), (false, false));
}

proptest! {
    /// Cutting never matters, against a straightforward reading of the whole.
    #[test]
    fn any_text_in_any_pieces(
        lines in prop::collection::vec(
            prop_oneof![
                Just("data: [DONE]".to_owned()), Just("data: {\"error\"".to_owned()), Just(String::new()),
                "data: \\[DONE\\][ x]{0,3}", "[a-z: {\"\\[]{0,20}", "data: \\{\"error\"[a-z]{0,9}",
            ],
            0..8,
        ),
        ends in prop::collection::vec(prop::sample::select(vec!["\n", "\r\n", "\r"]), 8),
        cuts in prop::collection::vec(1_usize..9, 1..64),
    ) {
        let text: String = lines.iter().zip(&ends).flat_map(|(line, end)| [line.as_str(), end]).collect();
        let mut rest = text.as_bytes();
        let mut parts = Vec::new();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() { break; }
            let (part, more) = rest.split_at(rest.len().min(*cut));
            parts.push(part);
            rest = more;
        }
        let done = lines.iter().any(|line| line == "data: [DONE]");
        let error = lines.iter().any(|line| line.starts_with("data: {\"error\""));
        prop_assert_eq!(seen(parts), (done, error));
    }
}
