//! Reading a trace file of a run from its start to its end, within bounds.

use std::path::PathBuf;

use pl_record::{TraceFile, Traces};

use crate::error::Error;
use crate::runs::inside;

/// Bounds of the content of a trace file. A file of 1 MB may be 8 GiB of one letter, compressed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadLimits {
    /// Decompressed bytes.
    pub(crate) bytes: u64,
    /// Lines.
    pub(crate) lines: u64,
}

/// Bounds that no run of the program comes near to.
pub(crate) const READ_LIMITS: ReadLimits = ReadLimits { bytes: 8 << 30, lines: 1 << 20 };

/// A trace file of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexedFile {
    pub(crate) run: PathBuf,
    pub(crate) file: TraceFile,
}

/// Returns the path of a trace file that is not a link.
pub(crate) fn path(file: &IndexedFile) -> Result<PathBuf, Error> {
    let path = Traces::for_run(&file.run).path(&file.file);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    inside(&file.run, &["traces", &name])
}

/// Reads every line of a trace file. Lines for which `each` fails become problems.
pub(crate) fn read_all(
    file: &IndexedFile,
    limits: ReadLimits,
    mut each: impl FnMut(u32, &[u8]) -> serde_json::Result<()>,
) -> Result<Vec<String>, Error> {
    let path = path(file)?;
    let (mut problems, mut bytes) = (Vec::new(), 0);
    for (position, line) in (0u32..).zip(Traces::for_run(&file.run).lines(&file.file)?) {
        let line = match line {
            Ok(line) => line,
            // What was read up to here is shown; the reader ends at such an error.
            Err(error) => {
                problems.push(error.to_string());
                break;
            }
        };
        bytes += line.text.len() as u64;
        if bytes > limits.bytes {
            return Err(Error::TooLarge { path, limit: limits.bytes, unit: "decompressed bytes" });
        }
        if u64::from(position) >= limits.lines {
            return Err(Error::TooLarge { path, limit: limits.lines, unit: "episodes" });
        }
        if let Err(error) = each(position, &line.text)
            && problems.len() < 20
        {
            problems.push(format!("{}:{}: {error}", path.display(), line.number));
        }
    }
    Ok(problems)
}
