//! Check of a file's footer, which has the schema and the places of all columns.

use std::fs::File;
use std::os::unix::fs::FileExt;

use parquet::file::metadata::FooterTail;

use crate::Error;
use crate::layout::{FILE_METADATA, Layout, SCHEMA_ELEMENT, Visitor, walk};

/// Bytes of a footer. The library takes some fifty times as much memory for what it reads of it.
const LARGEST: usize = 16 << 20;

/// Levels of a schema. The library reads it, and later each row, by recursion.
const DEEPEST: usize = 64;

/// Columns and groups of a schema. The library takes tens of kilobytes for each column of which it reads rows.
const MOST: usize = 10_000;

/// Bytes of a column's or group's name. The library copies the names of all groups for each column, and those of a structure's
/// fields for each structure.
const LONGEST_NAME: usize = 512;

/// Bytes of a value of fixed length.
const LARGEST_VALUE: i64 = 64 << 10;

/// Checks that a footer has the structure of the format, and a schema that can be read.
pub(crate) fn check(file: &File) -> Result<(), Error> {
    let length = file.metadata()?.len();
    let mut tail = [0; 8];
    let Some(end) = length.checked_sub(tail.len() as u64) else {
        return Err(Error::Damaged("it is too short for a Parquet file".to_owned()));
    };
    file.read_exact_at(&mut tail, end)?;
    let tail = FooterTail::try_new(&tail)?;
    if tail.is_encrypted_footer() {
        return Err(Error::Refused("it is encrypted".to_owned()));
    }
    let size = tail.metadata_length();
    if size > LARGEST {
        return Err(Error::Refused(format!("its footer has more than {LARGEST} bytes")));
    }
    let Some(start) = end.checked_sub(size as u64) else {
        return Err(Error::Damaged("its footer is larger than the file".to_owned()));
    };
    let mut footer = vec![0; size];
    file.read_exact_at(&mut footer, start)?;
    walk(&mut footer.as_slice(), &FILE_METADATA, &mut Schema::default())
}

/// Elements of a schema, which stand in depth-first order.
#[derive(Debug, Default)]
struct Schema {
    elements: usize,
    /// Elements that are still to come of each group that is open.
    open: Vec<i64>,
    /// Children of the element that is being read.
    children: i64,
}

impl Visitor for Schema {
    fn number(&mut self, layout: &'static Layout, field: i16, value: i64) -> Result<(), Error> {
        if !layout.is(&SCHEMA_ELEMENT) {
            return Ok(());
        }
        match field {
            2 if !(0..=LARGEST_VALUE).contains(&value) => {
                Err(Error::Refused(format!("it has values of {value} bytes each")))
            }
            // The library takes memory for them at once.
            5 if !(0..=MOST as i64).contains(&value) => {
                Err(Error::Refused(format!("its schema has a group of {value} columns")))
            }
            5 => {
                self.children = value;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn bytes(&mut self, layout: &'static Layout, _field: i16, length: usize) -> Result<(), Error> {
        if layout.is(&SCHEMA_ELEMENT) && length > LONGEST_NAME {
            return Err(Error::Refused(format!("a name in its schema has more than {LONGEST_NAME} bytes")));
        }
        Ok(())
    }

    fn end(&mut self, layout: &'static Layout) -> Result<(), Error> {
        if !layout.is(&SCHEMA_ELEMENT) {
            return Ok(());
        }
        self.elements += 1;
        if self.elements > MOST {
            return Err(Error::Refused(format!("its schema has more than {MOST} columns and groups")));
        }
        if self.open.len() >= DEEPEST {
            return Err(Error::Refused(format!("its schema has more than {DEEPEST} levels")));
        }
        if let Some(siblings) = self.open.last_mut() {
            *siblings -= 1;
        }
        let children = std::mem::take(&mut self.children);
        if children > 0 {
            self.open.push(children);
        } else {
            // A single value may be the last of several groups at once.
            while self.open.last() == Some(&0) {
                self.open.pop();
            }
        }
        Ok(())
    }
}
