//! Parts of a block's head: `template expert(topic: string) = agent std.chat`.

use super::lexer::{Token, tokenize};
use crate::source::Span;

/// Parts of a head, which may be incomplete.
#[derive(Debug, Default)]
pub(super) struct Head<'t> {
    /// First word.
    pub keyword: Option<Token<'t>>,
    /// Declared name.
    pub name: Option<Span>,
    /// Kind of the blocks that a template creates.
    pub template_kind: Option<Token<'t>>,
    /// Expression after the `=`, and after the kind of a template.
    pub value: Option<Span>,
    /// Names of a template's parameters.
    pub parameters: Vec<Span>,
}

pub(super) fn head(text: &str, span: Span) -> Head<'_> {
    let tokens = tokenize(text, span);
    let mut out = Head::default();
    let Some(first) = tokens.first().filter(|token| token.is_word()) else { return out };
    out.keyword = Some(*first);
    let named = match first.text {
        // `use "FILE" as NAME`
        "use" => tokens.iter().position(|token| token.is("as")).map_or(tokens.len(), |index| index + 1),
        _ => 1,
    };
    out.name = tokens.get(named).filter(|token| token.is_word()).map(|token| token.span);
    let equals = depths(&tokens).position(|(depth, token)| depth == 0 && token.is("="));
    if first.text == "template" {
        let upto = equals.unwrap_or(tokens.len());
        let pairs = tokens.iter().take(upto).zip(tokens.iter().take(upto).skip(1));
        out.parameters = pairs
            .filter(|(name, colon)| name.is_word() && colon.is(":"))
            .map(|(name, _)| name.span)
            .collect();
    }
    let mut behind = equals.map_or(tokens.len(), |index| index + 1);
    if first.text == "template"
        && let Some(kind) = tokens.get(behind).filter(|token| token.is_word())
    {
        out.template_kind = Some(*kind);
        behind += 1;
    }
    if let (Some(from), Some(to)) = (tokens.get(behind), tokens.last()) {
        out.value = Some(Span::new(from.span.start, to.span.end));
    }
    out
}

/// Each token with its nesting depth.
pub(super) fn depths<'a, 't>(tokens: &'a [Token<'t>]) -> impl Iterator<Item = (usize, &'a Token<'t>)> {
    tokens.iter().scan(0_usize, |depth, token| {
        if [")", "]", "}"].iter().any(|sign| token.is(sign)) {
            *depth = depth.saturating_sub(1);
        }
        let here = *depth;
        if ["(", "[", "{", "${"].iter().any(|sign| token.is(sign)) {
            *depth += 1;
        }
        Some((here, token))
    })
}
