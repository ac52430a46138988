//! A learner's base weights: working weights for the passes and, if they are trained, master weights for the
//! optimiser.
//!
//! Updates are often smaller than the distance between two 16-bit numbers. 16-bit weights are therefore
//! trained as f32 masters, whose rounded values are copied to the working weights after each step (mixed
//! precision, Micikevicius et al. 2018, arXiv:1710.03740). In f32 the working weights are the masters.

use pl_model::{Error, TensorSet, Weights};
use pl_types::Dtype;

/// Working weights and their masters.
#[derive(Debug)]
pub struct BaseWeights {
    working: Weights,
    trained: Option<(Weights, Dtype)>,
}

impl BaseWeights {
    /// Weights that are not trained.
    pub fn frozen(weights: Weights) -> Self {
        Self { working: weights, trained: None }
    }

    /// Weights to train, in the number format of the passes. They are changed in place.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn trained(weights: Weights, dtype: Dtype) -> Result<Self, Error> {
        let masters = match dtype {
            Dtype::F32 => weights.shallow(),
            Dtype::F16 | Dtype::Bf16 => weights.round_to(Dtype::F32)?,
        };
        Ok(Self { working: weights, trained: Some((masters, dtype)) })
    }

    /// Weights that a pass computes with.
    pub fn working(&self) -> &Weights {
        &self.working
    }

    /// Weights that the optimiser changes and checkpoints contain, or `None` if they are frozen.
    pub fn masters(&self) -> Option<&Weights> {
        self.trained.as_ref().map(|(masters, _)| masters)
    }

    /// Copies the rounded masters to the working weights.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn publish(&self) -> Result<(), Error> {
        let Some((masters, dtype @ (Dtype::F16 | Dtype::Bf16))) = &self.trained else { return Ok(()) };
        let rounded = masters.round_to(*dtype)?.parameters();
        for ((_, mut working), (_, rounded)) in self.working.parameters().into_iter().zip(rounded) {
            tch::no_grad(|| working.f_copy_(&rounded))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{config, same_bits, weights};

    #[test]
    fn in_f32_masters_are_the_working_weights() {
        let base = BaseWeights::trained(weights(&config(true), 1), Dtype::F32).unwrap();
        let masters = base.masters().unwrap();
        assert_eq!(masters.norm.data_ptr(), base.working().norm.data_ptr());
        assert!(BaseWeights::frozen(weights(&config(true), 1)).masters().is_none());
    }

    #[test]
    fn steps_too_small_for_the_format_add_up_in_the_masters() {
        let weights = weights(&config(false), 2).round_to(Dtype::Bf16).unwrap();
        let before = weights.copy();
        let base = BaseWeights::trained(weights, Dtype::Bf16).unwrap();
        let mut moved = 0;
        for _ in 0..16 {
            for (_, mut tensor) in base.masters().unwrap().parameters() {
                tensor *= 1.0 + 0.0007;
            }
            base.publish().unwrap();
            moved += usize::from(!same_bits(&base.working().parameters(), &before.parameters()));
            let expected = base.masters().unwrap().round_to(Dtype::Bf16).unwrap();
            assert!(same_bits(&base.working().parameters(), &expected.parameters()));
        }
        assert!(moved > 8, "{moved}");
    }
}
