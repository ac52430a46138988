//! Python's notation of values (`json.dumps` and `str`), which chat templates rely on.

use std::fmt::Write as _;
use std::io;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Output, State, Value};
use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, PrettyFormatter, Serializer};

/// Widest indent of a level of JSON, in spaces.
const WIDEST_INDENT: u64 = 64;

/// The filter `tojson` of chat templates: `json.dumps(value, ensure_ascii=False, indent=…)`.
pub(crate) fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<u64> = options.get("indent")?;
    let ascii: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    if indent.is_some_and(|indent| indent > WIDEST_INDENT) {
        return Err(Error::new(ErrorKind::InvalidOperation, "the indent of `tojson` is too wide"));
    }
    let spaces = " ".repeat(indent.unwrap_or_default() as usize);
    let pretty = indent.map(|_| PrettyFormatter::with_indent(spaces.as_bytes()));
    let mut out = Vec::new();
    value
        .serialize(&mut Serializer::with_formatter(
            &mut out,
            PythonJson { pretty, ascii: ascii == Some(true) },
        ))
        .map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))?;
    Ok(Value::from_safe_string(String::from_utf8_lossy(&out).into_owned()))
}

/// Writes `{{ value }}` in Python's notation: `None`, `True`, `1e-05`, `['a', 1]`.
pub(crate) fn print(out: &mut Output, state: &State, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Undefined | ValueKind::String | ValueKind::Plain | ValueKind::Invalid => {
            minijinja::escape_formatter(out, state, value)
        }
        _ => {
            let mut text = String::new();
            repr(&mut text, value)?;
            Ok(out.write_str(&text)?)
        }
    }
}

fn repr(out: &mut String, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::None | ValueKind::Undefined => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number if !value.is_integer() => {
            let number = f64::try_from(value.clone())?;
            out.push_str(&float(number));
        }
        ValueKind::String => quoted(out, value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            for (i, item) in value.try_iter()?.enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                repr(out, &item)?;
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                repr(out, &key)?;
                out.push_str(": ");
                repr(out, &value.get_item(&key)?)?;
            }
            out.push('}');
        }
        _ => write!(out, "{value}")?,
    }
    Ok(())
}

/// Writes Python's `repr` of a string: single quotes unless only they occur inside.
fn quoted(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// Returns Python's `repr` of a float: the shortest digits that parse to the same number, an exponent of at
/// least two digits below 1e-4 and from 1e16 on, and `.0` after whole numbers.
fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity".into() } else { "-Infinity".into() };
    }
    let size = number.abs();
    if number == 0.0 || (1e-4..1e16).contains(&size) {
        let plain = format!("{number}");
        return if plain.contains('.') { plain } else { format!("{plain}.0") };
    }
    let short = format!("{number:e}");
    let (digits, exponent) = short.split_once('e').unwrap_or((&short, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{digits}e{sign}{exponent:0>2}")
}

/// JSON formatter with Python's separators and numbers, and with its line breaks if `pretty` is given.
struct PythonJson<'a> {
    pretty: Option<PrettyFormatter<'a>>,
    ascii: bool,
}

impl Formatter for PythonJson<'_> {
    fn write_f64<W: ?Sized + io::Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        out.write_all(float(value).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        if !self.ascii {
            return out.write_all(text.as_bytes());
        }
        let mut units = [0; 2];
        for c in text.chars() {
            match c.is_ascii() {
                true => write!(out, "{c}")?,
                false => {
                    c.encode_utf16(&mut units).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}"))?
                }
            }
        }
        Ok(())
    }

    fn write_char_escape<W: ?Sized + io::Write>(&mut self, out: &mut W, c: CharEscape) -> io::Result<()> {
        serde_json::ser::CompactFormatter.write_char_escape(out, c)
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        match &mut self.pretty {
            Some(pretty) => pretty.begin_array(out),
            None => out.write_all(b"["),
        }
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        match &mut self.pretty {
            Some(pretty) => pretty.end_array(out),
            None => out.write_all(b"]"),
        }
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        match &mut self.pretty {
            Some(pretty) => pretty.begin_array_value(out, first),
            None if first => Ok(()),
            None => out.write_all(b", "),
        }
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.pretty.as_mut().map_or(Ok(()), |pretty| pretty.end_array_value(out))
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        match &mut self.pretty {
            Some(pretty) => pretty.begin_object(out),
            None => out.write_all(b"{"),
        }
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        match &mut self.pretty {
            Some(pretty) => pretty.end_object(out),
            None => out.write_all(b"}"),
        }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        match &mut self.pretty {
            Some(pretty) => pretty.begin_object_key(out, first),
            None if first => Ok(()),
            None => out.write_all(b", "),
        }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.pretty.as_mut().map_or(Ok(()), |pretty| pretty.end_object_value(out))
    }
}
