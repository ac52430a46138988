//! JSON whose whole numbers stay what they are.

use serde::de::Error as _;
use serde_json::{Error, Value};

/// The magnitude from which on whole numbers may need more than 64 bits.
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// Parses a value of JSON. `serde_json` rounds whole numbers of more than 64 bits, so that different answers would be equal.
///
/// # Errors
/// If the text is not JSON, or has a whole number of more than 64 bits.
pub fn exact_json(text: &str) -> Result<Value, Error> {
    let value = serde_json::from_str(text)?;
    if !has_large_float(&value) {
        return Ok(value);
    }
    match numbers(text).find(|number| is_rounded(number)) {
        None => Ok(value),
        Some(number) => {
            let digits = number.trim_start_matches('-').len();
            Err(Error::custom(format!(
                "a whole number of {digits} digits has more than 64 bits: write it as a text"
            )))
        }
    }
}

/// Returns true if a number may have been a whole one that was rounded. Few texts have one, and no others are read twice.
fn has_large_float(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64() && number.as_f64().is_some_and(|x| x.abs() >= TWO_TO_63),
        Value::Array(values) => values.iter().any(has_large_float),
        Value::Object(fields) => fields.values().any(has_large_float),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// Returns the numbers of a text of JSON.
fn numbers(text: &str) -> impl Iterator<Item = &str> {
    // Outside of strings, only numbers have digits.
    let outside = split_strings(text);
    let is_part = |c: char| matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E');
    outside
        .flat_map(move |text| text.split(move |c| !is_part(c)))
        .filter(|number| number.contains(|c: char| c.is_ascii_digit()))
}

/// Returns the parts of a text of JSON that are between its strings.
fn split_strings(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some((before, string)) = text.split_once('"') else {
            rest = None;
            return Some(text);
        };
        let mut escaped = false;
        let end = string.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        rest = end.map(|end| &string[end + 1..]);
        Some(before)
    })
}

/// Returns true for a whole number of more than 64 bits.
fn is_rounded(number: &str) -> bool {
    let is_whole = !number.contains(['.', 'e', 'E']);
    is_whole && number.parse::<i64>().is_err() && number.parse::<u64>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_beyond_64_bits_are_refused() {
        for text in
            ["18446744073709551616", "-9223372036854775809", r#"{"a": ["\\", 1, 123456789012345678901]}"#]
        {
            let error = exact_json(text).unwrap_err().to_string();
            assert!(error.ends_with("digits has more than 64 bits: write it as a text"), "{text}: {error}");
        }
    }

    #[test]
    fn other_numbers_and_texts_stay() {
        for text in [
            "18446744073709551615",
            "-9223372036854775808",
            "0.1234567890123456789012345",
            "123456789012345678901e3",
            "-0",
            r#"{"12345678901234567890123": "a \" 12345678901234567890123", "b": "\\"}"#,
        ] {
            assert_eq!(exact_json(text).unwrap(), serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
        assert!(exact_json("{\"a\": 1").is_err() && exact_json("\"").is_err());
    }
}
