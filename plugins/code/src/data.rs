//! Plain data as `values.py` writes it: comparison as Python does it, and text for people.
//!
//! Results of a program are compared here, where the program can't reach.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Largest integer that is a JSON number in every reader, as in `values.py`.
const MAX_NUMBER: u64 = 1 << 53;

/// Relative and absolute difference up to which a float equals another number.
const RELATIVE: f64 = 1e-6;
const ABSOLUTE: f64 = 1e-9;

/// A number of Python.
#[derive(Debug, Clone, Copy)]
enum Number<'a> {
    Small(i64),
    /// Hexadecimal text.
    Large(&'a str),
    Float(f64),
}

/// Returns true if two values are equal: numbers by value, floats up to a small difference, sets and dictionaries in any
/// order, lists and tuples only among themselves. Invalid data equals nothing but the same data.
pub fn equal(one: &Value, other: &Value) -> bool {
    if let (Some(one), Some(other)) = (number(one), number(other)) {
        return same_number(one, other);
    }
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => all_equal(one, other),
        (Value::Object(_), Value::Object(_)) => match (kind(one), kind(other)) {
            (Some(("dict", one)), Some(("dict", other))) => same_dictionary(one, other),
            (Some(("set" | "frozenset", one)), Some(("set" | "frozenset", other))) => same_set(one, other),
            (Some((kind, Value::Array(one))), Some((same, Value::Array(other)))) => {
                kind == same && all_equal(one, other)
            }
            _ => one == other,
        },
        _ => one == other,
    }
}

fn all_equal(one: &[Value], other: &[Value]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
}

fn same_dictionary(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (entries(one), entries(other)) else { return false };
    let same = |(key, value): (&String, &&Value)| other.get(key).is_some_and(|found| equal(value, found));
    one.len() == other.len() && one.iter().all(same)
}

/// Returns the values of a dictionary by the text of their keys.
fn entries(pairs: &Value) -> Option<BTreeMap<String, &Value>> {
    pairs.as_array()?.iter().map(|pair| Some((key(pair.get(0)?), pair.get(1)?))).collect()
}

fn same_set(one: &Value, other: &Value) -> bool {
    let keys = |items: &Value| {
        let mut keys: Vec<String> = items.as_array()?.iter().map(key).collect();
        keys.sort();
        Some(keys)
    };
    matches!((keys(one), keys(other)), (Some(one), Some(other)) if one == other)
}

/// Returns a text that equal keys share: 1, 1.0 and True are one key of a dictionary.
fn key(value: &Value) -> String {
    match number(value) {
        Some(Number::Small(value)) => return value.to_string(),
        Some(Number::Float(value)) if value.fract() == 0.0 => return format!("{value:.0}"),
        _ => {}
    }
    match (value, kind(value)) {
        (Value::Array(items), _) => format!("[{}]", items.iter().map(key).collect::<Vec<_>>().join(",")),
        (_, Some((kind, body @ Value::Array(_)))) => format!("{{{kind}:{}}}", key(body)),
        _ => value.to_string(),
    }
}

/// Returns the kind and the body of data that is not a JSON value by itself.
fn kind(value: &Value) -> Option<(&str, &Value)> {
    let object = value.as_object().filter(|object| object.len() == 1)?;
    object.iter().next().map(|(kind, body)| (kind.as_str(), body))
}

fn number(value: &Value) -> Option<Number<'_>> {
    match (value, kind(value)) {
        (Value::Bool(value), _) => Some(Number::Small(i64::from(*value))),
        (Value::Number(value), _) => value.as_i64().map(Number::Small),
        (_, Some(("int", Value::String(text)))) => Some(Number::Large(text)),
        (_, Some(("float", Value::String(text)))) => from_hex(text).map(Number::Float),
        _ => None,
    }
}

fn same_number(one: Number<'_>, other: Number<'_>) -> bool {
    match (one, other) {
        (Number::Small(one), Number::Small(other)) => one == other,
        (Number::Large(one), Number::Large(other)) => one == other,
        (Number::Small(_), Number::Large(_)) | (Number::Large(_), Number::Small(_)) => false,
        (Number::Float(one), other) => close(one, as_float(other)),
        (one, Number::Float(other)) => close(as_float(one), other),
    }
}

fn as_float(number: Number<'_>) -> f64 {
    match number {
        #[expect(clippy::cast_precision_loss, reason = "integers of data are exact floats")]
        Number::Small(value) => value as f64,
        Number::Large(text) => {
            let (sign, digits) = text.strip_prefix('-').map_or((1.0, text), |digits| (-1.0, digits));
            let digits = digits.strip_prefix("0x").unwrap_or(digits).chars().map(|digit| digit.to_digit(16));
            let value = digits
                .map(|digit| digit.map_or(f64::NAN, f64::from))
                .fold(0.0, |sum, digit| 16.0 * sum + digit);
            sign * value
        }
        Number::Float(value) => value,
    }
}

