use std::ops::Range;

use bytes::Bytes;

use super::{Object, Segments};

/// A changed copy of an [`Object`], made of slices of its text.
///
/// What is not named by a change keeps its bytes, white space included: a member that goes takes the comma before it
/// along (the first ones the comma behind them), and a value that is replaced nothing at all. Keys are compared
/// decoded, and a change holds for every occurrence of a key.
#[derive(Debug)]
#[must_use = "an edit does nothing until `finish`"]
pub struct Edit<'a> {
    object: &'a Object,
    changes: Vec<(&'static str, Change)>,
}

#[derive(Debug)]
enum Change {
    Remove,
    Set(Segments),
}

impl<'a> Edit<'a> {
    pub(super) fn new(object: &'a Object) -> Self {
        Self { object, changes: Vec::new() }
    }

    /// Leaves out every member named `key`.
    pub fn remove(mut self, key: &'static str) -> Self {
        self.changes.push((key, Change::Remove));
        self
    }

    /// Gives `key` the value `json`, in the place of its first occurrence (others are left out), or at the end when
    /// there is none. `json` has to be one JSON value: it goes into the text as it is.
    pub fn set(mut self, key: &'static str, json: impl Into<Segments>) -> Self {
        self.changes.push((key, Change::Set(json.into())));
        self
    }

    /// The new text. Of several changes to one key the last counts.
    pub fn finish(self) -> Segments {
        let Self { object, changes } = self;
        let mut changes = last_of_each(changes);
        let (text, members) = (object.text(), object.spans());
        let mut out = Writer { text, run: 0..0, out: Segments::new() };
        let brace = text.iter().position(|byte| *byte == b'{').map_or(0, |at| at + 1);
        // Up to the first member, and from the last one on.
        let lead = members.first().map_or(brace, |first| first.span.start);
        let tail = members.last().map_or(brace, |last| last.span.end);
        out.keep(0..lead);
        let (mut before, mut empty) = (lead, true);
        for member in members {
            let separator = before..member.span.start;
            before = member.span.end;
            let set = match changes.iter_mut().find(|(key, _)| **key == *member.key) {
                None => None,
                Some((_, Pending::Remove | Pending::Done)) => continue,
                Some((_, pending)) => Some(std::mem::replace(pending, Pending::Done)),
            };
            if !std::mem::take(&mut empty) {
                out.keep(separator);
            }
            match set {
                Some(Pending::Set(json)) => {
                    out.keep(member.span.start..member.value.start);
                    out.add(json);
                }
                _ => out.keep(member.span.clone()),
            }
        }
        for (key, pending) in changes {
            if let Pending::Set(json) = pending {
                let comma = if std::mem::take(&mut empty) { "" } else { "," };
                out.add(format!("{comma}{}:", serde_json::Value::from(key)));
                out.add(json);
            }
        }
        out.keep(tail..text.len());
        out.finish()
    }
}

enum Pending {
    Remove,
    Set(Segments),
    /// Set, and written already.
    Done,
}

fn last_of_each(changes: Vec<(&'static str, Change)>) -> Vec<(&'static str, Pending)> {
    let mut latest: Vec<(&'static str, Pending)> = Vec::with_capacity(changes.len());
    for (key, change) in changes {
        let change = match change {
            Change::Remove => Pending::Remove,
            Change::Set(json) => Pending::Set(json),
        };
        match latest.iter_mut().find(|(known, _)| *known == key) {
            Some((_, pending)) => *pending = change,
            None => latest.push((key, change)),
        }
    }
    latest
}

/// Writes pieces of the text, those that follow each other as one slice, and new text between them.
struct Writer<'a> {
    text: &'a Bytes,
    run: Range<usize>,
    out: Segments,
}

impl Writer<'_> {
    fn keep(&mut self, piece: Range<usize>) {
        if self.run.end == piece.start {
            self.run.end = piece.end;
        } else {
            self.flush();
            self.run = piece;
        }
    }

    fn add(&mut self, new: impl Into<Segments>) {
        self.flush();
        self.out.append(new.into());
    }

    fn flush(&mut self) {
        let run = std::mem::replace(&mut self.run, 0..0);
        self.out.push(self.text.slice(run));
    }

    fn finish(mut self) -> Segments {
        self.flush();
        self.out
    }
}
