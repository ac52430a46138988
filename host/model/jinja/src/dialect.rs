//! The dialect of Jinja that chat templates are written in.

use std::fmt::Write as _;

use chrono::NaiveDateTime;
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, Output, State, Value};

use crate::python_format;

/// Name of the variable with the time for `strftime_now`, in UTC as ISO 8601. Templates can't name it.
pub const TIME: &str = "the time";

/// Instructions of one rendering, about half a second. A conversation of a thousand messages takes some ten thousands.
const FUEL: u64 = 5_000_000;

/// Largest size of a rendered conversation and of a printed value, in bytes. The longest contexts have a few megabytes.
pub(crate) const MOST_BYTES: usize = 16 << 20;

/// Deepest recursion of macros. Those of templates describe the nested types of tools.
const MOST_RECURSION: usize = 100;

/// Longest format of a date, in bytes.
const LONGEST_DATE_FORMAT: usize = 256;

/// Returns an environment of the dialect.
pub(crate) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(MOST_RECURSION);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(print_bounded);
    environment.add_filter("tojson", python_format::tojson);
    // Python strings are iterable, and templates rely on it.
    environment.add_test("iterable", |value: &Value| {
        value.kind() == ValueKind::String || value.try_iter().is_ok_and(|_| !value.is_undefined())
    });
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", strftime_now);
    environment
}

/// Prints a value in Python's notation, unless it is too long: blocks that are kept as texts must not double each other.
fn print_bounded(out: &mut Output, state: &State, value: &Value) -> Result<(), Error> {
    if value.as_str().is_some_and(|text| text.len() > MOST_BYTES) {
        return Err(Error::new(ErrorKind::InvalidOperation, "a text is too long"));
    }
    python_format::print(out, state, value)
}

/// Formats the conversation's time.
fn strftime_now(state: &State, format: String) -> Result<String, Error> {
    if format.len() > LONGEST_DATE_FORMAT {
        return Err(Error::new(ErrorKind::InvalidOperation, "the format of the date is too long"));
    }
    let time = state.lookup(TIME).and_then(|time| time.as_str()?.parse::<NaiveDateTime>().ok());
    let Some(time) = time else {
        return Err(Error::new(ErrorKind::InvalidOperation, "the time is unknown"));
    };
    let mut text = String::new();
    write!(text, "{}", time.and_utc().format(&format))
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, format!("{format:?} is not a date format")))?;
    Ok(text)
}
