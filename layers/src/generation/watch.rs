//! How an event stream ended, for metrics: nothing that is relayed depends on it.

/// Looks at the beginnings of the lines of an event stream as it passes by.
///
/// It holds no more than the beginning of one line, so lines of any length and cut at any place cost nothing.
#[derive(Debug)]
pub(super) struct StreamWatch {
    /// Whether it is an event stream at all.
    events: bool,
    /// How a line began so far, without its line end.
    line: [u8; LONGEST],
    len: usize,
    done: bool,
    error: bool,
    ended: bool,
}

/// The last event of a complete stream.
const DONE: &[u8] = b"data: [DONE]";
/// An event that a worker sends when it fails (contract, section 4).
const ERROR: &[u8] = b"data: {\"error\"";
const LONGEST: usize = ERROR.len();

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
        Self { events, line: [0; LONGEST], len: 0, done: false, error: false, ended: false }
    }

    pub(super) fn data(&mut self, data: &[u8]) {
        if !self.events {
            return;
        }
        let mut rest = data;
        while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend(&rest[..at]);
            self.line();
            self.len = 0;
            rest = &rest[at + 1..];
        }
        self.extend(rest);
    }

    fn extend(&mut self, part: &[u8]) {
        let more = part.len().min(LONGEST - self.len);
        self.line[self.len..self.len + more].copy_from_slice(&part[..more]);
        self.len += more;
    }

    fn line(&mut self) {
        let line = &self.line[..self.len];
        self.done |= line == DONE;
        self.error |= line == ERROR;
    }

    /// The body has ended; counted once.
    pub(super) fn end(&mut self, end: StreamEnd) {
        if std::mem::replace(&mut self.ended, true) || !self.events {
            return;
        }
        // The last line may lack its line end.
        self.line();
        let how = match end {
            StreamEnd::Broken => "broken",
            StreamEnd::Clean if self.error => "error_event",
            StreamEnd::Clean if self.done => "done",
            StreamEnd::Clean => "no_done",
        };
        metrics::counter!("disagg_generation_streams_total", "end" => how).increment(1);
    }
}

impl Drop for StreamWatch {
    fn drop(&mut self) {
        if self.events && !self.ended {
            // After the last event nobody has to read on to the end of the body.
            self.line();
            let how = match (self.error, self.done) {
                (true, _) => "error_event",
                (false, true) => "done",
                (false, false) => "dropped",
            };
            metrics::counter!("disagg_generation_streams_total", "end" => how).increment(1);
        }
    }
}
