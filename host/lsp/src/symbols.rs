//! The outline of a document: its blocks.

use lsp_types::{DocumentSymbol, SymbolKind};
use pl_dsl::analysis::{Block, outline};

use crate::documents::Document;
use crate::text;

/// The blocks of a document in order.
pub fn symbols(document: &Document) -> Vec<DocumentSymbol> {
    outline(&document.text).iter().map(|block| symbol(document, block)).collect()
}

fn symbol(document: &Document, block: &Block) -> DocumentSymbol {
    let of = |span| text::of(&document.text, span).to_owned();
    let keyword = of(block.keyword);
    let selection = block.name.unwrap_or(block.keyword);
    let detail = match (block.name, block.value) {
        (Some(_), Some(value)) => Some(format!("{keyword} = {}", text::line(&of(value)))),
        (Some(_), None) => Some(keyword.clone()),
        (None, value) => value.map(|value| text::line(&of(value)).to_owned()),
    };
    let inner: Vec<DocumentSymbol> = block.blocks.iter().map(|inner| symbol(document, inner)).collect();
    #[allow(deprecated, reason = "the field before tags must still be there")]
    DocumentSymbol {
        name: of(selection),
        detail,
        kind: kind(&keyword),
        tags: None,
        deprecated: None,
        range: document.lines.range(&document.text, block.span),
        selection_range: document.lines.range(&document.text, selection),
        children: (!inner.is_empty()).then_some(inner),
    }
}

/// The nearest of what the protocol knows.
fn kind(keyword: &str) -> SymbolKind {
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
