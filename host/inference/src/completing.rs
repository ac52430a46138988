//! A completion on its way: its random stream, what it has so far beside its tokens, when it ends.

use pl_model::Tokenizer;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::draw::{Drawn, Pick};
use crate::sampling::uniform;
use crate::stop::StopWatch;
use crate::{Chunk, Completion, Finish, Request, Sampling};

pub(crate) struct Completing {
    index: usize,
    stream: ChaCha8Rng,
    logprobs: Vec<f32>,
    kept: Option<Vec<Vec<u32>>>,
    top: Vec<Vec<(u32, f32)>>,
    stop: StopWatch,
    /// Tokens that it may have.
    limit: usize,
    /// Tokens and bytes of text that were handed out already.
    told: (usize, usize),
}

impl Completing {
    /// The completion of one of a request's seeds.
    pub(crate) fn new(index: usize, request: &Request, max_positions: usize) -> Self {
        Self {
            index,
            stream: ChaCha8Rng::from_seed(request.seeds[index]),
            logprobs: Vec::new(),
            kept: request.sampling.truncates().then(Vec::new),
            top: Vec::new(),
            stop: StopWatch::new(&request.stop),
            limit: (max_positions - request.prompt.len()).min(request.max_tokens as usize),
            told: (0, 0),
        }
    }

    /// Index of its seed.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// What its next token is drawn by: one number of its stream, or none.
    pub(crate) fn pick(&mut self, sampling: &Sampling) -> Pick {
        if sampling.temperature > 0.0 { Pick::At(uniform(&mut self.stream)) } else { Pick::Likeliest }
    }

    /// Takes in the token that `tokens` ends with; why the completion is over, when it is.
    pub(crate) fn accept(
        &mut self,
        tokens: &[u32],
        drawn: Drawn,
        tokenizer: &Tokenizer,
        request: &Request,
    ) -> Option<Finish> {
        let token = drawn.token;
        self.logprobs.push(drawn.logprob);
        if let Some(kept) = &mut self.kept {
            kept.push(drawn.kept.unwrap_or_default());
        }
        if request.top_logprobs > 0 {
            self.top.push(drawn.top);
        }
        let ended = tokenizer.end_of_turn().contains(&token) || request.stop_ids.contains(&token);
        // The watch sees every token, whatever else ends the completion.
        let finish = if self.stop.push(tokenizer, token) || ended {
            Some(Finish::Stop)
        } else if tokens.len() >= self.limit {
            Some(Finish::Length)
        } else {
            None
        };
        self.tell(tokens, tokenizer, request, finish.is_some());
        finish
    }

    /// Hands new text to whoever listens, held back while it may still change: a character that is not whole, the
    /// beginning of a stop string.
    fn tell(&mut self, tokens: &[u32], tokenizer: &Tokenizer, request: &Request, last: bool) {
        let Some(listener) = &request.listener else { return };
        let text = self.stop.text(tokenizer, tokens);
        let end = if last { text.len() } else { self.stop.settled(&text) };
        let (told_tokens, told_text) = self.told;
        let new = text.get(told_text..end).unwrap_or_default();
        if new.is_empty() && !last {
            return;
        }
        let chunk =
            Chunk { index: self.index, tokens: tokens[told_tokens..].to_vec(), text: new.to_owned(), last };
        self.told = (tokens.len(), end.max(told_text));
        // A listener that went away misses nothing: the completion is handed out whole.
        let _ = listener.send(chunk);
    }

    /// The completion as it is handed out.
    pub(crate) fn complete(
        &mut self,
        tokens: Vec<u32>,
        finish: Finish,
        tokenizer: &Tokenizer,
        version: u64,
    ) -> Completion {
        Completion {
            text: self.stop.text(tokenizer, &tokens),
            tokens,
            logprobs: std::mem::take(&mut self.logprobs),
            kept: self.kept.take(),
            top: std::mem::take(&mut self.top),
            finish,
            version,
        }
    }
}
