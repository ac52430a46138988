//! Items of a plugin in a custom section of its component, which can be read without compiling it.
//!
//! The section [`NAME`] holds the items as JSON, as [`Item`] serialises. It is a copy of the result of
//! `describe` and is written after the component is built. [`crate::Plugin::load`] refuses a copy that
//! differs.

use std::ops::Range;

use pl_types::Item;

/// Name of the custom section.
pub const NAME: &str = "pl-host:items@0.1";

/// The magic number, the version and the layer of a component.
const HEADER: [u8; 8] = *b"\0asm\x0d\0\x01\0";

/// The identifier of custom sections in the binary format.
const CUSTOM: u8 = 0;

/// Returns the items in a component's section. Returns `None` if the section is missing or invalid.
pub fn items(component: &[u8]) -> Option<Vec<Item>> {
    let section = sections(component)?.find(|section| section.has_items(component))?;
    serde_json::from_slice(component.get(section.data(component)?)?).ok()
}

/// Returns the component with a section of its items, which replaces an existing one. Returns `None` if the
/// bytes are not a component.
pub fn with_items(component: &[u8], items: &[Item]) -> Option<Vec<u8>> {
    let mut out = HEADER.to_vec();
    for section in sections(component)?.filter(|section| !section.has_items(component)) {
        out.extend_from_slice(component.get(section.whole)?);
    }
    let json = serde_json::to_vec(items).ok()?;
    let mut content = Vec::with_capacity(json.len() + NAME.len() + 5);
    push_length(&mut content, NAME.len());
    content.extend_from_slice(NAME.as_bytes());
    content.extend_from_slice(&json);
    out.push(CUSTOM);
    push_length(&mut out, content.len());
    out.extend_from_slice(&content);
    Some(out)
}

/// A section at the top of a component.
struct Section {
    id: u8,
    whole: Range<usize>,
    content: Range<usize>,
}

impl Section {
    fn has_items(&self, component: &[u8]) -> bool {
        self.id == CUSTOM && self.name(component).is_some_and(|(name, _)| name == NAME.as_bytes())
    }

    /// Returns the name of a custom section and the offset of its data.
    fn name<'c>(&self, component: &'c [u8]) -> Option<(&'c [u8], usize)> {
        let (length, start) = length(component, self.content.start)?;
        let end = start.checked_add(length).filter(|end| *end <= self.content.end)?;
        Some((component.get(start..end)?, end))
    }

    fn data(&self, component: &[u8]) -> Option<Range<usize>> {
        Some(self.name(component)?.1..self.content.end)
    }
}

/// Iterates over the sections up to the first invalid byte. Returns `None` if the header is not that of a
/// component.
fn sections(component: &[u8]) -> Option<impl Iterator<Item = Section> + '_> {
    component.strip_prefix(&HEADER)?;
    let mut offset = HEADER.len();
    Some(std::iter::from_fn(move || {
        let id = *component.get(offset)?;
        let (size, start) = length(component, offset + 1)?;
        let end = start.checked_add(size).filter(|end| *end <= component.len())?;
        let section = Section { id, whole: offset..end, content: start..end };
        offset = end;
        Some(section)
    }))
}

/// Reads an unsigned LEB128 number of at most 32 bits. Returns it with the offset behind it.
fn length(bytes: &[u8], offset: usize) -> Option<(usize, usize)> {
    let mut value = 0_u64;
    for (index, byte) in bytes.get(offset..)?.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((usize::try_from(u32::try_from(value).ok()?).ok()?, offset + index + 1));
        }
    }
    None
}

fn push_length(out: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}
