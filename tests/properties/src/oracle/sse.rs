//! Server-sent events as the HTML standard has them, read from a text that is there as a whole.

/// What a stream says.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// The data of each event that is ended by an empty line.
    pub(crate) data: Vec<Vec<u8>>,
    /// The data of an event that the text breaks off in.
    pub(crate) unfinished: Option<Vec<u8>>,
}

/// Reads a whole text. A byte-order mark in front is not taken for one: no client of these streams does.
pub(crate) fn events(text: &[u8]) -> Events {
    let mut events = Events::default();
    let mut lines = lines(text);
    let last = lines.pop().unwrap_or_default();
    for line in lines {
        if line.is_empty() {
            events.data.extend(events.unfinished.take());
        } else {
            field(line, &mut events.unfinished);
        }
    }
    field(last, &mut events.unfinished);
    events
}

/// The lines of a text, and what stands behind the last line end.
fn lines(text: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while at < text.len() {
        let end = match &text[at..] {
            [b'\r', b'\n', ..] => 2,
            [b'\r' | b'\n', ..] => 1,
            _ => 0,
        };
        if end > 0 {
            lines.push(&text[start..at]);
            start = at + end;
        }
        at += end.max(1);
    }
    lines.push(&text[start..]);
    lines
}

fn field(line: &[u8], data: &mut Option<Vec<u8>>) {
    let (name, value) = match line.iter().position(|byte| *byte == b':') {
        Some(colon) => (&line[..colon], &line[colon + 1..]),
        None => (line, &line[line.len()..]),
    };
    if name != b"data" {
        return;
    }
    let value = value.strip_prefix(b" ").unwrap_or(value);
    match data {
        Some(data) => {
            data.push(b'\n');
            data.extend_from_slice(value);
        }
        None => *data = Some(value.to_vec()),
    }
}
