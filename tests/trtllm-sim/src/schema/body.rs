//! From body bytes to an object, with the web framework's answers on the way.

use crate::json::{ReadError, Value, decode, read};
use crate::release::Generation;
use crate::schema::report::Report;
use crate::schema::{Endpoint, Fail};

/// The object in a body.
pub(crate) fn object(
    generation: Generation,
    endpoint: Endpoint,
    content_type: Option<&str>,
    bytes: &[u8],
) -> Result<Value, Fail> {
    let mut report = Report::new(generation, endpoint);
    if bytes.is_empty() {
        report.missing("'body'", &Value::Null);
        return Err(failed(report));
    }
    if !is_json(generation, content_type) {
        return Err(Fail::Crash("body without a JSON content type"));
    }
    let Some(text) = decode(bytes) else {
        return Err(unparsable());
    };
    match read(&text) {
        Ok(body @ Value::Obj(_)) => Ok(body),
        Ok(Value::Null) if generation < Generation::G3 => {
            report.missing("'body'", &Value::Null);
            Err(failed(report))
        }
        Ok(_) => Err(Fail::Crash("body is not an object")),
        Err(ReadError::Limit) => Err(unparsable()),
        Err(ReadError::Key) => {
            report.add(
                "string_unicode",
                "'body', '[key]'",
                "Input should be a valid string, unable to parse raw data as a unicode string",
                &Value::Null,
            );
            Err(failed(report))
        }
        Err(ReadError::Syntax(what, at)) => {
            let chars = text.get(..at).map_or(at, |head| head.chars().count());
            report.add(
                "json_invalid",
                &format!("'body', {chars}"),
                "JSON decode error",
                &Value::Obj(Vec::new()),
            );
            match report.finish() {
                Err(Fail::Schema(text)) => Err(Fail::Schema(format!("{text} ({what})"))),
                _ => Err(unparsable()),
            }
        }
    }
}

fn unparsable() -> Fail {
    Fail::Detail(400, "There was an error parsing the body")
}

fn failed(report: Report) -> Fail {
    report.finish().err().unwrap_or_else(unparsable)
}

/// `application/json`, or `application/` anything with the suffix `+json`; parameters do
/// not matter. Newer frameworks want the header, older ones guess JSON without it.
fn is_json(generation: Generation, content_type: Option<&str>) -> bool {
    let Some(content_type) = content_type else {
        return generation < Generation::G3;
    };
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    essence
        .strip_prefix("application/")
        .is_some_and(|subtype| subtype == "json" || subtype.ends_with("+json"))
}
