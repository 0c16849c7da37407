//! Faults from JSON, with refusals that say which member is wrong.

use super::{Cut, CutAt, CutHow, Fault, Hang, On, finish_named};
use crate::json::{Value, read, text};
use std::time::Duration;

pub(super) fn faults(json: &str) -> Result<Vec<Fault>, String> {
    match read(json).map_err(|error| format!("not JSON: {error:?}"))? {
        Value::Arr(items) => items.iter().map(fault).collect(),
        one => Ok(vec![fault(&one)?]),
    }
}

fn fault(value: &Value) -> Result<Fault, String> {
    let mut fault = Fault::default();
    for (name, value) in members(value, "a fault")? {
        match name.as_str() {
            "on" => fault.on = on(value)?,
            "times" => fault.times = Some(number(name, value)?),
            "before_head_ms" => fault.before_head = millis(name, value)?,
            "before_first_token_ms" => fault.before_first_token = millis(name, value)?,
            "token_gap_ms" => fault.token_gap = Some(millis(name, value)?),
            "status" => {
                let status = number(name, value)?;
                if !(200..=599).contains(&status) {
                    return Err("status must be from 200 to 599".into());
                }
                fault.status = Some(status);
            }
            "body" => {
                // A text is sent as it is, anything else as JSON.
                fault.body = Some(value.as_str().map_or_else(|| text(value), str::to_owned));
            }
            "headers" => {
                for (name, value) in members(value, "headers")? {
                    fault.headers.push((name.clone(), string("a header", value)?));
                }
            }
            "cut" => fault.cut = Some(cut(value)?),
            "reply" => {
                fault.reply = Some(value.as_str().map_or_else(|| text(value), str::to_owned));
            }
            "set" => {
                for (pointer, value) in members(value, "set")? {
                    fault.set.push((pointer.clone(), text(value)));
                }
            }
            "remove" => {
                let list = value.as_arr().ok_or("remove must be a list of paths")?;
                for path in list {
                    fault.remove.push(string("a path to remove", path)?);
                }
            }
            "register_id" => fault.register_id = Some(number(name, value)?),
            "eos" => fault.eos = flag(name, value)?,
            "say" => fault.say = Some(string("say", value)?),
            "finish" => {
                let finish = string("finish", value)?;
                if finish_named(&finish).is_none() {
                    return Err("finish must be stop, tool_calls or content_filter".into());
                }
                fault.finish = Some(finish);
            }
            "error_after_tokens" => fault.error_after_tokens = Some(number(name, value)?),
            "error_frame" => fault.error_frame = flag(name, value)?,
            "no_done" => fault.no_done = flag(name, value)?,
            "hang" => fault.hang = Some(hang(value)?),
            _ => return Err(format!("unknown member {name:?} of a fault")),
        }
    }
    Ok(fault)
}

fn on(value: &Value) -> Result<On, String> {
    Ok(match value.as_str() {
        Some("any") => On::Any,
        Some("context") => On::Context,
        Some("generation") => On::Generation,
        Some("aggregated") => On::Aggregated,
        Some("health") => On::Health,
        Some("version") => On::Version,
        _ => {
            return Err("on must be any, context, generation, aggregated, health or version".into());
        }
    })
}

fn cut(value: &Value) -> Result<Cut, String> {
    let (mut at, mut how, mut after) = (None, CutHow::default(), None);
    for (name, value) in members(value, "cut")? {
        match (name.as_str(), value.as_str()) {
            ("at", Some("accept")) => at = Some(CutAt::Accept),
            ("at", Some("reuse")) => at = Some(CutAt::Reuse),
            ("at", Some("head")) => at = Some(CutAt::Head),
            ("at", Some("body")) => at = Some(CutAt::Body(0)),
            ("at", _) => return Err("cut.at must be accept, reuse, head or body".into()),
            ("how", Some("fin" | "unfinished")) => how = CutHow::Fin,
            ("how", Some("rst")) => how = CutHow::Rst,
            ("how", Some("garbage")) => how = CutHow::Garbage,
            ("how", _) => return Err("cut.how must be fin, rst or garbage".into()),
            ("after_bytes", _) => after = Some(number(name, value)?),
            _ => return Err(format!("unknown member {name:?} of cut")),
        }
    }
    let at = match (at, after) {
        (Some(CutAt::Body(_)) | None, Some(after)) => CutAt::Body(after),
        (_, Some(_)) => return Err("cut.after_bytes goes with at: body".into()),
        (Some(at), None) => at,
        (None, None) => return Err("cut needs at, or after_bytes".into()),
    };
    Ok(Cut { at, how })
}

fn hang(value: &Value) -> Result<Hang, String> {
    match value {
        Value::Str(word) if word == "before_head" => Ok(Hang::BeforeHead),
        Value::Str(word) if word == "after_head" => Ok(Hang::AfterHead),
        Value::Obj(members) => match members.as_slice() {
            [(name, value)] if name == "after_tokens" => Ok(Hang::AfterTokens(number(name, value)?)),
            _ => Err("hang has the one member after_tokens".into()),
        },
        _ => Err("hang must be before_head, after_head or {\"after_tokens\": n}".into()),
    }
}

fn members<'a>(value: &'a Value, what: &str) -> Result<&'a [(String, Value)], String> {
    match value {
        Value::Obj(members) => Ok(members),
        _ => Err(format!("{what} must be an object")),
    }
}

fn number<T: std::str::FromStr>(name: &str, value: &Value) -> Result<T, String> {
    match value {
        Value::Int(digits) => digits.parse().ok(),
        _ => None,
    }
    .ok_or_else(|| format!("{name} must be an integer in range"))
}

fn millis(name: &str, value: &Value) -> Result<Duration, String> {
    // An hour is the longest wait; more is a slip of the pen.
    match number(name, value)? {
        wait @ 0..=3_600_000 => Ok(Duration::from_millis(wait)),
        _ => Err(format!("{name} must be at most 3600000")),
    }
}

fn flag(name: &str, value: &Value) -> Result<bool, String> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        _ => Err(format!("{name} must be true or false")),
    }
}

fn string(what: &str, value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("{what} must be a text"))
}
