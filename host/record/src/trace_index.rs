//! Index of a trace file, at its end: where each line is, so that one can be read without those before it, and a row of
//! each episode.
//!
//! A file is a sequence of zstd frames of whole lines. After them come two skippable frames, which every reader of zstd
//! passes over: the rows ([`crate::episode_summary`], compressed), and the index (little-endian numbers of 32 bits, 64 for
//! the offsets of frames). Each ends with the length of its content and a mark, so that they are found from the end of the
//! file. Files of earlier versions have no rows, or neither.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use crate::episode_summary::{AttemptKey, EpisodeSummaries};

/// End of a file that has an index.
const MARK: &[u8; 8] = b"PLTRACE1";

/// End of the rows, before the index.
const ROWS_MARK: &[u8; 8] = b"PLROWS01";

/// First bytes of a skippable frame.
const SKIPPABLE: u32 = 0x184D_2A50;

/// Bytes before the content of a skippable frame: its first bytes and its length.
const HEAD: u64 = 8;

/// Bytes after the content: its length and the mark.
const FOOTER: u64 = 12;

/// Largest index that is read, in bytes: of some million lines. Rows are smaller.
const LARGEST: u64 = 64 << 20;

/// Index of a trace file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TraceIndex {
    /// Attempt of each line, in order.
    pub attempts: Vec<AttemptKey>,
    /// Offset of each frame in the file, and the number of lines before it.
    frames: Vec<(u64, u32)>,
}

impl TraceIndex {
    /// Begins a frame at an offset.
    pub(crate) fn begin_frame(&mut self, offset: u64) {
        self.frames.push((offset, self.attempts.len() as u32));
    }

    /// Returns the offset of the frame of a line, and the number of the frame's lines before it.
    pub(crate) fn position(&self, line: usize) -> Option<(u64, usize)> {
        let (offset, first) = self.frames.iter().rev().find(|(_, first)| *first as usize <= line)?;
        (line < self.attempts.len()).then_some((*offset, line - *first as usize))
    }

    /// Returns the skippable frame with the index.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut index = Vec::new();
        let mut number = |value: u32| index.extend(value.to_le_bytes());
        number(self.attempts.len() as u32);
        for AttemptKey { task, sample, attempt } in &self.attempts {
            [*task, *sample, *attempt].into_iter().for_each(&mut number);
        }
        number(self.frames.len() as u32);
        for (offset, first) in &self.frames {
            index.extend(offset.to_le_bytes());
            index.extend(first.to_le_bytes());
        }
        skippable(index, MARK)
    }

    /// Reads the index of a file. Returns `None` if it has none.
    pub(crate) fn read(file: &mut File) -> std::io::Result<Option<TraceIndex>> {
        let end = file.metadata()?.len();
        let Some(length) = content_length(file, end, MARK)? else { return Ok(None) };
        Ok(decode(&content(file, end, length)?))
    }
}

/// Returns the skippable frame with rows.
pub(crate) fn encode_rows(rows: &EpisodeSummaries) -> std::io::Result<Vec<u8>> {
    Ok(rows.encode()?.map_or_else(Vec::new, |rows| skippable(rows, ROWS_MARK)))
}

/// Reads the rows of a file. Returns `None` if it has none, or they are damaged.
pub(crate) fn read_rows(file: &mut File) -> std::io::Result<Option<EpisodeSummaries>> {
    let end = file.metadata()?.len();
    let Some(index) = content_length(file, end, MARK)? else { return Ok(None) };
    let Some(end) = end.checked_sub(FOOTER + index + HEAD) else { return Ok(None) };
    let Some(length) = content_length(file, end, ROWS_MARK)? else { return Ok(None) };
    Ok(EpisodeSummaries::decode(&content(file, end, length)?))
}

/// Returns the length of the index at the end of a file. Returns `None` if it has none.
pub(crate) fn index_length(file: &mut File) -> std::io::Result<Option<u64>> {
    let end = file.metadata()?.len();
    content_length(file, end, MARK)
}

/// Returns a skippable frame with a content, its length and a mark.
fn skippable(mut content: Vec<u8>, mark: &[u8; 8]) -> Vec<u8> {
    let length = content.len() as u32;
    content.extend(length.to_le_bytes());
    content.extend(mark);
    let mut frame = SKIPPABLE.to_le_bytes().to_vec();
    frame.extend((content.len() as u32).to_le_bytes());
    frame.append(&mut content);
    frame
}

/// Returns the length of the content of the skippable frame that ends at an offset. Returns `None` if it has another mark.
fn content_length(file: &mut File, end: u64, expected: &[u8; 8]) -> std::io::Result<Option<u64>> {
    if end < FOOTER {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(end - FOOTER))?;
    let mut footer = [0; FOOTER as usize];
    file.read_exact(&mut footer)?;
    let Some((length, mark)) = footer.split_first_chunk::<4>() else { return Ok(None) };
    let length = u64::from(u32::from_le_bytes(*length));
    Ok((mark == expected && length <= LARGEST && length + FOOTER <= end).then_some(length))
}

/// Reads the content of the skippable frame that ends at an offset.
fn content(file: &mut File, end: u64, length: u64) -> std::io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(end - FOOTER - length))?;
    let mut bytes = vec![0; length as usize];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Returns `None` if the bytes are not an index.
fn decode(mut bytes: &[u8]) -> Option<TraceIndex> {
    let mut index = TraceIndex::default();
    let lines = number(&mut bytes)?;
    for _ in 0..lines {
        let [task, sample, attempt] = [number(&mut bytes)?, number(&mut bytes)?, number(&mut bytes)?];
        index.attempts.push(AttemptKey { task, sample, attempt });
    }
    for _ in 0..number(&mut bytes)? {
        let (offset, rest) = bytes.split_first_chunk::<8>()?;
        bytes = rest;
        index.frames.push((u64::from_le_bytes(*offset), number(&mut bytes)?));
    }
    bytes.is_empty().then_some(index)
}

fn number(bytes: &mut &[u8]) -> Option<u32> {
    let (first, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_atomically;

    #[test]
    fn an_index_is_read_from_the_end_of_a_file_and_finds_lines() {
        let mut index = TraceIndex::default();
        index.begin_frame(0);
        for task in 0..5 {
            if task == 3 {
                index.begin_frame(100);
            }
            index.attempts.push(AttemptKey { task, sample: task * 2, attempt: 1 });
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut bytes = vec![7; 200];
        bytes.extend(index.encode());
        write_atomically(&path, &bytes).unwrap();
        let read = TraceIndex::read(&mut File::open(&path).unwrap()).unwrap().unwrap();
        assert_eq!(read, index);
        assert_eq!(
            [0, 2, 3, 4, 5].map(|line| read.position(line)),
            [Some((0, 0)), Some((0, 2)), Some((100, 0)), Some((100, 1)), None]
        );
        // Whatever byte is wrong, no other index is made of it than one that fits the file.
        for at in 200..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x81;
            std::fs::write(&path, &changed).unwrap();
            drop(TraceIndex::read(&mut File::open(&path).unwrap()));
        }
        std::fs::write(&path, [1, 2, 3]).unwrap();
        assert_eq!(TraceIndex::read(&mut File::open(&path).unwrap()).unwrap(), None);
    }
}
