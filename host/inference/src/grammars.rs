//! Compiled grammars, kept for the requests to come.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use pl_grammar::{CompiledGrammar, Vocabulary};
use pl_types::{GenerateError, Grammar, Request};

use crate::executor::Executor;
use crate::policies::PolicySnapshot;

/// Number of grammars kept per base model. A workflow has one per agent; requests from outside may each bring another.
const KEPT: usize = 64;

/// The grammars of each base model.
#[derive(Default)]
pub(crate) struct Grammars {
    by_base: HashMap<usize, BaseGrammars>,
}

struct BaseGrammars {
    vocabulary: Arc<Vocabulary>,
    compiled: HashMap<Arc<Grammar>, Arc<CompiledGrammar>>,
}

impl Grammars {
    /// Compiles the grammar of a request, unless it was compiled before. Returns `None` if the request has none.
    ///
    /// # Errors
    /// [`GenerateError::Request`] if the grammar is not valid, or its texts need more tokens than the request has.
    pub(crate) fn of_request<E: Executor>(
        &mut self,
        request: &Request,
        snapshot: &PolicySnapshot<E>,
    ) -> Result<Option<Arc<CompiledGrammar>>, GenerateError> {
        let Some(grammar) = &request.sampling.grammar else { return Ok(None) };
        let (policy, parameter) = (request.policy, Some("structured_outputs"));
        let fail = |reason: String| GenerateError::Request { policy, parameter, reason };
        let base = match self.by_base.entry(snapshot.base) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let tokenizer = &snapshot.tokenizer;
                let json = tokenizer.to_json().map_err(|error| fail(error.to_string()))?;
                let size = usize::try_from(snapshot.config.vocab).unwrap_or_default();
                let vocabulary = Vocabulary::from_tokenizer_json(&json, size, tokenizer.end_of_turn())
                    .map_err(|error| fail(error.to_string()))?;
                entry.insert(BaseGrammars { vocabulary: Arc::new(vocabulary), compiled: HashMap::new() })
            }
        };
        let compiled = match base.compiled.get(grammar) {
            Some(compiled) => Arc::clone(compiled),
            None => {
                let compiled = CompiledGrammar::new(&base.vocabulary, grammar);
                let compiled = Arc::new(compiled.map_err(|error| fail(error.to_string()))?);
                if base.compiled.len() >= KEPT {
                    base.compiled.clear();
                }
                base.compiled.insert(Arc::clone(grammar), Arc::clone(&compiled));
                compiled
            }
        };
        let room = snapshot.config.max_positions.saturating_sub(request.prompt.len());
        let room = room.min(request.max_tokens as usize);
        if compiled.needed_tokens() > room {
            return Err(fail(format!(
                "the shortest text of its grammar that was found has {} tokens, but the completion has room for {room}; \
                 raise `max_tokens` or shorten the prompt",
                compiled.needed_tokens()
            )));
        }
        Ok(Some(compiled))
    }
}
