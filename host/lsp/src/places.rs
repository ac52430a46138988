//! Places of a check, which may be in several files, as an editor knows them.

use std::path::Path;

use lsp_types::{Location, Range, Uri};
use pl_dsl::analysis::{Block, outline};
use pl_dsl::{SourceFile, Sources, Span};

use crate::position::Lines;
use crate::text;

/// The files of a check.
pub struct Places<'a> {
    sources: &'a Sources,
    /// The address of the file that was checked.
    uri: &'a Uri,
    /// Of each file, in their order.
    lines: Vec<Lines>,
    /// Where the file that was checked names others.
    named: Vec<Span>,
}

impl<'a> Places<'a> {
    /// One walk over every file.
    pub fn of(sources: &'a Sources, uri: &'a Uri) -> Places<'a> {
        let lines = sources.files().iter().map(|file| Lines::of(sources.text_of(file))).collect();
        let first = sources.files().first().filter(|_| sources.files().len() > 1);
        let named = first.map(|file| named(sources.text_of(file))).unwrap_or_default();
        Places { sources, uri, lines, named }
    }

    /// The number of the file that a span is in, and the span in it.
    fn find(&self, span: Span) -> Option<(usize, Span)> {
        let (file, span) = self.sources.find(span)?;
        let number = self.sources.files().iter().position(|other| other.range.start == file.range.start)?;
        Some((number, span))
    }

    /// Whether a span is in another file than the one that was checked.
    pub fn is_elsewhere(&self, span: Span) -> bool {
        self.find(span).is_some_and(|(number, _)| number > 0)
    }

    /// Where an editor finds a span; none in a file whose address is not known.
    pub fn location(&self, span: Span) -> Option<Location> {
        let (number, span) = self.find(span)?;
        let file = self.sources.files().get(number)?;
        let range = self.lines.get(number)?.range(self.sources.text_of(file), span);
        let uri = if number == 0 { self.uri.clone() } else { address(&file.name)? };
        Some(Location { uri, range })
    }

    /// The text of a span.
    pub fn text(&self, span: Span) -> &'a str {
        let found = self.sources.find(span);
        found.map(|(file, span)| text::of(self.sources.text_of(file), span)).unwrap_or_default()
    }

    /// Where the file that was checked names the file that a span is in, or else one that leads to it.
    pub fn naming(&self, span: Span) -> Option<Range> {
        let (number, _) = self.find(span)?;
        let (checked, lines) = (self.sources.files().first()?, self.lines.first()?);
        let own = self.sources.text_of(checked);
        let is_name = |file: &SourceFile, written: &str| {
            Path::new(&file.name).file_name() == Path::new(written).file_name()
        };
        // A file stands behind those that lead to it.
        let mut above = self.sources.files().get(1..=number)?.iter().rev();
        let found =
            above.find_map(|file| self.named.iter().find(|span| is_name(file, text::of(own, **span))));
        found.map(|span| lines.range(own, *span))
    }
}

/// The paths behind `include` and `use`, without their quotes.
fn named(own: &str) -> Vec<Span> {
    let path = |block: Block| {
        let start = block.keyword.end + own.get(block.keyword.end..block.span.end)?.find('"')? + 1;
        let length = own.get(start..block.span.end)?.find('"')?;
        let is_of_file = matches!(text::of(own, block.keyword), "include" | "use");
        is_of_file.then_some(Span { start, end: start + length })
    };
    outline(own).into_iter().filter_map(path).collect()
}

/// The address of a file.
fn address(path: &str) -> Option<Uri> {
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
