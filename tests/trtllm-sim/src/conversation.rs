//! Conversations: how a worker learns the id of one, and on which rank it
//! places its requests.

use crate::json::{Value, repr};
use crate::release::Generation;
use http::HeaderMap;
use std::collections::HashMap;

/// What a worker looks at, in this order; the newest look at Claude's first.
const CLAUDE: [&str; 2] = ["x-claude-code-session-id", "x-claude-session-id"];
const SESSION: [&str; 4] =
    ["x-session-id", "x-correlation-id", "x-session-affinity", "x-multi-turn-session-id"];

/// The id in a body that passed the validator.
pub(crate) fn in_body(body: &Value) -> Option<String> {
    let id = body.given("conversation_params")?.given("conversation_id")?;
    let mut text = String::new();
    match id {
        Value::Str(id) => text.push_str(id),
        // Turned into a text, whatever it is.
        other => repr(other, &mut text),
    }
    Some(strip(&text).to_owned())
}

/// The id in the headers: the first that is not blank, and of a repeated one
/// the last. The worker's framework reads their bytes as latin-1.
pub(crate) fn in_headers(generation: Generation, headers: &HeaderMap) -> Option<String> {
    if generation < Generation::G3 {
        return None;
    }
    let claude = if generation >= Generation::G4n { &CLAUDE[..] } else { &[] };
    claude.iter().chain(&SESSION).find_map(|name| {
        let value = headers.get_all(*name).iter().next_back()?;
        let text: String = value.as_bytes().iter().map(|byte| char::from(*byte)).collect();
        Some(strip(&text).to_owned()).filter(|id| !id.is_empty())
    })
}

/// Without what the worker's language takes for white space.
fn strip(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c))
}

/// A conversation that an engine knows.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conversation {
    /// Its id, as the worker reads it.
    pub id: String,
    /// The rank its requests are placed on.
    pub rank: usize,
    /// How many there were.
    pub requests: u64,
}

/// Most conversations known at a time, and most bytes of their ids; the one
/// that was quiet for longest is forgotten first.
const MOST: usize = 4_096;
const MOST_BYTES: usize = 1 << 20;

/// The attention-DP ranks of an engine.
#[derive(Debug)]
pub(crate) struct Ranks {
    count: usize,
    affinity: bool,
    /// Requests, and new conversations, take turns.
    next: usize,
    known: HashMap<String, Known>,
    bytes: usize,
    clock: u64,
}

#[derive(Debug)]
struct Known {
    rank: usize,
    requests: u64,
    last: u64,
}

impl Ranks {
    pub(crate) fn new(count: usize, affinity: bool) -> Self {
        Self { count, affinity, next: 0, known: HashMap::new(), bytes: 0, clock: 0 }
    }

    /// The rank of a request.
    pub(crate) fn place(&mut self, conversation: Option<&str>) -> usize {
        let Some(id) = conversation.filter(|_| self.affinity) else {
            return self.turn();
        };
        self.clock += 1;
        if let Some(known) = self.known.get_mut(id) {
            (known.requests, known.last) = (known.requests + 1, self.clock);
            return known.rank;
        }
        let rank = self.turn();
        self.known.insert(id.to_owned(), Known { rank, requests: 1, last: self.clock });
        self.bytes += id.len();
        while self.known.len() > MOST || self.bytes > MOST_BYTES {
            self.forget_one();
        }
        rank
    }

    fn turn(&mut self) -> usize {
        let rank = self.next % self.count;
        self.next = rank + 1;
        rank
    }

    fn forget_one(&mut self) {
        let quiet = self.known.iter().min_by_key(|(_, known)| known.last).map(|(id, _)| id.clone());
        let Some(id) = quiet else { return };
        self.known.remove(&id);
        self.bytes -= id.len();
    }

