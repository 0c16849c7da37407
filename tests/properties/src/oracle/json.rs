//! JSON as RFC 8259 has it, read into a flat list of nodes.
//!
//! Not serde_json: the splitter is made of that. Nothing recurses, so that depth costs no stack here either.

/// A text that is one JSON value.
pub(crate) struct Doc<'a> {
    text: &'a str,
    /// In the order of their beginnings: a container, then what is in it.
    nodes: Vec<Node>,
}

struct Node {
    kind: Kind,
    start: usize,
    end: usize,
    /// The node behind this one and all that is in it.
    next: usize,
    /// The key in front of it, when it is in an object.
    key: Option<Key>,
}

struct Key {
    /// Quotes included.
    start: usize,
    end: usize,
    decoded: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

/// One value of a text.
#[derive(Clone, Copy)]
pub(crate) struct Json<'a> {
    doc: &'a Doc<'a>,
    at: usize,
}

impl<'a> Doc<'a> {
    /// `None` when the text is not exactly one JSON value in UTF-8. Half of a surrogate pair is no error.
    pub(crate) fn parse(text: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let nodes = Reader { whole: text, text: text.as_bytes(), at: 0, nodes: Vec::new() }.read()?;
        Some(Self { text, nodes })
    }

    pub(crate) fn root(&'a self) -> Json<'a> {
        Json { doc: self, at: 0 }
    }

    /// All values, in the order of their beginnings.
    pub(crate) fn all(&'a self) -> impl ExactSizeIterator<Item = Json<'a>> {
        (0..self.nodes.len()).map(|at| Json { doc: self, at })
    }

    /// How many containers are around the innermost value, itself counted when it is one.
    pub(crate) fn depth(&self) -> usize {
        let mut open: Vec<usize> = Vec::new();
        let mut deepest = 0;
        for (at, node) in self.nodes.iter().enumerate() {
            while open.last().is_some_and(|next| *next <= at) {
                open.pop();
            }
            if matches!(node.kind, Kind::Array | Kind::Object) {
                open.push(node.next);
                deepest = deepest.max(open.len());
            }
        }
        deepest
    }
}

impl<'a> Json<'a> {
    fn node(self) -> &'a Node {
        &self.doc.nodes[self.at]
    }

    pub(crate) fn kind(self) -> Kind {
        self.node().kind
    }

    /// Where it stands in the text.
    pub(crate) fn span(self) -> (usize, usize) {
        (self.node().start, self.node().end)
    }

    /// Its text.
    pub(crate) fn raw(self) -> &'a str {
        &self.doc.text[self.node().start..self.node().end]
    }

    pub(crate) fn is_null(self) -> bool {
        self.kind() == Kind::Null
    }

    /// Where its key stands in the text, quotes included.
    pub(crate) fn key_span(self) -> Option<(usize, usize)> {
        self.node().key.as_ref().map(|key| (key.start, key.end))
    }

    /// Its key as it stands in the text, quotes included.
    pub(crate) fn key_raw(self) -> &'a str {
        self.key_span().map_or("", |(start, end)| &self.doc.text[start..end])
    }

    /// Its key decoded; `None` with half of a surrogate pair in it.
    pub(crate) fn key(self) -> Option<&'a str> {
        self.node().key.as_ref()?.decoded.as_deref()
    }

    /// Decoded, when it is a string without half of a surrogate pair.
    pub(crate) fn text(self) -> Option<String> {
        (self.kind() == Kind::String).then(|| decode(self.raw())).flatten()
    }

    /// What is in it, in order.
    pub(crate) fn children(self) -> impl Iterator<Item = Json<'a>> {
        let end = self.node().next;
        let mut at = self.at + 1;
        std::iter::from_fn(move || {
            let child = (at < end).then_some(Json { doc: self.doc, at })?;
            at = child.node().next;
            Some(child)
        })
    }

    /// The members of this name, spelt in whatever way.
    pub(crate) fn named(self, key: &str) -> Vec<Json<'a>> {
        let is_object = self.kind() == Kind::Object;
        self.children().filter(|child| is_object && child.key() == Some(key)).collect()
    }

    /// The last member of this name.
    pub(crate) fn last(self, key: &str) -> Option<Json<'a>> {
        self.named(key).pop()
    }

    /// An integer without fraction and exponent that fits, by its digits.
    pub(crate) fn integer(self) -> Option<i128> {
        if self.kind() != Kind::Number {
            return None;
        }
        let (sign, digits) = self.raw().strip_prefix('-').map_or((1, self.raw()), |digits| (-1, digits));
        digits.bytes().try_fold(0_i128, |sum, digit| {
            let digit = digit.is_ascii_digit().then_some(i128::from(digit) - i128::from(b'0'))?;
            sum.checked_mul(10)?.checked_add(sign * digit)
        })
    }
}

