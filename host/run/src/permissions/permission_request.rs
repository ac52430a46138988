//! Access that a workflow needs beyond its own folder.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use pl_dsl::Place;

use super::access::{Access, AccessKind};

/// Access that a workflow needs beyond its own folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionRequest {
    pub access: Access,
    /// Use of the access: `plugin web sends requests to api.example.org`.
    pub purpose: String,
    /// Place in the workflow. `None` for files that a text includes, and in a run folder.
    pub place: Option<Place>,
}

impl fmt::Display for PermissionRequest {
    /// Writes one line: a name with a line break can't look like another request.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{}: {}", one_line(&place.to_string()), one_line(&self.purpose)),
            None => f.write_str(&one_line(&self.purpose)),
        }
    }
}

/// Returns a text with a symbol for each control character.
pub fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let symbol = |character: char| match character {
        // Unicode has a picture of each: ␊ for a line feed.
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(character)).unwrap_or('\u{fffd}'),
        '\x7f' => '␡',
        other if other.is_control() => '\u{fffd}',
        other => other,
    };
    Cow::Owned(text.chars().map(symbol).collect())
}

/// Returns the flags that allow all of it, as a shell takes them.
pub fn flags(requests: &[PermissionRequest]) -> String {
    flags_of(requests.iter().map(|request| &request.access))
}

/// Returns the flags that allow all of it, as a shell takes them.
pub fn flags_of<'a>(accesses: impl IntoIterator<Item = &'a Access>) -> String {
    let accesses: BTreeSet<&Access> = accesses.into_iter().collect();
    let kinds = [AccessKind::Read, AccessKind::Net, AccessKind::Env];
    let flags = kinds.into_iter().filter_map(|kind| {
        let own = accesses.iter().filter(|access| access.kind() == kind);
        let values: Vec<String> = own.map(|access| escaped(&access.value())).collect();
        (!values.is_empty()).then(|| quoted(&format!("{}={}", kind.flag(), values.join(","))))
    });
    flags.collect::<Vec<_>>().join(" ")
}

/// Returns a value as [`split_list`] takes it.
fn escaped(value: &str) -> String {
    match value {
        "*" => "\\*".to_owned(),
        value => value.replace('\\', "\\\\").replace(',', "\\,"),
    }
}

/// Value of a flag: everything, or one access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListedValue {
    All,
    One(Vec<u8>),
}

/// Splits the value of a flag at its commas. After a backslash, a comma, a backslash or `*` is a character like others.
/// Empty parts are left out.
pub fn split_list(list: &[u8]) -> Vec<ListedValue> {
    let mut values = Vec::new();
    let (mut value, mut is_escaped) = (Vec::new(), false);
    let mut bytes = list.iter().copied().peekable();
    let mut finish = |value: &mut Vec<u8>, is_escaped: &mut bool| {
        match (value.trim_ascii(), *is_escaped) {
            (b"", _) => {}
            (b"*", false) => values.push(ListedValue::All),
            (trimmed, _) => values.push(ListedValue::One(trimmed.to_vec())),
        }
        value.clear();
        *is_escaped = false;
    };
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => match bytes.next_if(|next| b"\\,*".contains(next)) {
                Some(next) => {
                    value.push(next);
                    is_escaped = true;
                }
                None => value.push(byte),
            },
            b',' => finish(&mut value, &mut is_escaped),
            byte => value.push(byte),
        }
    }
    finish(&mut value, &mut is_escaped);
    values
}

/// Returns an argument as a shell takes it. Control characters are written as escapes.
fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_=./,:@%+".contains(c);
    if argument.chars().all(is_plain) {
        return argument.to_owned();
    }
    if !argument.contains(char::is_control) {
        return format!("'{}'", argument.replace('\'', "'\\''"));
    }
    let mut quoted = "$'".to_owned();
    for character in argument.chars() {
        match character {
            '\'' | '\\' => quoted.extend(['\\', character]),
            other if other.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(other))),
            other => quoted.push(other),
        }
    }
    quoted + "'"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> PermissionRequest {
        let purpose = format!("plugin p reads {path}");
        PermissionRequest { access: Access::Read(path.into()), purpose, place: None }
    }

    #[test]
    fn a_request_is_one_line_whatever_its_names_have() {
        let forged = read("/a\n  plugin p reads nothing\t\x1b[2K\u{9b}");
        assert_eq!(forged.to_string(), "plugin p reads /a␊  plugin p reads nothing␉␛[2K\u{fffd}");
        assert_eq!(
            flags(&[forged]),
            "$'--allow-read=/a\\u000a  plugin p reads nothing\\u0009\\u001b[2K\\u009b'"
        );
    }

    #[test]
    fn flags_allow_exactly_what_is_wanted() {
        for path in ["/a,*,/b", "/a\\,b\\", "/*", "/a b's"] {
            let value = escaped(path);
            assert_eq!(split_list(value.as_bytes()), [ListedValue::One(path.into())], "{path}");
        }
        let star = PermissionRequest { access: Access::Net("*".to_owned()), ..read("/a") };
        assert_eq!(flags(&[star]), "'--allow-net=\\*'");
        assert_eq!(split_list(b"\\*"), [ListedValue::One(b"*".to_vec())]);
        assert_eq!(flags(&[read("/a,b"), read("/c")]), "'--allow-read=/a\\,b,/c'");
        let listed = split_list(b"/a, *,,b\\c");
        let one = |text: &str| ListedValue::One(text.into());
        assert_eq!(listed, [one("/a"), ListedValue::All, one("b\\c")]);
    }
}
