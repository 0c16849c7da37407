//! The whole answer to a request, planned before its first token is sent.

use super::tokens::{Answer, fingerprint, token_text};

/// All answers to one request have no more tokens than this.
pub(crate) const MAX_TOKENS: usize = 1 << 20;

/// What shapes an answer, apart from the prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Want {
    pub(crate) max_tokens: Option<usize>,
    pub(crate) min_tokens: usize,
    pub(crate) ignore_eos: bool,
    pub(crate) stop: Vec<String>,
    pub(crate) stop_token_ids: Vec<i64>,
    pub(crate) include_stop: bool,
    pub(crate) mode: Mode,
    /// How many answers the request asks for; they share the most there is.
    pub(crate) answers: usize,
}

/// What kind of answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    #[default]
    Text,
    /// The first half of the natural length is reasoning.
    Reasoning,
    /// Calls of these tools, one after the other; each has its share of the natural length.
    Tools(Vec<String>),
}

/// Where the text of a token goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Content,
    Reasoning,
    /// The arguments of the tool call with this number.
    Tool(usize),
}

/// One token of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) id: i64,
    pub(crate) text: String,
    pub(crate) channel: Channel,
}

/// Why an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    Stop,
    Length,
    ToolCalls,
    ContentFilter,
}

impl Finish {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
            Self::ContentFilter => "content_filter",
        }
    }
}

/// What stopped an answer, when the request named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StopReason {
    Text(String),
    Token(i64),
}

/// A planned answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) finish: Finish,
    pub(crate) stop_reason: Option<StopReason>,
}

impl Plan {
    /// The text of one channel.
    pub(crate) fn text(&self, channel: Channel) -> String {
        self.pieces.iter().filter(|piece| piece.channel == channel).map(|piece| piece.text.as_str()).collect()
    }

    /// The tool calls; of those that a limit left without a token there is nothing.
    pub(crate) fn calls(&self, tools: &[String]) -> Vec<Call> {
        let mut calls: Vec<Call> = Vec::new();
        for at in 0..self.pieces.len() {
            let Some(part) = self.call_part(at, tools) else { continue };
            match (part.head, calls.last_mut()) {
                (Some((id, name)), _) => calls.push(Call { id, name, arguments: part.arguments }),
                (None, Some(call)) => call.arguments.push_str(&part.arguments),
                (None, None) => {}
            }
        }
        calls
    }

    /// What one token adds to the tool calls.
    pub(crate) fn call_part(&self, at: usize, tools: &[String]) -> Option<CallPart> {
        let piece = &self.pieces[at];
        let Channel::Tool(index) = piece.channel else { return None };
        let first = at == 0 || self.pieces[at - 1].channel != piece.channel;
        let last = match self.pieces.get(at + 1) {
            Some(next) => next.channel != piece.channel,
            // An answer that was cut does not close its arguments.
            None => self.finish == Finish::ToolCalls,
        };
        let start = if first { ARGUMENTS_START } else { "" };
        let end = if last { ARGUMENTS_END } else { "" };
        let number = i64::try_from(index).unwrap_or(i64::MAX);
        let id = || format!("chatcmpl-tool-{:016x}", fingerprint(&[piece.id, number]));
        Some(CallPart {
            index,
            head: first.then(|| (id(), tools.get(index).cloned().unwrap_or_default())),
            arguments: format!("{start}{}{end}", piece.text),
        })
    }

    /// Ends the answer at once: one token was made, and it has no text.
    pub(crate) fn end_at_once(&mut self) {
        self.finish = Finish::Stop;
        self.stop_reason = None;
        self.pieces = vec![Piece { id: END_OF_ANSWER, text: String::new(), channel: Channel::Content }];
    }

    /// Spreads another text over the tokens.
    pub(crate) fn say(&mut self, text: &str) {
        let chars: Vec<char> = text.chars().collect();
        let count = self.pieces.len();
        for (at, piece) in self.pieces.iter_mut().enumerate() {
            let part = at * chars.len() / count..(at + 1) * chars.len() / count;
            piece.text = chars[part].iter().collect();
        }
    }
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    /// It follows from the answer.
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// What one token adds to a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallPart {
    /// The number of the call.
    pub(crate) index: usize,
    /// The id and the name, when it is the call's first token.
    pub(crate) head: Option<(String, String)>,
    pub(crate) arguments: String,
}

