use bytes::Bytes;

use super::{Object, Segments};

/// A changed copy of an [`Object`], made of slices of its text.
///
/// Members keep their order, and neighbours that both stay keep what stands between them. Keys are compared decoded,
/// and a change holds for every occurrence of a key.
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
        let mut out = Writer { text: object.text(), run: None, empty: true, out: Segments::new() };
        out.out.push(Bytes::from_static(b"{"));
        for member in object.spans() {
            match changes.iter_mut().find(|(key, _)| **key == *member.key) {
                None => out.keep(member.span.start, member.span.end),
                Some((_, Pending::Remove | Pending::Done)) => out.flush(),
                Some((_, pending @ Pending::Set(_))) => {
                    if let Pending::Set(json) = std::mem::replace(pending, Pending::Done) {
                        out.keep(member.span.start, member.value.start);
                        out.flush();
                        out.out.append(json);
                    }
                }
            }
        }
        out.flush();
        for (key, pending) in changes {
            if let Pending::Set(json) = pending {
                out.separate();
                out.out.push(format!("{}:", serde_json::Value::from(key)));
                out.out.append(json);
            }
        }
        out.out.push(Bytes::from_static(b"}"));
        out.out
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

/// Writes members; neighbours that are kept leave as one slice, with the comma and white space that stood between.
struct Writer<'a> {
    text: &'a Bytes,
    run: Option<(usize, usize)>,
    empty: bool,
    out: Segments,
}

impl Writer<'_> {
    fn keep(&mut self, from: usize, to: usize) {
        match &mut self.run {
            Some((_, end)) => *end = to,
            None => {
                self.separate();
                self.run = Some((from, to));
            }
        }
    }

    fn flush(&mut self) {
        if let Some((from, to)) = self.run.take() {
            self.out.push(self.text.slice(from..to));
        }
    }

    fn separate(&mut self) {
        if !self.empty {
            self.out.push(Bytes::from_static(b","));
        }
        self.empty = false;
    }
}
