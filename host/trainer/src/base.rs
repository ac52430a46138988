//! A learner's base weights: what a pass computes with, and, where they are trained, what the optimiser changes.
//!
//! Steps of training are smaller than the distance of two 16-bit numbers. Weights that work in such a format are
//! therefore trained as f32 masters, whose rounded values the working weights get after each step (Micikevicius
//! et al. 2018, arXiv:1710.03740). In f32 the two are one.

use pl_model::{Dtype, Error, Weights};

/// Working weights and their masters.
#[derive(Debug)]
pub struct Base {
    working: Weights,
    trained: Option<(Weights, Dtype)>,
}

impl Base {
    /// Weights that nobody changes.
    pub fn frozen(weights: Weights) -> Self {
        Base { working: weights, trained: None }
    }

    /// Weights to be trained, in the number format that they work in. They are changed in place.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn trained(weights: Weights, dtype: Dtype) -> Result<Self, Error> {
        let masters = match dtype {
            Dtype::F32 => weights.shallow(),
            Dtype::F16 | Dtype::Bf16 => weights.round_to(Dtype::F32)?,
        };
        Ok(Base { working: weights, trained: Some((masters, dtype)) })
    }

    /// What a pass computes with.
    pub fn working(&self) -> &Weights {
        &self.working
    }

    /// What the optimiser changes and checkpoints keep; none where the weights are frozen.
    pub fn masters(&self) -> Option<&Weights> {
        self.trained.as_ref().map(|(masters, _)| masters)
    }

    /// Gives the working weights the masters' values, rounded.
    ///
    /// # Errors
    /// When memory runs out.
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
    fn in_f32_the_two_are_one() {
        let base = Base::trained(weights(&config(true), 1), Dtype::F32).unwrap();
        let masters = base.masters().unwrap();
        assert_eq!(masters.embed.data_ptr(), base.working().embed.data_ptr());
        assert!(Base::frozen(weights(&config(true), 1)).masters().is_none());
    }

    #[test]
    fn steps_too_small_for_the_format_add_up_in_the_masters() {
        let weights = weights(&config(false), 2).round_to(Dtype::Bf16).unwrap();
        let before = weights.copy();
        let base = Base::trained(weights, Dtype::Bf16).unwrap();
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