/// Infinity is close to itself alone.
fn close(one: f64, other: f64) -> bool {
    let limit = ABSOLUTE.max(RELATIVE * one.abs().max(other.abs()));
    one == other || (one.is_finite() && other.is_finite() && (one - other).abs() <= limit)
}

/// Returns the float of a text by Python's `float.hex`.
fn from_hex(text: &str) -> Option<f64> {
    let (sign, text) = text.strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
    match text {
        "inf" => return Some(sign * f64::INFINITY),
        "nan" => return Some(f64::NAN),
        _ => {}
    }
    let (mantissa, exponent) = text.strip_prefix("0x")?.split_once('p')?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = u64::from_str_radix(&format!("{whole}{fraction}"), 16).ok()?;
    let exponent = exponent.parse::<i32>().ok().filter(|exponent| exponent.abs() < 2000)?;
    let exponent = exponent - 4 * i32::try_from(fraction.len()).ok()?;
    // In two steps, since a power below the smallest float is 0.
    let half = exponent / 2;
    #[expect(clippy::cast_precision_loss, reason = "a float's digits are 53 bits")]
    let value = digits as f64 * 2_f64.powi(half) * 2_f64.powi(exponent - half);
    Some(sign * value)
}

/// Returns a float's text as Python's `float.hex` writes it.
fn to_hex(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() {
            "nan"
        } else if value > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .to_owned();
    }
    let bits = value.to_bits();
    let sign = if value.is_sign_negative() { "-" } else { "" };
    let mantissa = bits & ((1 << 52) - 1);
    let (whole, exponent) = match (bits >> 52) & 0x7ff {
        0 => (0, -1022),
        biased => (1, i64::try_from(biased).unwrap_or(0) - 1023),
    };
    format!("{sign}0x{whole}.{mantissa:013x}p{exponent:+}")
}

