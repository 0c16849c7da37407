//! Validation errors of the worker's web framework, as the text of a Python list of dictionaries:
//! `[{'type': 'missing', 'loc': ('body', 'model'), 'msg': 'Field required', 'input': {…}}]`, with a line about their
//! number before it and source paths behind it in newer versions.

/// The most parts of a place that are shown.
pub(super) const MOST_PLACES: usize = 8;

/// Place and reason of the first error; `None` when the text is no such list.
pub(super) fn first(text: &str) -> Option<String> {
    let start = text.find("{'type': ")?;
    // What follows `input` is the client's, and could look like the rest.
    let head = &text[start..];
    let head = &head[..head.find("'input': ").unwrap_or(head.len())];
    let (_, rest) = head.split_once("'loc': (")?;
    let (place, rest) = rest.split_once(')')?;
    let (_, rest) = rest.split_once("'msg': ")?;
    let place: Vec<String> = place
        .split(',')
        .map(|part| part.trim().trim_matches(['\'', '"']).to_owned())
        .filter(|part| !part.is_empty())
        .take(MOST_PLACES)
        .collect();
    Some(sentence(&place, &literal(rest)?))
}

/// `body.model: Field required`.
pub(super) fn sentence(place: &[String], reason: &str) -> String {
    if place.is_empty() { reason.to_owned() } else { format!("{}: {reason}", place.join(".")) }
}

/// The string literal at the beginning of a text; escapes other than of quotes and backslashes stay as they are.
fn literal(text: &str) -> Option<String> {
    let mut chars = text.chars();
    let quote = chars.next().filter(|c| matches!(c, '\'' | '"'))?;
    let mut out = String::new();
    while let Some(c) = chars.next() {
        match c {
            c if c == quote => return Some(out),
            '\\' => match chars.next()? {
                escaped @ ('\\' | '\'' | '"') => out.push(escaped),
                other => out.extend(['\\', other]),
            },
            c => out.push(c),
        }
    }
    None
}
