//! What is seen of a stream that passes by.

use proptest::prelude::*;

use super::super::watch::{StreamEnd, StreamWatch};
use crate::test_util::Recorded;

/// As what a stream counts that came in these parts and then ended.
fn seen_by(mut watch: StreamWatch, parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<String> {
    let recorded = Recorded::default();
    metrics::with_local_recorder(&recorded, || {
        parts.into_iter().for_each(|part| watch.data(part.as_ref()));
        watch.end(StreamEnd::Clean);
        drop(watch);
    });
    recorded.all().into_keys().collect()
}

fn seen(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> String {
    let counted = seen_by(StreamWatch::events(), parts);
    let [one] = counted.as_slice() else { panic!("counted once: {counted:?}") };
    let end = one.strip_prefix("disagg_generation_streams_total{end=").unwrap();
    end.strip_suffix('}').unwrap().to_owned()
}

const CASES: [(&str, &str); 34] = [
    ("", "no_done"),
    ("data: [DONE]\n\n", "done"),
    ("data: [DONE]\r\n\r\n", "done"),
    ("data: [DONE]\r\r", "done"),
    ("data: [DONE]", "done"),
    ("data: {}\n\ndata: [DONE]\n\nmore\n", "done"),
    // One space is not part of the data; a second one is.
    ("data:[DONE]\n\n", "done"),
    ("data:  [DONE]\n\n", "no_done"),
    (" data: [DONE]\n", "no_done"),
    ("data: [DONE] \n", "no_done"),
    ("data: [DONE]]]]]]\n", "no_done"),
    ("data: [DON\nE]\n", "no_done"),
    ("data [DONE]\n\n", "no_done"),
    ("datax: [DONE]\n\n", "no_done"),
    ("DATA: [DONE]\n\n", "no_done"),
    ("\u{feff}data: [DONE]\n\n", "no_done"),
    // The data of an event may stand on several lines, among other fields.
    ("event: end\ndata: [DONE]\nid: 1\n\n", "done"),
    ("data: {}\ndata: [DONE]\n\n", "no_done"),
    ("data: [DONE]\ndata: {}\n\n", "no_done"),
    ("data:\ndata: [DONE]\n\n", "no_done"),
    ("data: [DONE]\ndata\n\n", "no_done"),
    ("data\n\ndata: [DONE]\n\n", "done"),
    ("data: {}\r\ndata: [DONE]\r\n\r\n", "no_done"),
    ("data: {}\n\rdata: [DONE]\r\n\r\n", "done"),
    ("data: {\"content\":\"data: [DONE]\"}\n\n", "no_done"),
    ("data: {\"content\":\"\\ndata: {\\\"error\\\"\"}\n\n", "no_done"),
    ("data: {\"error\":{\"message\":\"m\"}}\n\n", "error_event"),
    ("data: {\"error\": \"m\"}\r\n\r\ndata: [DONE]\r\n\r\n", "error_event"),
    ("data:{\"error\":1}\n\n", "error_event"),
    ("data: {\"error\"\ndata: :1}\n\n", "error_event"),
    ("data: x\ndata: {\"error\":1}\n\n", "no_done"),
    ("data: {\"errors\":1}\n", "no_done"),
    ("data: {\"erro\n", "no_done"),
    (": comment\n\nevent: x\ndata: {\"error\"", "error_event"),
];

#[test]
fn marks_are_whole_events_however_they_are_cut() {
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
fn a_reply_that_is_no_stream_is_not_counted() {
    assert_eq!(seen_by(StreamWatch::anything(), ["data: [DONE]\n\ndata: {\"error\":1}\n"]), [""; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Cutting never matters, against a straightforward reading of the whole.
    #[test]
    fn any_text_in_any_pieces(
        lines in prop::collection::vec(
            prop_oneof![
                Just("data: [DONE]".to_owned()), Just("data: {\"error\"".to_owned()), Just(String::new()),
                Just(String::new()), "data: \\[DONE\\][ x]{0,3}", "[a-z: {\"\\[]{0,20}", "data: \\{\"error\"[a-z]{0,9}",
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
        // Where an empty line stands between the two, a return and a newline are one line end.
        let plain = text.replace("\r\n", "\n").replace('\r', "\n");
        let lines: Vec<&str> = plain.split('\n').collect();
        let events = lines.split(|line| line.is_empty());
        let events: Vec<Vec<_>> = events.map(|event| event.iter().filter_map(|line| line.strip_prefix("data: ")).collect()).collect();
        let done = events.iter().any(|data| *data == ["[DONE]"]);
        let error = events.iter().any(|data| data.first().is_some_and(|data| data.starts_with("{\"error\"")));
        let expected = if error { "error_event" } else if done { "done" } else { "no_done" };
        prop_assert_eq!(seen(parts), expected);
    }
}