/// Returns a JSON value as data.
pub fn from_json(value: &Value) -> Value {
    match value {
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(small), _, _) if small.unsigned_abs() <= MAX_NUMBER => json!(small),
            (Some(large), _, _) if large < 0 => json!({ "int": format!("-{:#x}", large.unsigned_abs()) }),
            (_, Some(large), _) => json!({ "int": format!("{large:#x}") }),
            (_, _, float) => json!({ "float": to_hex(float.unwrap_or(f64::NAN)) }),
        },
        Value::Array(items) => items.iter().map(from_json).collect(),
        Value::Object(fields) => {
            let pairs: Vec<Value> =
                fields.iter().map(|(key, value)| json!([key, from_json(value)])).collect();
            json!({ "dict": pairs })
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

/// Returns the data with lists in place of tuples, since JSON has no tuples.
pub fn without_tuples(value: &Value) -> Value {
    match (value, kind(value)) {
        (Value::Array(items), _) | (_, Some(("tuple", Value::Array(items)))) => {
            items.iter().map(without_tuples).collect()
        }
        (_, Some((kind @ "dict", body))) => json!({ kind: without_tuples(body) }),
        _ => value.clone(),
    }
}

/// Returns data as Python would print it, nearly.
pub fn render(value: &Value) -> String {
    let list = |items: &[Value]| items.iter().map(render).collect::<Vec<_>>().join(", ");
    match (value, kind(value)) {
        (Value::Null, _) => "None".to_owned(),
        (Value::Bool(true), _) => "True".to_owned(),
        (Value::Bool(false), _) => "False".to_owned(),
        (Value::Array(items), _) => format!("[{}]", list(items)),
        (_, Some(("tuple", Value::Array(items)))) => match &items[..] {
            [only] => format!("({},)", render(only)),
            items => format!("({})", list(items)),
        },
        (_, Some(("set", Value::Array(items)))) if !items.is_empty() => format!("{{{}}}", list(items)),
        (_, Some(("dict", Value::Array(pairs)))) => {
            let entry = |pair: &Value| match pair.as_array().map(Vec::as_slice) {
                Some([key, value]) => format!("{}: {}", render(key), render(value)),
                _ => pair.to_string(),
            };
            format!("{{{}}}", pairs.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        (_, Some(("float", Value::String(text)))) => match from_hex(text) {
            Some(float) => format!("{float:?}"),
            None => value.to_string(),
        },
        (_, Some(("int", Value::String(text)))) => decimal(text).unwrap_or_else(|| text.clone()),
        (_, Some((kind, Value::Array(items)))) => format!("{kind}({})", list(items)),
        (_, Some((kind, Value::String(text)))) => format!("{kind}({text})"),
        _ => value.to_string(),
    }
}

/// Returns a hexadecimal integer in decimal digits. `None` if it is longer than 128 bits.
fn decimal(text: &str) -> Option<String> {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("-", digits));
    let value = u128::from_str_radix(digits.strip_prefix("0x")?, 16).ok()?;
    Some(format!("{sign}{value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_equal_as_in_python() {
        let float = |value: f64| json!({ "float": to_hex(value) });
        let dict = |pairs: Value| json!({ "dict": pairs });
        let table = [
            (json!(1), json!(true), true),
            (json!(1), float(1.0), true),
            (json!(1), json!("1"), false),
            (json!(0), Value::Null, false),
            (json!(0), json!([]), false),
            (float(0.1 + 0.2), float(0.3), true),
            (float(12.566), float(12.567), false),
            (float(f64::INFINITY), float(1e300), false),
            (float(f64::INFINITY), float(f64::INFINITY), true),
            (float(f64::NAN), float(f64::NAN), false),
            (float(f64::NAN), json!(3), false),
            (json!({"int": "0x1bc16d674ec80000"}), float(2e18), true),
            (json!({"int": "-0x1bc16d674ec80000"}), float(2e18), false),
            (json!({"int": "0x1bc16d674ec80000"}), json!({"int": "0x1bc16d674ec80001"}), false),
            (json!({"tuple": [1, 2]}), json!([1, 2]), false),
            (json!({"tuple": [1, 2]}), json!({"tuple": [1, float(2.0)]}), true),
            (json!({"set": [1, 2]}), json!({"frozenset": [2, 1]}), true),
            (json!({"set": [1, 2]}), json!({"set": [1]}), false),
            (dict(json!([["a", 1], [2, [3]]])), dict(json!([[float(2.0), [3]], ["a", true]])), true),
            (dict(json!([["a", 1]])), dict(json!([["a", 2]])), false),
            (dict(json!([["a", 1]])), dict(json!([])), false),
            (dict(json!("no pairs")), dict(json!([])), false),
            (json!({"bytes": "00ff"}), json!({"bytes": "00ff"}), true),
            (json!({"any": "thing"}), json!(5), false),
        ];
        for (one, other, expected) in table {
            assert_eq!(equal(&one, &other), expected, "{one} and {other}");
            assert_eq!(equal(&other, &one), expected, "{other} and {one}");
        }
    }

    #[test]
    fn floats_are_pythons_text() {
        for (value, text) in [
            (0.5, "0x1.0000000000000p-1"),
            (-0.1, "-0x1.999999999999ap-4"),
            (0.0, "0x0.0000000000000p-1022"),
            (5e-324, "0x0.0000000000001p-1022"),
            (f64::MAX, "0x1.fffffffffffffp+1023"),
        ] {
            assert_eq!(to_hex(value), text);
            assert_eq!(from_hex(text), Some(value));
        }
        assert_eq!(from_hex("0x0.0p+0"), Some(0.0));
        for invalid in ["", "0x", "0x1p", "0x1.0p+99999", "1.5", "0xfffffffffffffffffp+1"] {
            assert_eq!(from_hex(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn json_becomes_data_and_data_text() {
        let data = from_json(&json!({"a": [1, 0.5, null, true, "é\n", 18_446_744_073_709_551_615_u64]}));
        assert_eq!(render(&data), "{\"a\": [1, 0.5, None, True, \"é\\n\", 18446744073709551615]}");
        assert_eq!(render(&json!([{"tuple": [1]}, {"set": [2]}, {"set": []}])), "[(1,), {2}, set()]");
        assert_eq!(without_tuples(&json!({"tuple": [{"tuple": [1]}, 2]})), json!([[1], 2]));
    }

    proptest::proptest! {
        #[test]
        fn floats_survive(bits: u64) {
            let value = f64::from_bits(bits);
            let back = from_hex(&to_hex(value)).unwrap();
            proptest::prop_assert!(back == value || (back.is_nan() && value.is_nan()), "{value:e}");
        }

        /// Any text that claims to be a number causes no panic, and equals itself unless it isn't a number.
        #[test]
        fn any_data_is_compared(text in "[-0-9a-fxp.+]{0,12}", kind in "int|float|set|dict|x") {
            let value = json!({ kind: text });
            equal(&value, &json!(1));
            equal(&value, &value);
            render(&value);
        }
    }
}