/// The text of a string that is known to be well formed, quotes included.
fn decode(raw: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = raw.get(1..raw.len() - 1)?.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next()? {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let first = hex(&mut chars)?;
                let units = match first {
                    0xd800..=0xdbff if chars.as_str().starts_with("\\u") => {
                        chars.nth(1);
                        vec![first, hex(&mut chars)?]
                    }
                    _ => vec![first],
                };
                char::decode_utf16(units).next()?.ok()?
            }
            plain => plain,
        });
    }
    Some(out)
}

fn hex(chars: &mut std::str::Chars<'_>) -> Option<u16> {
    (0..4).try_fold(0, |sum, _| Some(sum * 16 + u16::try_from(chars.next()?.to_digit(16)?).ok()?))
}

// === reading ===

struct Reader<'a> {
    whole: &'a str,
    text: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
}

/// What has to come next.
enum Next {
    Value(Option<Key>),
    Key,
    /// A comma, or the end of the innermost container.
    Rest,
}

impl Reader<'_> {
    fn read(mut self) -> Option<Vec<Node>> {
        let mut open: Vec<usize> = Vec::new();
        let mut next = Next::Value(None);
        loop {
            self.space();
            next = match next {
                Next::Key => {
                    let start = self.at;
                    self.string()?;
                    let (end, decoded) = (self.at, decode(&self.whole[start..self.at]));
                    let key = Key { start, end, decoded };
                    self.space();
                    self.byte(b':')?;
                    Next::Value(Some(key))
                }
                Next::Value(key) => {
                    let (kind, start, index) = (self.kind()?, self.at, self.nodes.len());
                    self.nodes.push(Node { kind, start, end: start, next: index + 1, key });
                    match kind {
                        Kind::Array | Kind::Object => {
                            self.at += 1;
                            open.push(index);
                            self.space();
                            match (kind, self.peek()?) {
                                (_, b']' | b'}') => Next::Rest,
                                (Kind::Object, _) => Next::Key,
                                _ => Next::Value(None),
                            }
                        }
                        _ => {
                            self.scalar(kind)?;
                            self.nodes[index].end = self.at;
                            Next::Rest
                        }
                    }
                }
                Next::Rest => {
                    let Some(&container) = open.last() else {
                        return (self.at == self.text.len()).then_some(self.nodes);
                    };
                    let byte = self.peek()?;
                    self.at += 1;
                    match (self.nodes[container].kind, byte) {
                        (Kind::Object, b',') => Next::Key,
                        (Kind::Array, b',') => Next::Value(None),
                        (Kind::Object, b'}') | (Kind::Array, b']') => {
                            open.pop();
                            self.nodes[container].next = self.nodes.len();
                            self.nodes[container].end = self.at;
                            Next::Rest
                        }
                        _ => return None,
                    }
                }
            };
        }
    }

    fn kind(&self) -> Option<Kind> {
        Some(match self.peek()? {
            b'{' => Kind::Object,
            b'[' => Kind::Array,
            b'"' => Kind::String,
            b't' | b'f' => Kind::Bool,
            b'n' => Kind::Null,
            b'-' | b'0'..=b'9' => Kind::Number,
            _ => return None,
        })
    }

    fn scalar(&mut self, kind: Kind) -> Option<()> {
        match kind {
            Kind::String => self.string(),
            Kind::Number => self.number(),
            Kind::Null => self.word(b"null"),
            _ => self.word(b"true").or_else(|| self.word(b"false")),
        }
    }

    fn string(&mut self) -> Option<()> {
        self.byte(b'"')?;
        loop {
            match self.take()? {
                b'"' => return Some(()),
                0..0x20 => return None,
                b'\\' => match self.take()? {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                    b'u' => {
                        for _ in 0..4 {
                            self.take().filter(u8::is_ascii_hexdigit)?;
                        }
                    }
                    _ => return None,
                },
                _ => {}
            }
        }
    }

    fn number(&mut self) -> Option<()> {
        let _ = self.byte(b'-');
        match self.peek()? {
            b'0' => self.at += 1,
            _ => self.digits()?,
        }
        if self.byte(b'.').is_some() {
            self.digits()?;
        }
        if self.byte(b'e').or_else(|| self.byte(b'E')).is_some() {
            let _ = self.byte(b'+').or_else(|| self.byte(b'-'));
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        self.take().filter(u8::is_ascii_digit)?;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        Some(())
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.text[self.at..].starts_with(word).then(|| self.at += word.len())
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn byte(&mut self, byte: u8) -> Option<()> {
        (self.peek() == Some(byte)).then(|| self.at += 1)
    }
}
