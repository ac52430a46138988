//! Document symbols: the blocks of a document.

use lsp_types::{DocumentSymbol, SymbolKind};
use pl_dsl::analysis::{OutlineBlock, outline};

use crate::documents::Document;
use crate::text::{first_line, span_text};

/// Blocks of a document in order.
pub fn symbols(document: &Document) -> Vec<DocumentSymbol> {
    outline(&document.text).iter().map(|block| symbol(document, block)).collect()
}

fn symbol(document: &Document, block: &OutlineBlock) -> DocumentSymbol {
    let text = |span| span_text(&document.text, span);
    let keyword = text(block.keyword);
    let selection = block.name.unwrap_or(block.keyword);
    let detail = match (block.name, block.value) {
        (Some(_), Some(value)) => Some(format!("{keyword} = {}", first_line(text(value)))),
        (Some(_), None) => Some(keyword.to_owned()),
        (None, value) => value.map(|value| first_line(text(value)).to_owned()),
    };
    let inner: Vec<DocumentSymbol> = block.blocks.iter().map(|inner| symbol(document, inner)).collect();
    #[allow(deprecated, reason = "the struct still has the deprecated field")]
    DocumentSymbol {
        name: text(selection).to_owned(),
        detail,
        kind: symbol_kind(keyword),
        tags: None,
        deprecated: None,
        range: document.line_index.range(&document.text, block.span),
        selection_range: document.line_index.range(&document.text, selection),
        children: (!inner.is_empty()).then_some(inner),
    }
}

/// The closest kind that the protocol has.
fn symbol_kind(keyword: &str) -> SymbolKind {
    match keyword {
        "workflow" | "include" | "use" => SymbolKind::MODULE,
        "param" | "layout" => SymbolKind::CONSTANT,
        "plugin" => SymbolKind::PACKAGE,
        "model" => SymbolKind::OBJECT,
        "policy" => SymbolKind::VARIABLE,
        "template" => SymbolKind::FUNCTION,
        "environment" => SymbolKind::NAMESPACE,
        "agent" => SymbolKind::CLASS,
        "turns" => SymbolKind::EVENT,
        "reward" | "evaluate" => SymbolKind::METHOD,
        _ => SymbolKind::STRUCT,
    }
}