    /// Those known, the latest first.
    pub(crate) fn conversations(&self) -> Vec<Conversation> {
        let mut list: Vec<_> = self.known.iter().collect();
        list.sort_by_key(|(_, known)| std::cmp::Reverse(known.last));
        list.into_iter()
            .map(|(id, known)| Conversation { id: id.clone(), rank: known.rank, requests: known.requests })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    /// Names and values of headers.
    type List<'a> = &'a [(&'static str, &'a [u8])];

    fn headers(list: List<'_>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn ids_in_headers() {
        use Generation::{G2Late, G3, G4, G4n};
        #[rustfmt::skip]
        let table: &[(List<'_>, [Option<&str>; 3])] = &[
            (&[], [None; 3]),
            (&[("x-session-id", b"a")], [Some("a"); 3]),
            (&[("x-multi-turn-session-id", b"d"), ("x-session-affinity", b"c")], [Some("c"); 3]),
            (&[("x-session-affinity", b"c"), ("x-correlation-id", b"b")], [Some("b"); 3]),
            (&[("x-correlation-id", b"b"), ("x-session-id", b"a")], [Some("a"); 3]),
            (&[("x-session-id", b" "), ("x-correlation-id", b"b")], [Some("b"); 3]),
            (&[("x-session-id", b"\xa0\t"), ("x-correlation-id", b"")], [None; 3]),
            (&[("x-session-id", b"a"), ("x-session-id", b"z")], [Some("z"); 3]),
            (&[("x-session-id", b"a"), ("x-session-id", b" "), ("x-correlation-id", b"b")], [Some("b"); 3]),
            (&[("x-session-id", b"\xe9 \xc3\xa9\x85")], [Some("\u{e9} \u{c3}\u{a9}"); 3]),
            (&[("x-claude-session-id", b"s"), ("x-session-id", b"a")], [Some("a"), Some("a"), Some("s")]),
            (&[("x-claude-session-id", b"s")], [None, None, Some("s")]),
            (&[("x-claude-session-id", b"s"), ("x-claude-code-session-id", b"c")], [None, None, Some("c")]),
            (&[("x-claude-code-session-id", b" "), ("x-session-id", b"a")], [Some("a"); 3]),
            (&[("x-request-id", b"r")], [None; 3]),
        ];
        for (list, expected) in table {
            for (generation, expected) in [G3, G4, G4n].into_iter().zip(expected) {
                let found = in_headers(generation, &headers(list));
                assert_eq!(found.as_deref(), *expected, "{generation} {list:?}");
            }
            assert_eq!(in_headers(G2Late, &headers(list)), None);
        }
    }

    #[test]
    fn ids_in_bodies() {
        for (params, expected) in [
            (r#"{"conversation_id":" a "}"#, Some("a")),
            (r#"{"conversation_id":5}"#, Some("5")),
            (r#"{"conversation_id":true}"#, Some("True")),
            (r#"{"conversation_id":[]}"#, Some("[]")),
            (r#"{"conversation_id":["a"]}"#, Some("['a']")),
            (r#"{"conversation_id":"a","conversation_id":"b"}"#, Some("b")),
            ("null", None),
        ] {
            let body = format!(r#"{{"conversation_params":{params}}}"#);
            let body = crate::json::read(&body).unwrap();
            assert_eq!(in_body(&body).as_deref(), expected, "{params}");
        }
        assert_eq!(in_body(&crate::json::read("{}").unwrap()), None);
    }

    #[test]
    fn conversations_stay_on_their_rank() {
        let mut ranks = Ranks::new(3, true);
        let placed =
            [Some("a"), Some("b"), Some("a"), None, Some("c"), Some("b"), None].map(|id| ranks.place(id));
        assert_eq!(placed, [0, 1, 0, 2, 0, 1, 1]);
        let known: Vec<_> = ranks.conversations().into_iter().map(|c| (c.id, c.rank, c.requests)).collect();
        assert_eq!(known, [("b".to_owned(), 1, 2), ("c".to_owned(), 0, 1), ("a".to_owned(), 0, 2)]);
    }

    #[test]
    fn without_affinity_every_request_takes_its_turn() {
        let mut ranks = Ranks::new(2, false);
        assert_eq!([Some("a"), Some("a"), None, Some("a")].map(|id| ranks.place(id)), [0, 1, 0, 1]);
        assert_eq!(ranks.conversations(), []);
    }

    #[test]
    fn the_quietest_conversations_are_forgotten() {
        let mut ranks = Ranks::new(7, true);
        for number in 0..MOST {
            ranks.place(Some(&format!("{number}")));
        }
        let first = ranks.place(Some("0"));
        ranks.place(Some("one more"));
        assert_eq!(ranks.known.len(), MOST);
        assert_eq!((ranks.place(Some("0")), first), (0, 0));
        assert!(!ranks.known.contains_key("1"));
        let long = "x".repeat(MOST_BYTES / 2);
        for id in ["a", "b", "c"] {
            ranks.place(Some(&(id.to_owned() + &long)));
        }
        assert!(ranks.bytes <= MOST_BYTES && ranks.known.len() == 1);
        assert_eq!(ranks.bytes, ranks.known.keys().map(String::len).sum::<usize>());
        ranks.place(Some(&long.repeat(3)));
        assert_eq!((ranks.bytes, ranks.known.len()), (0, 0));
    }
}
