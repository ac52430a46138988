//! Numbers, texts and lists as bytes.

use std::io::{Error, ErrorKind, Read, Result, Write};

use crate::Entry;

/// Writes a frame and what is still held back.
///
/// # Errors
/// Of the stream, and where the frame is longer than a length can say.
pub fn write_frame(to: &mut impl Write, content: &[u8]) -> Result<()> {
    let length = u32::try_from(content.len()).map_err(|_| Error::from(ErrorKind::InvalidInput))?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(content)?;
    to.flush()
}

/// Reads a frame of at most `most` bytes.
///
/// # Errors
/// Of the stream, and where the frame is longer.
pub fn read_frame(from: &mut impl Read, most: usize) -> Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > most {
        return Err(Error::from(ErrorKind::InvalidData));
    }
    let mut content = vec![0; length];
    from.read_exact(&mut content)?;
    Ok(content)
}

/// What lists are made of.
pub trait Field: Sized {
    fn write(&self, to: &mut Writer);
    fn read(from: &mut Reader<'_>) -> Option<Self>;
}

#[derive(Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    pub fn number(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(bytes.len() as u64).0.extend(bytes);
        self
    }

    pub fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    pub fn list<T: Field>(&mut self, list: &[T]) -> &mut Self {
        self.number(list.len() as u64);
        for one in list {
            one.write(self);
        }
        self
    }

    pub fn optional(&mut self, text: Option<&String>) -> &mut Self {
        self.list(text.map_or(&[], std::slice::from_ref))
    }

    pub fn done(self) -> Vec<u8> {
        self.0
    }
}

pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn number(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    pub fn flag(&mut self) -> Option<bool> {
        self.number().map(|value| value != 0)
    }

    pub fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.number()?).ok()?;
        let (first, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(first.to_vec())
    }

    pub fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?).ok()
    }

    pub fn list<T: Field>(&mut self) -> Option<Vec<T>> {
        let count = self.number()?;
        (0..count).map(|_| T::read(self)).collect()
    }

    pub fn optional(&mut self) -> Option<Option<String>> {
        self.list().map(|mut list| list.pop())
    }
}

impl Field for String {
    fn write(&self, to: &mut Writer) {
        to.text(self);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        from.text()
    }
}

impl Field for Vec<u8> {
    fn write(&self, to: &mut Writer) {
        to.bytes(self);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        from.bytes()
    }
}

impl Field for Entry {
    fn write(&self, to: &mut Writer) {
        to.text(&self.path).bytes(&self.bytes).number(u64::from(self.executable));
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(Entry { path: from.text()?, bytes: from.bytes()?, executable: from.flag()? })
    }
}
