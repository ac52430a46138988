//! The clipped value loss, as a pure function over per-token tensors.
//!
//! ```text
//! L = 1/2 max((v - R)², (clip(v, old v - c, old v + c) - R)²)
//! ```
//!
//! (Schulman et al., OpenAI baselines, 2017; as in verl and OpenRLHF.) A value that has moved by more than `c`
//! towards its target has no gradient.

use tch::{Kind, TchError, Tensor};

/// Value loss of each token, tensors of the shape of the inputs.
#[derive(Debug)]
pub struct TokenValueLoss {
    /// The loss; differentiable with respect to the values.
    pub loss: Tensor,
    /// Boolean: true if the loss of the clipped value was the larger one.
    pub clipped: Tensor,
}

/// Computes the value loss of each token. All tensors are floats of one shape. A `clip` of 0 disables clipping.
///
/// # Errors
/// If libtorch fails.
pub fn value_loss(
    values: &Tensor,
    old_values: &Tensor,
    returns: &Tensor,
    clip: f64,
) -> Result<TokenValueLoss, TchError> {
    let plain = values.f_sub(returns)?.f_square()?;
    if clip <= 0.0 {
        let clipped = Tensor::f_zeros(plain.size(), (Kind::Bool, plain.device()))?;
        return Ok(TokenValueLoss { loss: plain.f_mul_scalar(0.5)?, clipped });
    }
    let (low, high) = (old_values.f_sub_scalar(clip)?, old_values.f_add_scalar(clip)?);
    let bounded = values.f_clamp_tensor(Some(&low), Some(&high))?.f_sub(returns)?.f_square()?;
    let clipped = bounded.f_gt_tensor(&plain)?;
    let loss = bounded.f_where_self(&clipped, &plain)?.f_mul_scalar(0.5)?;
    Ok(TokenValueLoss { loss, clipped })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns loss, gradient and the clipped flag of one token.
    fn token_loss(value: f64, old: f64, target: f64, clip: f64) -> (f64, f64, bool) {
        let values = Tensor::from_slice(&[value]).set_requires_grad(true);
        let (old, target) = (Tensor::from_slice(&[old]), Tensor::from_slice(&[target]));
        let result = value_loss(&values, &old, &target, clip).unwrap();
        result.loss.sum(Kind::Double).backward();
        (
            result.loss.double_value(&[0]),
            values.grad().double_value(&[0]),
            result.clipped.int64_value(&[0]) == 1,
        )
    }

    #[test]
    fn loss_and_gradient_of_worked_examples() {
        // (value, old, target, clip) -> (loss, gradient, clipped)
        let cases = [
            // Inside of the range.
            (0.3, 0.0, 1.0, 0.5, 0.245, -0.7, false),
            // Moved towards the target by more than the range: bounded at 0.5, no gradient.
            (0.8, 0.0, 1.0, 0.5, 0.125, 0.0, true),
            // Moved away from the target: not clipped.
            (-0.8, 0.0, 1.0, 0.5, 1.62, -1.8, false),
            // Past the target, outside of the range: the bounded value is nearer.
            (1.8, 0.0, 0.2, 0.5, 1.28, 1.6, false),
            // Without clipping.
            (0.8, 0.0, 1.0, 0.0, 0.02, -0.2, false),
        ];
        for (value, old, target, clip, loss, gradient, clipped) in cases {
            let got = token_loss(value, old, target, clip);
            assert!(
                (got.0 - loss).abs() < 1e-12 && (got.1 - gradient).abs() < 1e-12 && got.2 == clipped,
                "value {value}, old {old}, target {target}, clip {clip}: {got:?}"
            );
        }
    }
}
