use std::{error::Error, fmt, str::FromStr, sync::Arc};

use super::{JsonError, Kind, Object, Value};

/// Names one value inside of an object, by RFC 6901: `/nvext/agent_context/session_id`, `/messages/0/role`.
///
/// Each part names a member, or an element of a list by its number; `~1` stands for a slash in a name, `~0` for a tilde.
/// The empty pointer, which names the whole, is none here.
///
/// ```
/// use bytes::Bytes;
/// use tower_disagg::json::{Object, Pointer};
///
/// let object = Object::parse(Bytes::from_static(br#"{"a/b": [{"c": 1}, {"c": 2}]}"#))?;
/// let pointer: Pointer = "/a~1b/1/c".parse()?;
/// assert_eq!(pointer.find(&object)?.unwrap().as_str(), "2");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer(Arc<[Box<str>]>);

impl Pointer {
    /// The value it names in `object`, when there is one. Of a repeated key the last one counts, as at the engines.
    ///
    /// Takes one pass over each value on the way.
    ///
    /// # Errors
    ///
    /// When an object on the way cannot be split: it has more than [`MAX_MEMBERS`](super::MAX_MEMBERS) members, or half
    /// of a surrogate pair in a key.
    pub fn find(&self, object: &Object) -> Result<Option<Value>, JsonError> {
        let mut parts = self.0.iter();
        let mut found = parts.next().and_then(|name| object.last(name));
        for part in parts {
            let Some(value) = found else { break };
            found = inside(&value, part)?;
        }
        Ok(found)
    }
}

fn inside(value: &Value, part: &str) -> Result<Option<Value>, JsonError> {
    match value.kind() {
        Kind::Object => Ok(value.object()?.last(part)),
        Kind::Array => Ok(index(part).and_then(|index| element(value, index))),
        _ => Ok(None),
    }
}

/// Digits only, without zeros in front.
fn index(part: &str) -> Option<usize> {
    let digits = part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
    digits.then(|| part.parse().ok()).flatten()
}

fn element(list: &Value, index: usize) -> Option<Value> {
    let (mut at, mut found) = (0, None);
    let walked = list.for_each(|value| {
        found = (at == index).then_some(value);
        at += 1;
        found.is_none()
    });
    walked.ok().and(found)
}

/// Why a text is no [`Pointer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PointerError {
    /// It does not start with a slash.
    NoSlash,
    /// A tilde is not followed by 0 or 1.
    Tilde,
}

impl fmt::Display for PointerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSlash => "a JSON pointer starts with a slash",
            Self::Tilde => "a tilde is written ~0 in a JSON pointer, and a slash inside of a name ~1",
        })
    }
}

impl Error for PointerError {}

impl FromStr for Pointer {
    type Err = PointerError;

    fn from_str(text: &str) -> Result<Self, PointerError> {
        let parts = text.strip_prefix('/').ok_or(PointerError::NoSlash)?;
        parts.split('/').map(name).collect::<Result<_, _>>().map(Self)
    }
}

fn name(part: &str) -> Result<Box<str>, PointerError> {
    let mut escapes = part.split('~').skip(1);
    if !escapes.all(|after| after.starts_with(['0', '1'])) {
        return Err(PointerError::Tilde);
    }
    // Slashes first, so that `~01` becomes `~1`.
    Ok(part.replace("~1", "/").replace("~0", "~").into())
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|name| write!(f, "/{}", name.replace('~', "~0").replace('/', "~1")))
    }
}
