//! Settings from a TOML file: its keys are the names of the flags.

use clap::{Arg, Command};
use toml::{Table, Value};

/// Adds what `text` sets to the defaults of `command`, so that flags and the environment still win.
pub(super) fn apply(mut command: Command, text: &str) -> Result<Command, String> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    for (key, value) in table {
        let Some(arg) = find(&command, &key) else {
            return Err(format!(
                "unknown key {key:?}; keys are the names of the flags, such as context-timeout"
            ));
        };
        let many = matches!(arg.get_action(), clap::ArgAction::Append);
        let id = arg.get_id().clone();
        if value.as_array().is_some_and(|list| many && list.is_empty()) {
            return Err(format!(
                "key {key:?}: the list is empty, which would be taken for unset; leave the key out"
            ));
        }
        let values = values(value, many).ok_or_else(|| {
            let expected = if many { "a string or a list of strings" } else { "a string or a whole number" };
            format!("key {key:?}: expected {expected}")
        })?;
        command = command.mut_arg(id, |arg| arg.default_values(values));
    }
    Ok(command)
}

/// The flag that a key stands for. The file cannot name another file.
fn find<'a>(command: &'a Command, key: &str) -> Option<&'a Arg> {
    let settings = command.get_arguments().filter(|arg| is_setting(arg));
    settings.into_iter().find(|arg| arg.get_long() == Some(key) && key != "config")
}

/// Whether a flag takes a value; `--help` and `--version` do not.
pub(super) fn is_setting(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

fn values(value: Value, many: bool) -> Option<Vec<String>> {
    match value {
        Value::Array(list) if many => list.into_iter().map(scalar).collect(),
        value => scalar(value).map(|value| vec![value]),
    }
}

fn scalar(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Integer(number) => Some(number.to_string()),
        _ => None,
    }
}
