//! Changes of a linked program (ELF, 64 bits, little endian): where it looks for libraries.

use anyhow::{Context, Result, bail};

/// Types of program headers and dynamic entries, from the System V ABI.
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NULL: u64 = 0;
const DT_STRTAB: u64 = 5;
const DT_RUNPATH: u64 = 29;

/// Sizes of a program header and of a dynamic entry.
const PROGRAM_HEADER: usize = 56;
const DYNAMIC_ENTRY: usize = 16;

/// Replaces the folders in which a program looks for libraries. The file keeps its size, so the new text may not be longer
/// than the old one.
pub fn set_runpath(file: &mut [u8], runpath: &str) -> Result<()> {
    let position = runpath_position(file)?;
    let old = file.get(position..).and_then(|rest| rest.iter().position(|byte| *byte == 0));
    let old = old.context("the runpath has no end")?;
    if old < runpath.len() {
        bail!("the program has only room for a runpath of {old} bytes, not for {runpath:?}");
    }
    let place = file.get_mut(position..position + old).context("the runpath is cut off")?;
    place.fill(0);
    place.iter_mut().zip(runpath.bytes()).for_each(|(place, byte)| *place = byte);
    Ok(())
}

/// Returns the largest N of the symbol versions `GLIBC_2.N` that a program needs.
pub fn newest_glibc(file: &[u8]) -> Result<u32> {
    const PREFIX: &[u8] = b"\0GLIBC_2.";
    let versions = file.windows(PREFIX.len()).enumerate().filter(|(_, window)| *window == PREFIX);
    let minor = |(index, _): (usize, &[u8])| {
        let digits = file.get(index + PREFIX.len()..)?.iter().take_while(|byte| byte.is_ascii_digit());
        String::from_utf8(digits.copied().collect()).ok()?.parse().ok()
    };
    versions.filter_map(minor).max().context("the program needs no glibc")
}

/// Returns the position of the text of the runpath.
fn runpath_position(file: &[u8]) -> Result<usize> {
    if file.get(..6) != Some(b"\x7fELF\x02\x01") {
        bail!("it is not a program of 64 bits for Linux");
    }
    let dynamic = program_headers(file)?.into_iter().find(|header| header.kind == PT_DYNAMIC);
    let dynamic = dynamic.context("the program is linked to no library")?;
    let value_of = |wanted: u64| -> Result<u64> {
        for entry in 0..dynamic.size / DYNAMIC_ENTRY {
            let position = dynamic.offset + entry * DYNAMIC_ENTRY;
            match u64_at(file, position)? {
                DT_NULL => break,
                tag if tag == wanted => return u64_at(file, position + 8),
                _ => {}
            }
        }
        bail!("the program has no runpath")
    };
    let address = usize::try_from(value_of(DT_STRTAB)?)?;
    let segments = program_headers(file)?;
    let segment = segments
        .iter()
        .find(|header| {
            header.kind == PT_LOAD && (header.address..header.address + header.size).contains(&address)
        })
        .context("the program's texts are in no segment")?;
    Ok(address - segment.address + segment.offset + usize::try_from(value_of(DT_RUNPATH)?)?)
}

struct ProgramHeader {
    kind: u32,
    offset: usize,
    address: usize,
    size: usize,
}

fn program_headers(file: &[u8]) -> Result<Vec<ProgramHeader>> {
    let table = usize::try_from(u64_at(file, 32)?)?;
    let count = usize::from(u16::from_le_bytes(bytes_at(file, 56)?));
    let header = |index| {
        let start = table + index * PROGRAM_HEADER;
        Ok(ProgramHeader {
            kind: u32::from_le_bytes(bytes_at(file, start)?),
            offset: usize::try_from(u64_at(file, start + 8)?)?,
            address: usize::try_from(u64_at(file, start + 16)?)?,
            size: usize::try_from(u64_at(file, start + 32)?)?,
        })
    };
    (0..count).map(header).collect()
}

fn u64_at(file: &[u8], position: usize) -> Result<u64> {
    Ok(u64::from_le_bytes(bytes_at(file, position)?))
}

fn bytes_at<const N: usize>(file: &[u8], position: usize) -> Result<[u8; N]> {
    let bytes = file.get(position..).and_then(|rest| rest.first_chunk()).copied();
    bytes.context("the program is cut off")
}
