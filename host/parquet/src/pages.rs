//! Content of a file by the headers of its pages.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};

use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

use crate::Error;
use crate::layout::{
    DATA_PAGE_HEADER, DATA_PAGE_HEADER_V2, DICTIONARY_PAGE_HEADER, Layout, PAGE_HEADER, Visitor, walk,
};

/// Content that pages state.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Content {
    /// Values, nulls and empty lists included.
    pub(crate) values: u64,
    /// Bytes of the pages once they are unpacked.
    pub(crate) unpacked: u64,
}

/// Sums up the pages of all columns.
///
/// # Errors
/// [`Error::Damaged`] if a header has another structure than the format's, pages don't fill their columns exactly, or columns
/// have more bytes together than the file.
pub(crate) fn content(file: &File, metadata: &ParquetMetaData) -> Result<Content, Error> {
    let mut left = file.metadata()?.len();
    let mut input = BufReader::new(file);
    let mut content = Content::default();
    for column in metadata.row_groups().iter().flat_map(|group| group.columns()) {
        let (start, length) = place(column)?;
        left = left
            .checked_sub(length)
            .ok_or_else(|| Error::Damaged("its columns have more bytes than the file".to_owned()))?;
        input.seek(SeekFrom::Start(start))?;
        add_column(&mut input, length, &mut content)?;
    }
    Ok(content)
}

/// Returns where a column begins and how many bytes it has.
fn place(column: &ColumnChunkMetaData) -> Result<(u64, u64), Error> {
    let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
    let place = u64::try_from(start).ok().zip(u64::try_from(column.compressed_size()).ok());
    place.ok_or_else(|| Error::Damaged("a column begins before the file".to_owned()))
}

/// Adds the pages of a column to `content`.
fn add_column(input: &mut BufReader<&File>, mut length: u64, content: &mut Content) -> Result<(), Error> {
    while length > 0 {
        let mut header = input.take(length);
        let mut page = Page::default();
        walk(&mut header, &PAGE_HEADER, &mut page)?;
        let body = header.limit();
        page.check()?;
        length = u64::try_from(page.packed)
            .ok()
            .and_then(|packed| body.checked_sub(packed))
            .ok_or_else(|| Error::Damaged("a page is larger than its column".to_owned()))?;
        input.seek_relative(i64::from(page.packed))?;
        content.values = content.values.saturating_add(page.values);
        content.unpacked = content.unpacked.saturating_add(u64::try_from(page.unpacked).unwrap_or(u64::MAX));
    }
    Ok(())
}

/// Numbers of a page's header.
#[derive(Debug, Default)]
struct Page {
    unpacked: i32,
    packed: i32,
    values: u64,
    /// Number of the page's type: 0 for data, 1 for an index, 2 for a dictionary, 3 for data in version 2.
    kind: i32,
    /// Header of the type.
    header: Option<&'static Layout>,
}

impl Page {
    /// Checks that the header is the one of the page's type.
    fn check(&self) -> Result<(), Error> {
        let expected = match self.kind {
            0 => &DATA_PAGE_HEADER,
            // The library passes over indices.
            1 => return Ok(()),
            2 => &DICTIONARY_PAGE_HEADER,
            3 => &DATA_PAGE_HEADER_V2,
            kind => return Err(Error::Damaged(format!("a page has the unknown type {kind}"))),
        };
        if self.header.is_some_and(|found| std::ptr::eq(found, expected)) {
            Ok(())
        } else {
            Err(Error::Damaged("a page lacks the header of its type".to_owned()))
        }
    }
}

impl Visitor for Page {
    fn number(&mut self, layout: &'static Layout, field: i16, value: i32) {
        if std::ptr::eq(layout, &PAGE_HEADER) {
            match field {
                1 => self.kind = value,
                2 => self.unpacked = value,
                3 => self.packed = value,
                _ => {}
            }
        } else if field == 1
            && (std::ptr::eq(layout, &DATA_PAGE_HEADER) || std::ptr::eq(layout, &DATA_PAGE_HEADER_V2))
        {
            self.values = self.values.saturating_add(u64::try_from(value).unwrap_or(0));
        }
    }

    fn end(&mut self, layout: &'static Layout) {
        let headers = [&DATA_PAGE_HEADER, &DICTIONARY_PAGE_HEADER, &DATA_PAGE_HEADER_V2];
        if headers.into_iter().any(|header| std::ptr::eq(header, layout)) {
            self.header = Some(layout);
        }
    }
}
