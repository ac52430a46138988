//! Keys and values: of sequences under way, and of prompts that may come again.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use pl_model::Config;
use tch::{Device, Kind, Tensor};

/// Positions that a buffer grows by, at least.
const GROWTH: i64 = 128;

/// Keys and values of one sequence, all layers.
pub(crate) struct Keep {
    /// Per layer `[2, kv_heads, capacity, head_dim]`: keys, then values.
    layers: Vec<Tensor>,
    len: i64,
    capacity: i64,
}

impl Keep {
    /// Takes in a prompt's keys and values, `[2, kv_heads, length, head_dim]` per layer.
    pub(crate) fn from_prompt(layers: Vec<Tensor>, len: i64) -> Self {
        Self { layers, len, capacity: len }
    }

    /// A copy with room to grow.
    pub(crate) fn fork(&self) -> Self {
        let mut fork = Self { layers: Vec::new(), len: self.len, capacity: self.len + GROWTH };
        fork.layers = self.grown(fork.capacity);
        fork
    }

    fn grown(&self, capacity: i64) -> Vec<Tensor> {
        self.layers
            .iter()
            .map(|old| {
                let mut size = old.size();
                size[2] = capacity;
                let new = Tensor::empty(&size, (Kind::Float, old.device()));
                new.narrow(2, 0, self.len).copy_(&old.narrow(2, 0, self.len));
                new
            })
            .collect()
    }

    pub(crate) fn len(&self) -> i64 {
        self.len
    }

    /// Makes room for one more position; [`write`](Self::write) fills it layer by layer.
    pub(crate) fn extend(&mut self) {
        if self.len == self.capacity {
            let capacity = self.capacity + GROWTH.max(self.capacity / 2);
            self.layers = self.grown(capacity);
            self.capacity = capacity;
        }
        self.len += 1;
    }

    /// Writes the newest position of a layer (`[2, kv_heads, head_dim]`) and returns its keys and values
    /// `[kv_heads, length, head_dim]`.
    pub(crate) fn write(&self, layer: usize, newest: &Tensor) -> (Tensor, Tensor) {
        let held = self.layers[layer].narrow(2, 0, self.len);
        held.select(2, self.len - 1).copy_(newest);
        (held.select(0, 0), held.select(0, 1))
    }
}

/// A prompt after its pass through the model.
pub(crate) struct Prompt {
    pub(crate) keep: Keep,
    /// Logits of the token that follows, `[1, V]`.
    pub(crate) logits: Tensor,
}

/// State of a policy's weights, and prompt.
pub(crate) type PromptKey = (u64, Arc<[u32]>);

/// Prompts lately seen, least recently used first, up to a number of tokens.
pub(crate) struct PromptCache {
    limit: usize,
    held: usize,
    entries: HashMap<PromptKey, Rc<Prompt>>,
    order: VecDeque<PromptKey>,
}

impl PromptCache {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, held: 0, entries: HashMap::new(), order: VecDeque::new() }
    }

    pub(crate) fn get(&mut self, key: &PromptKey) -> Option<Rc<Prompt>> {
        let found = Rc::clone(self.entries.get(key)?);
        if let Some(at) = self.order.iter().position(|other| other == key) {
            self.order.remove(at);
            self.order.push_back(key.clone());
        }
        Some(found)
    }

    pub(crate) fn insert(&mut self, key: PromptKey, prompt: Rc<Prompt>) {
        let len = key.1.len();
        if len > self.limit || self.entries.contains_key(&key) {
            return;
        }
        while self.held + len > self.limit {
            let Some(oldest) = self.order.pop_front() else { break };
            self.held -= oldest.1.len();
            self.entries.remove(&oldest);
        }
        self.held += len;
        self.order.push_back(key.clone());
        self.entries.insert(key, prompt);
    }

    /// Forgets prompts of weights that no request can name any more.
    pub(crate) fn retain(&mut self, alive: impl Fn(u64) -> bool) {
        self.order.retain(|key| alive(key.0));
        self.entries.retain(|key, _| alive(key.0));
        self.held = self.order.iter().map(|key| key.1.len()).sum();
    }
}

/// An all-zero output of attention for padding rows.
pub(crate) fn no_attention(config: &Config, rows: i64, device: Device) -> Tensor {
    Tensor::zeros([rows, config.q_width()], (Kind::Float, device))
}
