//! Small helpers for texts.

use pl_dsl::Span;

/// Text of a span; empty if the span is not within the text.
pub fn span_text(text: &str, span: Span) -> &str {
    text.get(span.start..span.end).unwrap_or_default()
}

/// First line of a text.
pub fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