/// The token that ends an answer without a text.
pub(crate) const END_OF_ANSWER: i64 = 2;

/// Before the first token of a tool call.
const ARGUMENTS_START: &str = "{\"text\":\"";
/// After its last.
const ARGUMENTS_END: &str = "\"}";

/// Plans an answer of `natural` tokens, or as the request limits it. The tokens
/// in `replay` were made by another worker and come first, whatever they are.
pub(crate) fn plan(prompt: &[i64], want: &Want, natural: usize, replay: &[i64]) -> Plan {
    let answer = Answer::to(prompt);
    let wished = match want.max_tokens {
        Some(max) if want.ignore_eos => max,
        _ => natural.max(want.min_tokens),
    };
    let limit = want.max_tokens.unwrap_or(usize::MAX);
    let count = wished.min(limit).clamp(1, (MAX_TOKENS / want.answers.max(1)).max(1));
    let mut finish = match &want.mode {
        _ if wished > limit || (want.ignore_eos && want.max_tokens.is_some()) => Finish::Length,
        Mode::Tools(_) => Finish::ToolCalls,
        _ => Finish::Stop,
    };
    // By the natural length, so that a limit does not move the border.
    let length = natural.max(want.min_tokens).max(1);
    let thoughts = if want.mode == Mode::Reasoning { length / 2 } else { 0 };
    let mut stops = Stops::new(want);
    let mut stop_reason = None;
    let mut pieces: Vec<Piece> = Vec::with_capacity(count);
    for at in 0..count {
        let id = replay.get(at).copied().unwrap_or_else(|| answer.token(at));
        let channel = match &want.mode {
            Mode::Tools(tools) => Channel::Tool((at * tools.len() / length).min(tools.len().max(1) - 1)),
            _ if at < thoughts => Channel::Reasoning,
            _ => Channel::Content,
        };
        if at >= want.min_tokens && want.stop_token_ids.contains(&id) {
            finish = Finish::Stop;
            stop_reason = Some(StopReason::Token(id));
            if pieces.is_empty() || want.include_stop {
                let text = if want.include_stop { token_text(id) } else { String::new() };
                pieces.push(Piece { id, text, channel });
            }
            break;
        }
        let text = token_text(id);
        let hit = (at >= want.min_tokens).then(|| stops.push(&text)).flatten();
        pieces.push(Piece { id, text, channel });
        if let Some((stop, cut)) = hit {
            if !want.include_stop {
                shorten(&mut pieces, cut);
            }
            finish = Finish::Stop;
            stop_reason = Some(StopReason::Text(stop));
            break;
        }
    }
    Plan { pieces, finish, stop_reason }
}

/// Takes bytes off the end of the text; the tokens stay counted.
fn shorten(pieces: &mut [Piece], mut bytes: usize) {
    for piece in pieces.iter_mut().rev() {
        if bytes == 0 {
            return;
        }
        let keep = piece.text.len().saturating_sub(bytes);
        bytes -= piece.text.len() - keep;
        let keep = (0..=keep).rev().find(|at| piece.text.is_char_boundary(*at));
        piece.text.truncate(keep.unwrap_or(0));
    }
}

/// Looks for stop texts in the end of what was said, which is all it keeps.
struct Stops<'a> {
    stops: &'a [String],
    longest: usize,
    tail: String,
}

impl<'a> Stops<'a> {
    fn new(want: &'a Want) -> Self {
        Self {
            stops: &want.stop,
            longest: want.stop.iter().map(String::len).max().unwrap_or(0),
            tail: String::new(),
        }
    }

    /// Adds a token's text; a stop text that is now complete, and how many
    /// bytes from its start to the end.
    fn push(&mut self, text: &str) -> Option<(String, usize)> {
        if self.stops.is_empty() {
            return None;
        }
        self.tail.push_str(text);
        let hits = self.stops.iter().filter_map(|stop| {
            let at = self.tail.find(stop.as_str())?;
            Some((at, stop))
        });
        if let Some((at, stop)) = hits.min_by_key(|(at, _)| *at) {
            return Some((stop.clone(), self.tail.len() - at));
        }
        let spare = self.tail.len().saturating_sub(self.longest);
        let spare = (0..=spare).rev().find(|at| self.tail.is_char_boundary(*at));
        self.tail.drain(..spare.unwrap_or(0));
        None
    }
}
