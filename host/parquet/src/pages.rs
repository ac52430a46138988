//! Content of a file by the headers of its pages.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};

use parquet::basic::{Compression, Type};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::schema::types::SchemaDescriptor;

use crate::Error;
use crate::layout::{
    DATA_PAGE_HEADER, DATA_PAGE_HEADER_V2, DICTIONARY_PAGE_HEADER, Layout, PAGE_HEADER, Visitor, walk,
};
use crate::texts::TextColumn;

/// Bytes that a value takes at least while it is read.
const VALUE: u64 = 8;

/// Bytes that a value of a repeated column takes at least, with its levels in Parquet's (Dremel's) encoding. All of a row are read
/// at once. Where it is in a structure, that has its name, too.
const REPEATED_VALUE: u64 = 40;

/// Bytes that a value of a dictionary takes at most. The library takes them before it looks at the page.
const DICTIONARY_VALUE: u64 = 32;

/// Type of a page.
const DICTIONARY: u64 = 2;

/// Content that pages state.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// Bytes of the pages once they are unpacked.
    pub(crate) unpacked: u64,
    /// Bytes that values take at least while they are read, nulls and empty lists included. A page of a few bytes may have billions.
    pub(crate) memory: u64,
    /// Columns of texts in lists, with the bytes that they would have if each text were as long as all of its dictionary.
    pub(crate) texts: Vec<(TextColumn, u64)>,
}

/// Sums up the pages of all columns.
///
/// # Errors
/// [`Error::Damaged`] if a header has another structure than the format's, pages don't fill their columns exactly, columns have
/// more bytes together than the file, fewer values than rows, or the same name, and [`Error::Refused`] for encodings and packing that
/// can't be checked.
pub(crate) fn content(file: &File, metadata: &ParquetMetaData) -> Result<Content, Error> {
    check_names(metadata.file_metadata().schema_descr())?;
    let mut left = file.metadata()?.len();
    let mut input = BufReader::new(file);
    let (mut content, mut rows) = (Content::default(), 0i64);
    for (group_index, group) in metadata.row_groups().iter().enumerate() {
        rows = rows.saturating_add(group.num_rows());
        for (index, column) in group.columns().iter().enumerate() {
            check_packing(column)?;
            let (start, length) = place(column)?;
            left = left
                .checked_sub(length)
                .ok_or_else(|| Error::Damaged("its columns have more bytes than the file".to_owned()))?;
            input.seek(SeekFrom::Start(start))?;
            let own = Pages::read(&mut input, length)?;
            // The library would read nulls for ever.
            if i64::try_from(own.values).is_ok_and(|values| values < group.num_rows()) {
                return Err(Error::Damaged("a column has fewer values than rows".to_owned()));
            }
            content.unpacked = content.unpacked.saturating_add(own.unpacked);
            content.memory = content.memory.saturating_add(own.memory(column));
            if is_repeated(column) && column.column_type() == Type::BYTE_ARRAY {
                let place = TextColumn { group: group_index, column: index };
                content.texts.push((place, own.values.saturating_mul(own.dictionary_bytes)));
            }
        }
    }
    if rows != metadata.file_metadata().num_rows() {
        return Err(Error::Damaged("its parts have other numbers of rows than the whole".to_owned()));
    }
    Ok(content)
}

/// Checks that each column has a name of its own: the library reads the pages of one for all columns of its name.
fn check_names(schema: &SchemaDescriptor) -> Result<(), Error> {
    let mut names = HashSet::new();
    match schema.columns().iter().all(|column| names.insert(column.path().parts())) {
        true => Ok(()),
        false => Err(Error::Damaged("two columns have the same name".to_owned())),
    }
}

/// Checks that a column is packed in a form that the library unpacks no further than its pages state.
fn check_packing(column: &ColumnChunkMetaData) -> Result<(), Error> {
    let name = match column.compression() {
        Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_) => return Ok(()),
        Compression::GZIP(_) => "GZIP",
        Compression::BROTLI(_) => "BROTLI",
        Compression::LZO => "LZO",
        Compression::LZ4 | Compression::LZ4_RAW => "LZ4",
    };
    Err(Error::Refused(format!("its pages are packed with {name}: write it again with SNAPPY or ZSTD")))
}

/// Returns where a column begins and how many bytes it has.
fn place(column: &ColumnChunkMetaData) -> Result<(u64, u64), Error> {
    let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
    let place = u64::try_from(start).ok().zip(u64::try_from(column.compressed_size()).ok());
    place.ok_or_else(|| Error::Damaged("the place of a column is negative".to_owned()))
}

fn is_repeated(column: &ColumnChunkMetaData) -> bool {
    column.column_descr().max_rep_level() > 0
}

/// Sums of a column's pages.
#[derive(Debug, Default)]
struct Pages {
    values: u64,
    unpacked: u64,
    /// Values of the dictionary, and the bytes of its page.
    dictionary: u64,
    dictionary_bytes: u64,
}

