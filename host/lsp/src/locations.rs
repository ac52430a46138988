//! Locations in the files of a check, as the protocol expresses them.

use std::path::Path;

use lsp_types::{Location, Range, Uri};
use pl_dsl::analysis::{OutlineBlock, outline};
use pl_dsl::{SourceFile, Sources, Span};

use crate::line_index::LineIndex;
use crate::text::span_text;

/// Files of a check.
pub struct Locations<'a> {
    sources: &'a Sources,
    /// URI of the file that was checked.
    uri: &'a Uri,
    /// Line index of each file, in order.
    line_indexes: Vec<LineIndex>,
    /// Spans of the paths that the checked file includes.
    included_paths: Vec<Span>,
}

impl<'a> Locations<'a> {
    pub fn new(sources: &'a Sources, uri: &'a Uri) -> Locations<'a> {
        let files = sources.files();
        let line_indexes = files.iter().map(|file| LineIndex::new(sources.text_of(file))).collect();
        let first = files.first().filter(|_| files.len() > 1);
        let included_paths = first.map(|file| included_paths(sources.text_of(file))).unwrap_or_default();
        Locations { sources, uri, line_indexes, included_paths }
    }

    /// Index of the file that a span is in, and the span within that file.
    fn find(&self, span: Span) -> Option<(usize, Span)> {
        let (file, span) = self.sources.find(span)?;
        let index = self.sources.files().iter().position(|other| other.range.start == file.range.start)?;
        Some((index, span))
    }

    /// True if a span is not in the file that was checked.
    pub fn is_in_other_file(&self, span: Span) -> bool {
        self.find(span).is_some_and(|(index, _)| index > 0)
    }

    /// Location of a span. Returns `None` if the file has no absolute path.
    pub fn location(&self, span: Span) -> Option<Location> {
        let (index, span) = self.find(span)?;
        let file = self.sources.files().get(index)?;
        let range = self.line_indexes.get(index)?.range(self.sources.text_of(file), span);
        let uri = if index == 0 { self.uri.clone() } else { file_uri(&file.name)? };
        Some(Location { uri, range })
    }

    /// Text of a span.
    pub fn text(&self, span: Span) -> &'a str {
        let found = self.sources.find(span);
        found.map(|(file, span)| span_text(self.sources.text_of(file), span)).unwrap_or_default()
    }

    /// Range of the path by which the checked file includes the file of a span, directly or through other files.
    pub fn include_range(&self, span: Span) -> Option<Range> {
        let (index, _) = self.find(span)?;
        let (checked, line_index) = (self.sources.files().first()?, self.line_indexes.first()?);
        let own_text = self.sources.text_of(checked);
        let has_name = |file: &SourceFile, written: &str| {
            Path::new(&file.name).file_name() == Path::new(written).file_name()
        };
        // A file follows the files that include it.
        let mut including = self.sources.files().get(1..=index)?.iter().rev();
        let path = including.find_map(|file| {
            self.included_paths.iter().find(|span| has_name(file, span_text(own_text, **span)))
        });
        path.map(|span| line_index.range(own_text, *span))
    }
}

/// Spans of the paths after `include` and `use`, without their quotes.
fn included_paths(text: &str) -> Vec<Span> {
    let path = |block: OutlineBlock| {
        let start = block.keyword.end + text.get(block.keyword.end..block.span.end)?.find('"')? + 1;
        let length = text.get(start..block.span.end)?.find('"')?;
        let names_file = matches!(span_text(text, block.keyword), "include" | "use");
        names_file.then_some(Span { start, end: start + length })
    };
    outline(text).into_iter().filter_map(path).collect()
}

/// URI of a file. Returns `None` if the path is not absolute.
fn file_uri(path: &str) -> Option<Uri> {
    if !path.starts_with('/') {
        return None;
    }
    let mut out = "file://".to_owned();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out.parse().ok()
}
