//! Check of a file's footer, which has the schema and the places of all columns.

use std::fs::File;
use std::os::unix::fs::FileExt;

use parquet::file::metadata::FooterTail;

use crate::Error;
use crate::layout::{FILE_METADATA, Layout, SCHEMA_ELEMENT, Visitor, walk};

/// Bytes of a footer. The library takes some twenty times as much memory for what it reads of it.
const LARGEST: usize = 16 << 20;

/// Levels of a schema. The library reads it, and later each row, by recursion.
const DEEPEST: usize = 64;

/// Checks that a footer has the structure of the format and a bounded size and depth.
pub(crate) fn check(file: &File) -> Result<(), Error> {
    let length = file.metadata()?.len();
    let mut tail = [0; 8];
    let Some(end) = length.checked_sub(tail.len() as u64) else {
        return Err(Error::Damaged("it is too short for a Parquet file".to_owned()));
    };
    file.read_exact_at(&mut tail, end)?;
    let size = FooterTail::try_new(&tail)?.metadata_length();
    if size > LARGEST {
        return Err(Error::Damaged(format!("its footer has more than {LARGEST} bytes")));
    }
    let Some(start) = end.checked_sub(size as u64) else {
        return Err(Error::Damaged("its footer is larger than the file".to_owned()));
    };
    let mut footer = vec![0; size];
    file.read_exact_at(&mut footer, start)?;
    let mut schema = Depth::default();
    walk(&mut footer.as_slice(), &FILE_METADATA, &mut schema)?;
    if schema.deepest > DEEPEST {
        return Err(Error::Damaged(format!("its schema has more than {DEEPEST} levels")));
    }
    Ok(())
}

/// Depth of a schema, whose elements stand in depth-first order.
#[derive(Debug, Default)]
struct Depth {
    /// Elements that are still to come of each group that is open.
    open: Vec<i32>,
    /// Children of the element that is being read.
    children: i32,
    deepest: usize,
}

impl Visitor for Depth {
    fn number(&mut self, layout: &'static Layout, field: i16, value: i32) {
        if std::ptr::eq(layout, &SCHEMA_ELEMENT) && field == 5 {
            self.children = value;
        }
    }

    fn end(&mut self, layout: &'static Layout) {
        if !std::ptr::eq(layout, &SCHEMA_ELEMENT) {
            return;
        }
        self.deepest = self.deepest.max(self.open.len() + 1);
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
    }
}
