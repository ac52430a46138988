//! Times of Parquet files in nanoseconds, as texts.
//!
//! The library's rows have times in milliseconds and microseconds as texts, but those in nanoseconds as whole numbers, because the
//! format's older annotations don't have this unit.

use parquet::basic::{ConvertedType, LogicalType, TimeUnit};
use parquet::record::Field;
use parquet::schema::types::{SchemaDescriptor, Type};
use serde_json::Value;

/// Returns true if a column has times in nanoseconds.
pub(crate) fn are_in(schema: &SchemaDescriptor) -> bool {
    schema.columns().iter().any(|column| is_time(column.self_type()))
}

/// Makes texts of the times in nanoseconds of a value of this type.
pub(crate) fn to_texts(of_type: &Type, value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let (true, Some(nanoseconds)) = (is_time(unwrapped(of_type)), number.as_i64()) {
                *value = text(nanoseconds);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| to_texts(of_type, value)),
        Value::Object(fields) => {
            let map = of_map(of_type);
            let of_struct = struct_with(of_type, |name| fields.contains_key(name));
            for (name, value) in fields {
                if let Some(own) = map.or_else(|| child(of_struct?, name)) {
                    to_texts(own, value);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn is_time(of_type: &Type) -> bool {
    let logical = of_type.get_basic_info().logical_type_ref();
    matches!(logical, Some(LogicalType::Timestamp(time)) if matches!(time.unit, TimeUnit::NANOS))
}

/// Returns a time in the form of the library's other units, which have three and six digits after the seconds.
fn text(nanoseconds: i64) -> Value {
    let (microseconds, rest) = (nanoseconds.div_euclid(1000), nanoseconds.rem_euclid(1000));
    match Field::TimestampMicros(microseconds).to_json_value() {
        Value::String(text) => match text.rsplit_once(' ') {
            Some((time, zone)) => Value::String(format!("{time}{rest:03} {zone}")),
            None => Value::String(text),
        },
        other => other,
    }
}

fn children(of_type: &Type) -> &[parquet::schema::types::TypePtr] {
    if of_type.is_group() { of_type.get_fields() } else { &[] }
}

fn child<'t>(of_type: &'t Type, name: &str) -> Option<&'t Type> {
    children(of_type).iter().find(|own| own.name() == name).map(|own| &**own)
}

/// Returns the only type in groups of one field each, which lists consist of.
fn unwrapped(of_type: &Type) -> &Type {
    match children(of_type) {
        [only] => unwrapped(only),
        _ => of_type,
    }
}

/// Returns the group whose fields a value has, in groups of one field each.
fn struct_with(of_type: &Type, has: impl Fn(&str) -> bool + Copy) -> Option<&Type> {
    let own = children(of_type);
    match own {
        _ if !own.is_empty() && own.iter().all(|field| has(field.name())) => Some(of_type),
        [only] => struct_with(only, has),
        _ => None,
    }
}

/// Returns the type of the values if the type is a map, also as the element of a list.
fn of_map(of_type: &Type) -> Option<&Type> {
    let info = of_type.get_basic_info();
    let is_map = matches!(info.converted_type(), ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE)
        || matches!(info.logical_type_ref(), Some(LogicalType::Map));
    match children(of_type) {
        [entries] if is_map => children(entries).get(1).map(|own| &**own),
        [only] => of_map(only),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use parquet::schema::parser::parse_message_type;
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_texts_wherever_they_stand() {
        let schema = "message m { \
            optional int64 at (TIMESTAMP(NANOS, true)); \
            optional int64 number; \
            optional group list (LIST) { repeated group list { optional int64 element (TIMESTAMP(NANOS, false)); } } \
            optional group events (LIST) { repeated group list { optional group element { \
                optional int64 at (TIMESTAMP(NANOS, true)); optional int64 number; } } } \
            optional group by_name (MAP) { repeated group key_value { required binary key (UTF8); \
                optional int64 value (TIMESTAMP(NANOS, true)); } } }";
        let schema = parse_message_type(schema).unwrap();
        let mut value = json!({
            "at": 1_541_186_529_153_123_456_i64, "number": 7, "list": [-1, null],
            "events": [{ "at": 0, "number": 8 }], "by_name": { "x": 1 },
        });
        to_texts(&schema, &mut value);
        let expected = json!({
            "at": "2018-11-02 19:22:09.153123456 +00:00", "number": 7,
            "list": ["1969-12-31 23:59:59.999999999 +00:00", null],
            "events": [{ "at": "1970-01-01 00:00:00.000000000 +00:00", "number": 8 }],
            "by_name": { "x": "1970-01-01 00:00:00.000000001 +00:00" },
        });
        assert_eq!(value, expected);
        assert!(are_in(&SchemaDescriptor::new(std::sync::Arc::new(schema))));
        // All that 64 bits hold.
        for nanoseconds in [i64::MIN, i64::MAX] {
            assert!(text(nanoseconds).as_str().unwrap().ends_with(" +00:00"));
        }
    }
}
