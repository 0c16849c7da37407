//! Fields by table: name, type, whether null will do, and since when.

use crate::json::Value;
use crate::release::Generation;
use crate::schema::coerce;
use crate::schema::report::Report;

/// The type of a field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Int,
    /// An integer of at least one.
    Positive,
    Float,
    /// A number from 0 to 1.
    Fraction,
    Bool,
    Text,
    /// A text that says something; blank is refused.
    Salt,
    Ints,
    Texts,
    /// A list of anything.
    List,
    /// A text, or a list of texts.
    Stop,
    Dict,
    /// Names to numbers.
    Floats,
    /// A list of objects with texts in them.
    Documents,
    /// image, video, audio, each with an object.
    Media,
    Any,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A true or false, or "never".
    Early,
    /// An object or a list or a word, checked by a function of its own.
    Own(fn(&Value, &str, &mut Report)),
}

/// One field of a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    name: &'static str,
    kind: Kind,
    nullable: bool,
    required: bool,
    since: Generation,
    until: Generation,
}

/// A field that may be null or absent.
pub(crate) const fn opt(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, nullable: true, required: false, since: Generation::G0, until: Generation::G4n }
}

/// A field that may be absent but not null.
pub(crate) const fn set(name: &'static str, kind: Kind) -> Field {
    let mut field = opt(name, kind);
    field.nullable = false;
    field
}

/// A field that must be there.
pub(crate) const fn must(name: &'static str, kind: Kind) -> Field {
    let mut field = set(name, kind);
    field.required = true;
    field
}

impl Field {
    /// Known from this generation on.
    pub(crate) const fn since(mut self, generation: Generation) -> Self {
        self.since = generation;
        self
    }

    /// Known up to this generation.
    pub(crate) const fn until(mut self, generation: Generation) -> Self {
        self.until = generation;
        self
    }

    fn known(&self, generation: Generation) -> bool {
        self.since <= generation && generation <= self.until
    }
}

/// The names a generation knows, in the table's order.
pub(crate) fn names(table: &'static [Field], generation: Generation) -> impl Iterator<Item = &'static str> {
    table.iter().filter(move |field| field.known(generation)).map(|field| field.name)
}

/// Checks an object against a table. Something else than an object is an objection too.
pub(crate) fn check(table: &'static [Field], value: &Value, place: &str, report: &mut Report) {
    let Value::Obj(members) = value else {
        report.add(
            "model_attributes_type",
            place,
            "Input should be a valid dictionary or object to extract fields from",
            value,
        );
        return;
    };
    let generation = report.generation;
    let known = |name: &str| table.iter().find(|field| field.name == name && field.known(generation));
    for field in table.iter().filter(|field| field.known(generation)) {
        let place = format!("{place}, '{}'", field.name);
        match value.get(field.name) {
            None if field.required => report.missing(&place, value),
            None => {}
            Some(Value::Null) if field.nullable => {}
            Some(member) => kind(field.kind, member, &place, report),
        }
    }
    for (name, member) in members {
        if known(name).is_none() {
            let mut literal = String::new();
            crate::json::repr(&Value::str(name.as_str()), &mut literal);
            report.extra(&format!("{place}, {literal}"), member);
        }
    }
}

/// Checks one value.
pub(crate) fn kind(kind: Kind, value: &Value, place: &str, report: &mut Report) {
    let issue = match kind {
        Kind::Any => None,
        Kind::Int => coerce::int(value).err(),
        Kind::Positive => match coerce::int(value) {
            Ok(1..) => None,
            Ok(_) => Some(("greater_than_equal", "Input should be greater than or equal to 1")),
            Err(issue) => Some(issue),
        },
        Kind::Float => coerce::float(value).err(),
        Kind::Fraction => match coerce::float(value) {
            Ok(number) if (0.0..=1.0).contains(&number) => None,
            Ok(_) => Some(("less_than_equal", "Input should be between 0 and 1")),
            Err(issue) => Some(issue),
        },
        Kind::Bool => coerce::boolean(value).err(),
        Kind::Text => value.as_str().is_none().then_some(TEXT),
        Kind::Salt => match value.as_str() {
            Some(text) if text.trim().is_empty() => {
                Some(("value_error", "Value error, Parameter 'cache_salt' must be a non-empty string"))
            }
            Some(_) => None,
            None => Some(TEXT),
        },
        Kind::Word(words) => match value.as_str() {
            Some(word) if words.contains(&word) => None,
            _ => Some(("literal_error", "Input should be one of the known words")),
        },
        Kind::Early => match value {
            Value::Str(word) if word == "never" => None,
            // Older releases take the engine's integer.
            value => coerce::int(value).map(|_| ()).or_else(|_| coerce::boolean(value).map(|_| ())).err(),
        },
        Kind::Stop => match value {
            Value::Str(_) => None,
            Value::Arr(items) if items.iter().all(|item| item.as_str().is_some()) => None,
            _ => Some(TEXT),
        },
        Kind::Ints => return each(value, place, report, |item| coerce::int(item).err()),
        Kind::Texts => {
            return each(value, place, report, |item| item.as_str().is_none().then_some(TEXT));
        }
        Kind::List => value.as_arr().is_none().then_some(LIST),
        Kind::Documents => match value.as_arr() {
            None => Some(LIST),
            Some(items) => items
                .iter()
                .any(|item| match item {
                    Value::Obj(members) => members.iter().any(|(_, v)| v.as_str().is_none()),
                    _ => true,
                })
                .then_some(DICT),
        },
        Kind::Dict => (!matches!(value, Value::Obj(_))).then_some(DICT),
        Kind::Floats => match value {
            Value::Obj(members) => members.iter().find_map(|(_, v)| coerce::float(v).err()),
            _ => Some(DICT),
        },
        Kind::Media => match value {
            Value::Obj(members) => members
                .iter()
                .any(|(name, kwargs)| {
                    !matches!(name.as_str(), "image" | "video" | "audio") || !matches!(kwargs, Value::Obj(_))
                })
                .then_some(DICT),
            _ => Some(DICT),
        },
        Kind::Own(check) => return check(value, place, report),
    };
    if let Some((kind, message)) = issue {
        report.add(kind, place, message, value);
    }
}

const TEXT: coerce::Issue = ("string_type", "Input should be a valid string");
const LIST: coerce::Issue = ("list_type", "Input should be a valid list");
const DICT: coerce::Issue = ("dict_type", "Input should be a valid dictionary");

/// Checks the items of a list. There can be hundreds of thousands, so their
/// places are put into words only when needed.
fn each(value: &Value, place: &str, report: &mut Report, issue: impl Fn(&Value) -> Option<coerce::Issue>) {
    let Some(items) = value.as_arr() else {
        report.add(LIST.0, place, LIST.1, value);
        return;
    };
    for (at, item) in items.iter().enumerate() {
        if let Some((kind, message)) = issue(item) {
            report.add(kind, &format!("{place}, {at}"), message, item);
        }
    }
}