impl Pages {
    /// Reads the headers of all pages of a column of `length` bytes.
    fn read(input: &mut BufReader<&File>, mut length: u64) -> Result<Pages, Error> {
        let mut pages = Pages::default();
        while length > 0 {
            let mut header = input.take(length);
            let mut page = Page::default();
            walk(&mut header, &PAGE_HEADER, &mut page)?;
            let body = header.limit();
            page.check()?;
            length = body
                .checked_sub(page.packed)
                .ok_or_else(|| Error::Damaged("a page is larger than its column".to_owned()))?;
            input.seek_relative(page.packed.cast_signed())?;
            pages.values = pages.values.saturating_add(page.values);
            pages.unpacked = pages.unpacked.saturating_add(page.unpacked);
            pages.dictionary = pages.dictionary.saturating_add(page.dictionary);
            if page.kind == DICTIONARY {
                pages.dictionary_bytes = pages.dictionary_bytes.saturating_add(page.unpacked);
            }
        }
        Ok(pages)
    }

    /// Returns the bytes that the values take at least while they are read.
    fn memory(&self, column: &ColumnChunkMetaData) -> u64 {
        let name = column.column_path().parts().iter().map(|part| part.len() as u64).sum::<u64>();
        let fixed = match column.column_type() {
            Type::FIXED_LEN_BYTE_ARRAY => u64::try_from(column.column_descr().type_length()).unwrap_or(0),
            _ => 0,
        };
        let size = fixed + if is_repeated(column) { REPEATED_VALUE + name } else { VALUE };
        let dictionary = self.dictionary.saturating_mul(DICTIONARY_VALUE);
        self.values.saturating_mul(size).saturating_add(dictionary)
    }
}

/// Numbers of a page's header.
#[derive(Debug, Default)]
struct Page {
    unpacked: u64,
    packed: u64,
    values: u64,
    /// Values of a dictionary.
    dictionary: u64,
    /// Number of the page's type: 0 for data, 1 for an index, 2 for a dictionary, 3 for data in version 2.
    kind: u64,
    /// Header of the type.
    header: Option<&'static Layout>,
}

impl Page {
    /// Checks that the header is the one of the page's type.
    fn check(&self) -> Result<(), Error> {
        let expected = match self.kind {
            0 => &DATA_PAGE_HEADER,
            DICTIONARY => &DICTIONARY_PAGE_HEADER,
            3 => &DATA_PAGE_HEADER_V2,
            // The library takes what is in an index for headers of pages.
            1 => return Err(Error::Damaged("a page is an index, which is not read".to_owned())),
            kind => return Err(Error::Damaged(format!("a page has the unknown type {kind}"))),
        };
        if self.header.is_some_and(|found| found.is(expected)) {
            Ok(())
        } else {
            Err(Error::Damaged("a page lacks the header of its type".to_owned()))
        }
    }
}

impl Visitor for Page {
    fn number(&mut self, layout: &'static Layout, field: i16, value: i64) -> Result<(), Error> {
        let number = || {
            let number = i32::try_from(value).ok().and_then(|value| u64::try_from(value).ok());
            number.ok_or_else(|| Error::Damaged(format!("a number of a page's header is {value}")))
        };
        match field {
            1 if layout.is(&PAGE_HEADER) => self.kind = number()?,
            2 if layout.is(&PAGE_HEADER) => self.unpacked = number()?,
            3 if layout.is(&PAGE_HEADER) => self.packed = number()?,
            1 if layout.is(&DATA_PAGE_HEADER) || layout.is(&DATA_PAGE_HEADER_V2) => self.values = number()?,
            1 if layout.is(&DICTIONARY_PAGE_HEADER) => self.dictionary = number()?,
            2 if layout.is(&DATA_PAGE_HEADER) => check_encoding(number()?)?,
            4 if layout.is(&DATA_PAGE_HEADER_V2) => check_encoding(number()?)?,
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, layout: &'static Layout) -> Result<(), Error> {
        let headers = [&DATA_PAGE_HEADER, &DICTIONARY_PAGE_HEADER, &DATA_PAGE_HEADER_V2];
        if headers.into_iter().any(|header| layout.is(header)) {
            self.header = Some(layout);
        }
        Ok(())
    }
}

/// Refuses encodings of texts whose pages say how many values there are, for which the library takes memory at once, or repeat parts of
/// texts.
fn check_encoding(encoding: u64) -> Result<(), Error> {
    let name = match encoding {
        6 => "DELTA_LENGTH_BYTE_ARRAY",
        7 => "DELTA_BYTE_ARRAY",
        _ => return Ok(()),
    };
    Err(Error::Refused(format!(
        "its texts are encoded as {name}, whose size can't be checked before they are read; write the file with plain or dictionary \
         encoding"
    )))
}
