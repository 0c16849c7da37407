//! A JSON reader with the habits of the worker's own: last key wins, lone
//! surrogates, NaN and integers of any size are taken, depth is limited.
//!
//! `serde_json` refuses some of these and changes others, and a simulated
//! engine that refuses what the real one takes hides bugs.

mod decode;
mod read;
mod write;

pub(crate) use decode::decode;
pub(crate) use read::{ReadError, read};
pub(crate) use write::{quote, repr, text};

/// One JSON value. Integers keep their digits.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(String),
    Float(f64),
    Str(String),
    Arr(Vec<Value>),
    Obj(Vec<(String, Value)>),
}

impl Value {
    /// A string value.
    pub(crate) fn str(text: impl Into<String>) -> Self {
        Self::Str(text.into())
    }

    /// An integer value.
    pub(crate) fn int(number: impl Into<i128>) -> Self {
        Self::Int(number.into().to_string())
    }

    /// A list of integers.
    pub(crate) fn ints(numbers: &[i64]) -> Self {
        Self::Arr(numbers.iter().map(|n| Self::int(*n)).collect())
    }

    /// An object of the given members, in this order.
    pub(crate) fn obj<'a>(members: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        Self::Obj(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// The member of an object.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Self::Obj(members) => members.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// The member of an object, unless it is null.
    pub(crate) fn given(&self, key: &str) -> Option<&Value> {
        self.get(key).filter(|value| **value != Self::Null)
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_arr(&self) -> Option<&[Value]> {
        match self {
            Self::Arr(items) => Some(items),
            _ => None,
        }
    }

    /// Truth as the worker's language sees it: empty things are false.
    pub(crate) fn truthy(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Bool(b) => *b,
            Self::Int(digits) => digits.chars().any(|c| c.is_ascii_digit() && c != '0'),
            Self::Float(f) => *f != 0.0,
            Self::Str(text) => !text.is_empty(),
            Self::Arr(items) => !items.is_empty(),
            Self::Obj(members) => !members.is_empty(),
        }
    }

    /// Whether a number that JSON cannot write is anywhere inside.
    pub(crate) fn has_non_finite(&self) -> bool {
        match self {
            Self::Float(f) => !f.is_finite(),
            Self::Arr(items) => items.iter().any(Self::has_non_finite),
            Self::Obj(members) => members.iter().any(|(_, v)| v.has_non_finite()),
            _ => false,
        }
    }

    /// Sets the member at a JSON pointer; missing objects on the way are made.
    ///
    /// # Errors
    ///
    /// When the path goes through something that is not an object or an
    /// existing element of a list.
    pub(crate) fn set(&mut self, pointer: &str, value: Value) -> Result<(), String> {
        let mut here = self;
        for step in steps(pointer)? {
            here = match here {
                Self::Obj(members) => {
                    let at = members.iter().position(|(k, _)| *k == step);
                    let at = at.unwrap_or_else(|| {
                        members.push((step, Self::Obj(Vec::new())));
                        members.len() - 1
                    });
                    &mut members[at].1
                }
                Self::Arr(items) => step
                    .parse::<usize>()
                    .ok()
                    .and_then(|at| items.get_mut(at))
                    .ok_or_else(|| format!("no element {step:?} on the path {pointer:?}"))?,
                _ => return Err(format!("the path {pointer:?} leads through a scalar")),
            };
        }
        *here = value;
        Ok(())
    }

    /// Removes the member at a JSON pointer; one that is absent is fine.
    ///
    /// # Errors
    ///
    /// When the pointer is not one.
    pub(crate) fn remove(&mut self, pointer: &str) -> Result<(), String> {
        let mut path = steps(pointer)?;
        let Some(last) = path.pop() else {
            return Err("the empty path cannot be removed".into());
        };
        let mut here = self;
        for step in path {
            let next = match here {
                Self::Obj(members) => members.iter_mut().find(|(k, _)| *k == step).map(|(_, v)| v),
                Self::Arr(items) => step.parse::<usize>().ok().and_then(|at| items.get_mut(at)),
                _ => None,
            };
            match next {
                Some(next) => here = next,
                None => return Ok(()),
            }
        }
        match here {
            Self::Obj(members) => members.retain(|(k, _)| *k != last),
            Self::Arr(items) => {
                if let Some(at) = last.parse::<usize>().ok().filter(|at| *at < items.len()) {
                    items.remove(at);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// A path is no longer than this; it may make the objects it goes through.
const MAX_STEPS: usize = 64;

/// The unescaped steps of a JSON pointer.
fn steps(pointer: &str) -> Result<Vec<String>, String> {
    if pointer.is_empty() {
        return Ok(Vec::new());
    }
    let Some(rest) = pointer.strip_prefix('/') else {
        return Err(format!("the path {pointer:?} does not start with a slash"));
    };
    if rest.split('/').count() > MAX_STEPS {
        return Err("the path is too long".into());
    }
    Ok(rest.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect())
}

impl From<&serde_json::Value> for Value {
    fn from(value: &serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(b) => Self::Bool(*b),
            serde_json::Value::Number(n) if n.is_f64() => Self::Float(n.as_f64().unwrap_or(f64::NAN)),
            serde_json::Value::Number(n) => Self::Int(n.to_string()),
            serde_json::Value::String(s) => Self::Str(s.clone()),
            serde_json::Value::Array(items) => Self::Arr(items.iter().map(Self::from).collect()),
            serde_json::Value::Object(members) => {
                Self::Obj(members.iter().map(|(k, v)| (k.clone(), Self::from(v))).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests;
