//! Checks `corpus` blocks.

use super::block::{BlockSettings, ItemOfBlock, check_settings};
use super::resolver::{NamedBlocks, Resolver};
use super::scenarios::ResolvedScenarios;
use super::servers::check_address;
use crate::diagnostic::DiagnosticCode;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::tree::Block;
use crate::workflow::{Corpus, CorpusSource, PassageFile, RetrievalServer};

/// Settings of a file, which a server has no use for.
const OF_FILES: [&str; 4] = ["id", "title", "text", "language"];

/// Settings of a server, which a file has no use for.
const OF_SERVERS: [&str; 3] = ["key_variable", "timeout", "retries"];

impl Resolver<'_, '_, '_> {
    pub(super) fn corpora(&mut self, corpora: &NamedBlocks) -> Vec<Option<Corpus>> {
        let blocks = corpora.blocks.iter().enumerate();
        blocks.map(|(at, block)| self.corpus(corpora.name(at), block)).collect()
    }

    fn corpus(&mut self, name: &str, block: &Block) -> Option<Corpus> {
        let own = check_settings(block, &ItemOfBlock::None, &mut self.scope, self.reports);
        let source = self.in_head(block)?;
        let is_server = source.contains("://");
        self.settings_without_effect(name, is_server, &own);
        let source = if is_server {
            if let (Err(problem), Some(value)) = (check_address(&source), &block.value) {
                let message = format!("`{source}` is not the address of a retrieval server: {problem}");
                self.reports
                    .error(DiagnosticCode::ServerAddress, value.location, message, "")
                    .help("write it like `http://10.0.0.1:8000`");
                return None;
            }
            CorpusSource::Server(RetrievalServer {
                address: source,
                key_variable: self.variable(&own, "key_variable")?,
                timeout: own.duration("timeout")?,
                retries: own.integer("retries")?,
            })
        } else {
            CorpusSource::File(PassageFile {
                path: source,
                id: own.text("id")?.to_owned(),
                title: own.text("title")?.to_owned(),
                text: own.text("text").map(str::to_owned),
                language: own.text("language")?.to_owned(),
            })
        };
        Some(Corpus { name: name.to_owned(), source })
    }

    /// Reports settings of the other kind of source.
    fn settings_without_effect(&mut self, name: &str, is_server: bool, own: &BlockSettings) {
        let (others, kind): (&[&str], _) =
            if is_server { (OF_FILES.as_slice(), "a server") } else { (OF_SERVERS.as_slice(), "a file") };
        for key in others {
            let Some(location) = own.location(key) else { continue };
            let message = format!("`{key}` has no effect: corpus `{name}` is {kind}");
            self.reports.error(DiagnosticCode::NoEffect, location, message, "").help("remove it");
        }
    }

    pub(super) fn unused_corpora(&mut self, corpora: &NamedBlocks, scenarios: &ResolvedScenarios) {
        // An invalid environment may use a corpus that seems unused.
        let Some(used) = scenarios.corpora_used() else { return };
        let unused = |(at, block): &(usize, &&Block)| block.sound && !used.contains(at);
        for (_, block) in corpora.blocks.iter().enumerate().filter(unused) {
            let message = format!("{} is never used", block.title());
            self.reports.warning(DiagnosticCode::Unused, block.location(), message, "").help(format!(
                "write `{} = NAME` in the environment, or remove it",
                BlockKind::Corpus.keyword()
            ));
        }
    }
}
