//! How an event stream ended, for metrics: nothing that is relayed depends on it.

/// Reads an event stream as it passes by, as far as it takes to know how it ends.
///
/// What counts is what a client would see: an event, whose data may stand on several lines, not the text of a line. Two
/// things differ from the standard ("server-sent events" in HTML). An event that the body ends in counts, since nothing of the
/// answer is missing; and a byte-order mark in front is not passed over, as no client does that.
///
/// It holds no more than the beginning of one line, so lines of any length and cut at any place cost nothing.
#[derive(Debug)]
pub(super) struct StreamWatch {
    /// Whether it is an event stream at all.
    events: bool,
    /// How a line began so far, without its line end.
    line: [u8; LONGEST],
    len: usize,
    /// Whether the last byte was a carriage return: a newline behind it is part of the same line end.
    after_return: bool,
    /// What the event being read says, so far.
    event: Event,
    done: bool,
    error: bool,
    ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// Nothing: it has no data.
    Empty,
    /// Its data is `[DONE]`.
    Done,
    /// Its data begins like that of an error.
    Error,
    /// Something else.
    Other,
}

/// The data of the last event of a complete stream.
const DONE: &[u8] = b"[DONE]";
/// How the data of an event begins that a worker sends when it fails (contract, section 4).
const ERROR: &[u8] = b"{\"error\"";
const FIELD: &[u8] = b"data";
/// With the colon and the space that may stand behind the name of a field.
const LONGEST: usize = FIELD.len() + 2 + ERROR.len();

/// How the body under a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// At its end.
    Clean,
    /// With an error.
    Broken,
}

impl StreamWatch {
    /// For an event stream.
    pub(super) fn events() -> Self {
        Self::new(true)
    }

    /// For a reply of another kind, which has no events to look for.
    pub(super) fn anything() -> Self {
        Self::new(false)
    }

    fn new(events: bool) -> Self {
        Self {
            events,
            line: [0; LONGEST],
            len: 0,
            after_return: false,
            event: Event::Empty,
            done: false,
            error: false,
            ended: false,
        }
    }

    pub(super) fn data(&mut self, data: &[u8]) {
        if !self.events {
            return;
        }
        let mut rest = data;
        while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            // Nothing stands between the two bytes of one line end.
            let second_half = at == 0 && self.after_return && rest[0] == b'\n';
            if !second_half {
                self.extend(&rest[..at]);
                self.end_line();
            }
            self.after_return = rest[at] == b'\r';
            rest = &rest[at + 1..];
        }
        self.extend(rest);
    }

    fn extend(&mut self, part: &[u8]) {
        let more = part.len().min(LONGEST - self.len);
        self.line[self.len..self.len + more].copy_from_slice(&part[..more]);
        self.len += more;
        self.after_return &= part.is_empty();
    }

    fn end_line(&mut self) {
        if self.len == 0 {
            self.end_event();
        } else if let Some(data) = data_of(&self.line[..self.len]) {
            self.event = match self.event {
                Event::Empty if data == DONE => Event::Done,
                Event::Empty if data.starts_with(ERROR) => Event::Error,
                // More data makes `[DONE]` another text, and leaves the beginning as it is.
                Event::Error => Event::Error,
                _ => Event::Other,
            };
        }
        self.len = 0;
    }

    fn end_event(&mut self) {
        self.done |= self.event == Event::Done;
        self.error |= self.event == Event::Error;
        self.event = Event::Empty;
    }

    /// Takes what was read for all there is: the last line and the last event may lack their ends.
    fn end_text(&mut self) {
        self.end_line();
        self.end_event();
    }

    /// The body has ended; counted once.
    pub(super) fn end(&mut self, end: StreamEnd) {
        if std::mem::replace(&mut self.ended, true) || !self.events {
            return;
        }
        self.end_text();
        let how = match end {
            StreamEnd::Broken => "broken",
            StreamEnd::Clean if self.error => "error_event",
            StreamEnd::Clean if self.done => "done",
            StreamEnd::Clean => "no_done",
        };
        metrics::counter!("disagg_generation_streams_total", "end" => how).increment(1);
    }
}

/// The data on a line, when it has the field for it. Longer data is cut.
fn data_of(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(FIELD)?;
    match rest.strip_prefix(b":") {
        Some(data) => Some(data.strip_prefix(b" ").unwrap_or(data)),
        None => rest.is_empty().then_some(rest),
    }
}

impl Drop for StreamWatch {
    fn drop(&mut self) {
        if self.events && !self.ended {
            // After the last event nobody has to read on to the end of the body.
            self.end_text();
            let how = match (self.error, self.done) {
                (true, _) => "error_event",
                (false, true) => "done",
                (false, false) => "dropped",
            };
            metrics::counter!("disagg_generation_streams_total", "end" => how).increment(1);
        }
    }
}
