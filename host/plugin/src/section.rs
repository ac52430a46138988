//! What a plugin offers, kept in a custom section of its component: read without compiling it.
//!
//! The section is called [`NAME`] and holds the items as JSON, as [`Item`] serialises. It is a copy of what `describe`
//! says, written once the component is built, and [`crate::Plugin::load`] refuses a copy that says otherwise.

use std::ops::Range;

use pl_types::Item;

use crate::Plugin;

/// Of the custom section.
pub const NAME: &str = "pl-host:items@0.1";

/// The magic number, the version and the layer of a component.
const HEADER: [u8; 8] = *b"\0asm\x0d\0\x01\0";

/// The identifier of custom sections in the binary format.
const CUSTOM: u8 = 0;

/// The items that a component's section names. None: it has none that can be read.
pub fn items(component: &[u8]) -> Option<Vec<Item>> {
    let section = sections(component)?.find(|section| section.is_ours(component))?;
    serde_json::from_slice(component.get(section.data(component)?)?).ok()
}

/// The component with a section that says what the plugin offers, in place of what it had.
pub fn with_items(component: &[u8], plugin: &Plugin) -> Option<Vec<u8>> {
    let mut out = HEADER.to_vec();
    for section in sections(component)?.filter(|section| !section.is_ours(component)) {
        out.extend_from_slice(component.get(section.whole)?);
    }
    let json = serde_json::to_vec(plugin.items()).ok()?;
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
    fn is_ours(&self, component: &[u8]) -> bool {
        self.id == CUSTOM && self.named(component).is_some_and(|(name, _)| name == NAME.as_bytes())
    }

    /// The name of a custom section, and where what is behind it begins.
    fn named<'c>(&self, component: &'c [u8]) -> Option<(&'c [u8], usize)> {
        let (length, start) = length(component, self.content.start)?;
        let end = start.checked_add(length).filter(|end| *end <= self.content.end)?;
        Some((component.get(start..end)?, end))
    }

    fn data(&self, component: &[u8]) -> Option<Range<usize>> {
        Some(self.named(component)?.1..self.content.end)
    }
}

/// The sections in order, up to where the bytes make no sense. None: it is no component.
fn sections(component: &[u8]) -> Option<impl Iterator<Item = Section> + '_> {
    component.strip_prefix(&HEADER)?;
    let mut at = HEADER.len();
    Some(std::iter::from_fn(move || {
        let id = *component.get(at)?;
        let (size, start) = length(component, at + 1)?;
        let end = start.checked_add(size).filter(|end| *end <= component.len())?;
        let section = Section { id, whole: at..end, content: start..end };
        at = end;
        Some(section)
    }))
}

/// An unsigned LEB128 number of at most 32 bits, and where what is behind it begins.
fn length(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let mut value = 0_u64;
    for (index, byte) in bytes.get(at..)?.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((usize::try_from(u32::try_from(value).ok()?).ok()?, at + index + 1));
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
