//! The leniency of the worker's validator: what it takes for a number, a
//! truth value or a text.

use crate::json::Value;
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Takes a body apart without minding the padding or the spare bits at the end.
const LOOSE_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// An objection to a value: its kind and its text.
pub(crate) type Issue = (&'static str, &'static str);

const INT_TYPE: Issue = ("int_type", "Input should be a valid integer");
const INT_PARSING: Issue =
    ("int_parsing", "Input should be a valid integer, unable to parse string as an integer");
const INT_FLOAT: Issue =
    ("int_from_float", "Input should be a valid integer, got a number with a fractional part");
const BOOL: Issue = ("bool_parsing", "Input should be a valid boolean, unable to interpret input");
const FLOAT: Issue = ("float_type", "Input should be a valid number");

/// An integer: whole floats, texts and truth values count as one. What does not
/// fit is clamped, since such a value is accepted and nothing here counts so far.
pub(crate) fn int(value: &Value) -> Result<i128, Issue> {
    match value {
        Value::Int(digits) => Ok(clamped(digits)),
        Value::Bool(b) => Ok(i128::from(*b)),
        // 2^63 and above do not come from a float.
        Value::Float(f) if f.fract() == 0.0 && f.abs() < 9_223_372_036_854_775_808.0 =>
        {
            #[allow(clippy::cast_possible_truncation)]
            Ok(*f as i128)
        }
        Value::Float(_) => Err(INT_FLOAT),
        Value::Str(text) => int_text(text).ok_or(INT_PARSING),
        _ => Err(INT_TYPE),
    }
}

/// ` 123 `, `+5`, `1_000` and `7.0` are integers; `1e3` is not.
fn int_text(text: &str) -> Option<i128> {
    let text = text.trim();
    let (negative, body) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    let whole = match body.split_once('.') {
        Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|b| b == b'0') => whole,
        Some(_) => return None,
        None => body,
    };
    let groups = || whole.split('_');
    let fine = |group: &str| !group.is_empty() && group.bytes().all(|b| b.is_ascii_digit());
    if !groups().all(fine) {
        return None;
    }
    let digits: String = groups().collect();
    let number = clamped(&digits);
    Some(if negative { -number } else { number })
}

fn clamped(digits: &str) -> i128 {
    digits.parse().unwrap_or(if digits.starts_with('-') { -i128::MAX } else { i128::MAX })
}

/// A number; NaN and the infinities are numbers too.
pub(crate) fn float(value: &Value) -> Result<f64, Issue> {
    match value {
        Value::Float(f) => Ok(*f),
        Value::Int(digits) => Ok(digits.parse().unwrap_or(f64::INFINITY)),
        Value::Bool(b) => Ok(f64::from(u8::from(*b))),
        Value::Str(text) => text.trim().parse().map_err(|_| FLOAT),
        _ => Err(FLOAT),
    }
}

/// A truth value: 0 and 1 in any type of number, and the usual words.
pub(crate) fn boolean(value: &Value) -> Result<bool, Issue> {
    match value {
        Value::Bool(b) => Ok(*b),
        Value::Int(_) | Value::Float(_) => match float(value) {
            Ok(0.0) => Ok(false),
            Ok(1.0) => Ok(true),
            _ => Err(BOOL),
        },
        Value::Str(text) => match text.to_ascii_lowercase().as_str() {
            "1" | "t" | "true" | "y" | "yes" | "on" => Ok(true),
            "0" | "f" | "false" | "n" | "no" | "off" => Ok(false),
            _ => Err(BOOL),
        },
        _ => Err(BOOL),
    }
}

/// The bytes of base64 text as the worker's decoder reads it: foreign
/// characters are skipped, a wrong count of the rest is an error.
pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    let kept: String = text.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '/')).collect();
    let padding = text.chars().filter(|c| *c == '=').count();
    let missing = (4 - kept.len() % 4) % 4;
    if missing == 3 || padding < missing {
        return None;
    }
    LOOSE_BASE64.decode(kept).ok()
}
