//! Validation of requests before they are queued.

use pl_types::{GenerateError, Request};

use crate::block_pool::BLOCK;
use crate::executor::Executor;
use crate::logits::LogitProcessing;
use crate::policies::{Policies, PolicySnapshot};

/// Checks a request against its policy, model and cache. Returns the policy's current weights.
pub(crate) fn validate<E: Executor>(
    policies: &Policies<E>,
    request: &Request,
) -> Result<PolicySnapshot<E>, GenerateError> {
    let policy = request.policy;
    let fail = |reason: String| Err(GenerateError::Request { policy, parameter: None, reason });
    let refuse = |parameter: &'static str, reason: String| {
        Err(GenerateError::Request { policy, parameter: Some(parameter), reason })
    };
    let Some(snapshot) = policies.snapshot(policy) else {
        return fail("there is no such policy".into());
    };
    let config = &snapshot.config;
    let length = request.prompt.len();
    if length == 0 {
        return refuse("prompt", "the prompt is empty".into());
    }
    if length >= config.max_positions {
        return fail(format!(
            "the prompt has {length} tokens, but the model takes at most {} including the completion; shorten the prompt",
            config.max_positions
        ));
    }
    let outside = |id: &&u32| i64::from(**id) >= config.vocab;
    let message = |id: &u32| format!("token {id} is outside the model's vocabulary of {}", config.vocab);
    if let Some(id) = request.prompt.iter().find(outside) {
        return refuse("prompt", message(id));
    }
    if let Some(id) = request.stop_ids.iter().find(outside) {
        return refuse("stop_token_ids", message(id));
    }
    if let Some((parameter, problem)) = request.sampling.invalid_parameter(config.vocab as usize) {
        return refuse(parameter, problem);
    }
    if request.sampling.grammar.is_some() && !request.sampling.logit_bias.is_empty() {
        // Together they could exclude every token.
        return refuse("logit_bias", "it has both a grammar and a `logit_bias`; remove one of them".into());
    }
    if request.max_tokens == 0 {
        return refuse("max_tokens", "`max_tokens` is 0; it must be at least 1".into());
    }
    if request.seeds.is_empty() {
        return fail("the request has no seeds; give one seed per completion".into());
    }
    let longest = config.max_positions.min(length.saturating_add(request.max_tokens as usize));
    let base = &policies.bases[snapshot.base];
    let mebibytes = |blocks: usize| (blocks * base.block_bytes).div_ceil(1 << 20);
    if longest.div_ceil(BLOCK) > base.blocks.capacity() {
        let reason = format!(
            "{longest} tokens of prompt and completion need {} MiB of KV cache, but there are {}; raise `kv_cache` or \
             lower `max_tokens`",
            mebibytes(longest.div_ceil(BLOCK)),
            mebibytes(base.blocks.capacity()),
        );
        return refuse("max_tokens", reason);
    }
    Ok(snapshot)
}
