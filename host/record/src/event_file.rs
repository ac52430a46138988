//! An event file of TensorBoard: the numbers of `metrics.jsonl` and `timings.jsonl` in the form that `tensorboard --logdir`
//! reads.
//!
//! A record of TFRecord holds a message `Event` in protobuf's encoding:
//!
//! ```text
//! record   u64 length, u32 masked CRC-32C of the length, message, u32 masked CRC-32C of the message (little endian)
//! Event    1: double wall_time, 2: int64 step, 3: string file_version, 5: Summary summary
//! Summary  1: repeated Value { 1: string tag, 2: float simple_value }
//! ```

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::Error;
use crate::jsonl::open_truncated;

/// Version of the format, the content of the first event.
const VERSION: &[u8] = b"brain.Event:2";

/// Polynomial of CRC-32C (Castagnoli), bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Remainders of all bytes.
const TABLE: [u32; 256] = table();

/// An event file that only grows. A resumed run truncates it to its length at the checkpoint.
#[derive(Debug)]
pub struct EventFile {
    path: PathBuf,
    file: File,
    length: u64,
}

impl EventFile {
    /// Opens the file and truncates it to `length` bytes. A new file gets its first event.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the file is shorter than `length`.
    pub fn open(path: &Path, length: u64) -> Result<EventFile, Error> {
        let file = open_truncated(path, length)?;
        let mut events = EventFile { path: path.to_path_buf(), file, length };
        if length == 0 {
            let mut event = Vec::new();
            put_double(&mut event, 1, now());
            put_bytes(&mut event, 3, VERSION);
            events.append_record(&event)?;
        }
        Ok(events)
    }

    /// Writes the values of a step as one event.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn append(&mut self, step: u64, values: &[(String, f64)]) -> Result<(), Error> {
        if values.is_empty() {
            return Ok(());
        }
        let mut summary = Vec::new();
        for (tag, number) in values {
            let mut value = Vec::new();
            put_bytes(&mut value, 1, tag.as_bytes());
            put_float(&mut value, 2, *number as f32);
            put_bytes(&mut summary, 1, &value);
        }
        let mut event = Vec::new();
        put_double(&mut event, 1, now());
        put_varint(&mut event, 2 << 3);
        put_varint(&mut event, step);
        put_bytes(&mut event, 5, &summary);
        self.append_record(&event)
    }

    /// Makes all events durable and returns the length in bytes.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sync(&mut self) -> Result<u64, Error> {
        self.file.sync_data().map_err(Error::io("sync", &self.path))?;
        Ok(self.length)
    }

    fn append_record(&mut self, event: &[u8]) -> Result<(), Error> {
        let length = (event.len() as u64).to_le_bytes();
        let mut record = Vec::with_capacity(event.len() + 16);
        record.extend(length);
        record.extend(masked_crc(&length).to_le_bytes());
        record.extend(event);
        record.extend(masked_crc(event).to_le_bytes());
        self.file.write_all(&record).map_err(Error::io("write", &self.path))?;
        self.length += record.len() as u64;
        Ok(())
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Returns the checksum of TFRecord: CRC-32C, rotated and shifted, so that a checksum of checksums stays a good one.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        let index = (crc as u8) ^ byte;
        TABLE.get(usize::from(index)).copied().unwrap_or_default() ^ (crc >> 8)
    };
    !bytes.iter().fold(!0, step)
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// Appends a field of 64 bits (wire type 1).
fn put_double(message: &mut Vec<u8>, field: u64, value: f64) {
    put_varint(message, field << 3 | 1);
    message.extend(value.to_le_bytes());
}

/// Appends a field of 32 bits (wire type 5).
fn put_float(message: &mut Vec<u8>, field: u64, value: f32) {
    put_varint(message, field << 3 | 5);
    message.extend(value.to_le_bytes());
}

/// Appends a field with a length (wire type 2): a text or a message.
fn put_bytes(message: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(message, field << 3 | 2);
    put_varint(message, bytes.len() as u64);
    message.extend(bytes);
}

/// Appends a number in groups of seven bits, the lowest first.
fn put_varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use pl_testing::{Requirement, skip_or_fail};

    use super::*;

    /// Reads an event file with TensorBoard's own reader, which checks all checksums.
    const READER: &str = "
import sys
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
for event in EventFileLoader(sys.argv[1]).Load():
    if event.file_version:
        print(event.file_version)
    for value in event.summary.value:
        print(event.step, value.tag, value.tensor.float_val[0])
";

    #[test]
    fn checksums_are_those_of_the_standard() {
        // RFC 3720, B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn numbers_are_encoded_in_groups_of_seven_bits() {
        let mut message = Vec::new();
        put_varint(&mut message, 300);
        put_bytes(&mut message, 1, b"ab");
        assert_eq!(message, [0xac, 0x02, 0x0a, 2, b'a', b'b']);
    }

    #[test]
    fn a_reopened_file_loses_the_events_after_the_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        let values = [("a".to_owned(), 0.5)];
        let mut events = EventFile::open(&path, 0).unwrap();
        events.append(1, &values).unwrap();
        let kept = events.sync().unwrap();
        let first = std::fs::read(&path).unwrap();
        events.append(2, &values).unwrap();
        drop(events);
        EventFile::open(&path, kept).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first);
    }

    #[test]
    fn tensorboard_reads_the_events() {
        let probe = Command::new("python3").args(["-c", "import tensorboard"]).output();
        if !probe.is_ok_and(|probe| probe.status.success()) {
            skip_or_fail(Requirement::Tensorboard, "python3 has no package tensorboard");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.out.tfevents.0.pl-host");
        let mut events = EventFile::open(&path, 0).unwrap();
        events.append(1, &[("agents/tool/reward".to_owned(), 0.5), ("loss".to_owned(), -2.0)]).unwrap();
        events.append(200, &[("evaluations/test/success".to_owned(), 0.25)]).unwrap();
        let read = Command::new("python3").args(["-c", READER]).arg(&path).output().unwrap();
        let (out, errors) = (String::from_utf8_lossy(&read.stdout), String::from_utf8_lossy(&read.stderr));
        let expected =
            "brain.Event:2\n1 agents/tool/reward 0.5\n1 loss -2.0\n200 evaluations/test/success 0.25\n";
        assert_eq!(out, expected, "{errors}");
    }
}
