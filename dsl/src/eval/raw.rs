//! Values given by overrides, which are parsed once the expected type is known.

use crate::source::Location;
use crate::syntax::parse::lone_value;
use crate::syntax::tree::{Value, ValueKind};

/// Parses an override of any type. Text that is not an expression becomes a string.
pub(crate) fn parse_raw(raw: &str, location: Location) -> Value {
    lone_value(raw, location).unwrap_or_else(|| Value { kind: ValueKind::Text(raw.to_owned()), location })
}

/// Returns an override as text, without the quotes around it, if any. Returns `None` for a text in quotes with `${ … }` in
/// it, which has to be evaluated.
pub(crate) fn raw_text(raw: &str, location: Location) -> Option<String> {
    let quoted = raw.len() >= 2 && raw.starts_with('"') && raw.ends_with('"');
    match quoted.then(|| lone_value(raw, location)).flatten() {
        Some(Value { kind: ValueKind::Text(text), .. }) => Some(text),
        Some(Value { kind: ValueKind::Joined(_), .. }) => None,
        _ => Some(raw.to_owned()),
    }
}
