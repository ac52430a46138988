//! Checks the grammars that agents constrain their completions to.

use std::sync::Arc;

use pl_types::Grammar;

use super::block::BlockSettings;
use super::resolver::Resolver;
use crate::diagnostic::DiagnosticCode;

impl Resolver<'_, '_, '_> {
    /// Returns the grammar of an agent, from `grammar` or `json_schema`; `None` inside if it has neither. Returns `None`
    /// if an error was reported.
    pub(super) fn grammar(&mut self, agent: &str, own: &BlockSettings) -> Option<Option<Arc<Grammar>>> {
        let written = ["grammar", "json_schema"].map(|key| own.location(key));
        let (key, location) = match written {
            [Some(first), Some(second)] => {
                let message = format!("agent `{agent}` has both `grammar` and `json_schema`");
                self.reports
                    .error(DiagnosticCode::BadSetting, second, message, "")
                    .also(first, "the other is here")
                    .help("remove one of them");
                return None;
            }
            [Some(location), None] => ("grammar", location),
            [None, Some(location)] => ("json_schema", location),
            [None, None] => return Some(None),
        };
        let text = own.text(key)?.to_owned();
        let grammar = if key == "grammar" { Grammar::Lark(text) } else { Grammar::JsonSchema(text) };
        match pl_grammar::check(&grammar) {
            Ok(()) => Some(Some(Arc::new(grammar))),
            Err(error) => {
                let message = format!("`{key}` of agent `{agent}` can't be used: {error}");
                self.reports
                    .error(DiagnosticCode::BadGrammar, location, message, "")
                    .help(format!("`pl-host explain {key}` shows the form, with an example"));
                None
            }
        }
    }
}
