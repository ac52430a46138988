//! Compiled grammars, kept for the requests to come. They are compiled beside the engine's thread: one that takes long delays
//! its own requests alone.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use pl_grammar::{CompiledGrammar, GrammarError, Vocabulary};
use pl_model::Tokenizer;
use pl_types::{GenerateError, Grammar, Request};

use crate::config::{BaseModel, PolicyWeights};

/// Number of grammars kept per base model. A workflow has one per agent; requests from outside may each bring another.
const KEPT: usize = 64;

/// The grammars of each base model.
pub(crate) struct Grammars {
    bases: Vec<Arc<BaseGrammars>>,
    /// Base model of each policy.
    base_of: Mutex<HashMap<usize, usize>>,
}

struct BaseGrammars {
    tokenizer: Arc<Tokenizer>,
    /// Number of tokens that the model has logits of.
    vocabulary_size: usize,
    vocabulary: OnceLock<Result<Arc<Vocabulary>, GrammarError>>,
    compiled: Mutex<HashMap<Arc<Grammar>, Arc<OnceLock<Compiled>>>>,
    /// Held while a grammar is compiled: all of them take one core.
    turn: Mutex<()>,
}

type Compiled = Result<Arc<CompiledGrammar>, GrammarError>;

impl Grammars {
    pub(crate) fn new(bases: &[BaseModel], policies: &[PolicyWeights]) -> Self {
        let of_base = |base: &BaseModel| {
            Arc::new(BaseGrammars {
                tokenizer: Arc::clone(&base.tokenizer),
                vocabulary_size: usize::try_from(base.config.vocab).unwrap_or_default(),
                vocabulary: OnceLock::new(),
                compiled: Mutex::default(),
                turn: Mutex::default(),
            })
        };
        let base_of = policies.iter().map(|policy| policy.base).enumerate().collect();
        Self { bases: bases.iter().map(of_base).collect(), base_of: Mutex::new(base_of) }
    }

    /// Adds a policy.
    pub(crate) fn add(&self, policy: usize, base: usize) {
        self.base_of.lock().insert(policy, base);
    }

    /// Compiles the grammar of a request, unless it was compiled before. Returns `None` if the request has none, or names no
    /// policy.
    ///
    /// # Errors
    /// [`GenerateError::Request`] if the grammar is not valid.
    pub(crate) async fn of_request(
        &self,
        request: &Request,
    ) -> Result<Option<Arc<CompiledGrammar>>, GenerateError> {
        let base = self.base_of.lock().get(&request.policy).copied();
        let base = base.and_then(|base| self.bases.get(base));
        let (Some(grammar), Some(base)) = (&request.sampling.grammar, base) else { return Ok(None) };
        let entry = base.entry(grammar);
        let compiled = match entry.get() {
            Some(compiled) => compiled.clone(),
            None => {
                let (base, grammar) = (Arc::clone(base), Arc::clone(grammar));
                let compile = move || entry.get_or_init(|| base.compile(&grammar)).clone();
                tokio::task::spawn_blocking(compile)
                    .await
                    .map_err(|panic| refused(request, panic.to_string()))?
            }
        };
        compiled.map(Some).map_err(|error| refused(request, error.to_string()))
    }
}

impl BaseGrammars {
    /// Returns the place for a compiled grammar. Grammars that were refused are kept, too.
    fn entry(&self, grammar: &Arc<Grammar>) -> Arc<OnceLock<Compiled>> {
        let mut compiled = self.compiled.lock();
        if compiled.len() >= KEPT && !compiled.contains_key(grammar) {
            compiled.clear();
        }
        Arc::clone(compiled.entry(Arc::clone(grammar)).or_default())
    }

    fn compile(&self, grammar: &Grammar) -> Compiled {
        let _turn = self.turn.lock();
        let vocabulary = self.vocabulary.get_or_init(|| self.read_vocabulary());
        CompiledGrammar::new(vocabulary.as_ref().map_err(GrammarError::clone)?, grammar).map(Arc::new)
    }

    fn read_vocabulary(&self) -> Result<Arc<Vocabulary>, GrammarError> {
        let json = self.tokenizer.to_json().map_err(|error| GrammarError::Vocabulary(error.to_string()))?;
        let end = self.tokenizer.end_of_turn();
        Vocabulary::from_tokenizer_json(&json, self.vocabulary_size, end).map(Arc::new)
    }
}

/// Checks that a text of a grammar fits into the completions of a request. `max_positions` is the longest sequence of its model.
///
/// # Errors
/// [`GenerateError::Request`] if it does not.
pub(crate) fn check_room(
    request: &Request,
    grammar: &CompiledGrammar,
    max_positions: usize,
) -> Result<(), GenerateError> {
    let room = max_positions.saturating_sub(request.prompt.len()).min(request.max_tokens as usize);
    let needed = grammar.needed_tokens();
    if needed > room {
        let reason = format!(
            "the shortest text of its grammar that was found has {needed} tokens, but the completion has room for {room}; \
             raise `max_tokens` or shorten the prompt"
        );
        return Err(refused(request, reason));
    }
    Ok(())
}

fn refused(request: &Request, reason: String) -> GenerateError {
    GenerateError::Request { policy: request.policy, parameter: Some("structured_outputs"), reason }
}
