//! Sets of tokens that may come next.

use llguidance::toktrie::SimpleVob;

/// The tokens that a grammar allows after a text.
#[derive(Clone)]
pub struct TokenMask {
    allowed: SimpleVob,
}

impl TokenMask {
    pub(crate) fn new(allowed: SimpleVob) -> Self {
        Self { allowed }
    }

    /// Returns true if the token may come next.
    pub fn allows(&self, token: u32) -> bool {
        (token as usize) < self.allowed.len() && self.allowed.is_allowed(token)
    }

    /// Sets the logits of all other tokens to minus infinity.
    pub fn apply(&self, logits: &mut [f32]) {
        let mut words = self.allowed.as_slice().iter();
        for chunk in logits.chunks_mut(32) {
            match words.next().copied().unwrap_or(0) {
                0 => chunk.fill(f32::NEG_INFINITY),
                u32::MAX => {}
                word => {
                    for (bit, logit) in chunk.iter_mut().enumerate() {
                        if word >> bit & 1 == 0 {
                            *logit = f32::NEG_INFINITY;
                        }
                    }
                }
            }
        }
    }
}

impl std::fmt::Debug for TokenMask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenMask").field("allowed", &self.allowed.num_set()).finish()
    }
}
