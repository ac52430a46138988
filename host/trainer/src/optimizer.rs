//! AdamW over one policy's tensors, with a state that can be saved and restored exactly.
//!
//! Loshchilov and Hutter 2017 (arXiv:1711.05101). With gradient `g`, step count `t` and rate `lr`,
//!
//! ```text
//! w = w (1 - lr decay)
//! m = m + (1 - b1) (g - m)            v = b2 v + (1 - b2) g²
//! w = w - lr / (1 - b1^t) · m / (sqrt(v) / sqrt(1 - b2^t) + eps)
//! ```

use pl_dsl::workflow::objective::Optimizer;
use pl_model::{AdamWStep, Moments, fused_adamw};
use tch::{Device, Kind, TchError, Tensor, no_grad};

/// Keeps the quotient finite for parameters that never had a gradient.
const EPSILON: f64 = 1e-8;
/// Elements that a step processes at a time. Parameter, gradient, both moments and a temporary of this size
/// fit in a core's cache, so that memory is read and written once instead of once per operation.
const CHUNK_ELEMENTS: i64 = 1 << 16;
/// Added to the norm in the clipping quotient.
const NORM_EPSILON: f64 = 1e-6;

/// Outcome of an optimiser step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OptimizerStep {
    /// Global norm of the gradient, before clipping.
    pub grad_norm: f64,
    /// False if nothing was changed, because the gradient was not finite or 0 everywhere.
    pub applied: bool,
}

#[derive(Debug)]
struct ParameterState {
    name: String,
    parameter: Tensor,
    first_moment: Tensor,
    second_moment: Tensor,
    /// True for matrices; gains and biases have no weight decay.
    decays: bool,
}

/// An AdamW optimiser and its state. It holds shallow clones of its parameters and changes them in place.
#[derive(Debug)]
pub struct AdamW {
    parameters: Vec<ParameterState>,
    steps: u64,
    decay: Decay,
}

/// Decay rates of an optimiser.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decay {
    /// Weight decay.
    pub weights: f64,
    /// Decay of the first and second moments. 0.9 and 0.999 are the values of the Adam paper.
    pub moments: (f64, f64),
}

impl From<&Optimizer> for Decay {
    fn from(optimizer: &Optimizer) -> Self {
        Self { weights: optimizer.weight_decay, moments: (optimizer.beta1, optimizer.beta2) }
    }
}

impl AdamW {
    /// A new optimiser of the named parameters, in the given order.
    pub fn new(parameters: Vec<(String, Tensor)>, decay: Decay) -> Result<Self, TchError> {
        let parameters = parameters
            .into_iter()
            .map(|(name, parameter)| {
                let kind = if parameter.kind() == Kind::Double { Kind::Double } else { Kind::Float };
                let zeros = || Tensor::f_zeros(parameter.size(), (kind, parameter.device()));
                let (first_moment, second_moment) = (zeros()?, zeros()?);
                let decays = parameter.dim() >= 2;
                Ok(ParameterState { name, parameter, first_moment, second_moment, decays })
            })
            .collect::<Result<_, TchError>>()?;
        Ok(AdamW { parameters, steps: 0, decay })
    }

    /// Parameters with their names, in order.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.parameters.iter().map(|state| (state.name.as_str(), &state.parameter))
    }

    /// Number of steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Takes one step with `gradients` (one per parameter, in order), scaled down to a global norm of at most
    /// `max_norm` (0 disables clipping). A gradient that is not finite changes nothing, and neither does one that is 0
    /// everywhere: without anything to learn from, momentum and weight decay don't move the weights.
    ///
    /// Zeroes the gradients afterwards.
    pub fn step(
        &mut self,
        gradients: Vec<Tensor>,
        rate: f64,
        max_norm: f64,
    ) -> Result<OptimizerStep, TchError> {
        debug_assert_eq!(gradients.len(), self.parameters.len());
        no_grad(|| {
            let grad_norm = global_norm(&gradients)?;
            if !grad_norm.is_finite() || grad_norm == 0.0 {
                for mut gradient in gradients {
                    let _ = gradient.f_zero_()?;
                }
                return Ok(OptimizerStep { grad_norm, applied: false });
            }
            self.steps += 1;
            let scale = clip_scale(grad_norm, max_norm);
            match self.parameters.iter().all(|state| state.parameter.device().is_cuda()) {
                true => self.step_fused(&gradients, rate, scale)?,
                false => self.step_in_chunks(&gradients, rate, scale)?,
            }
            Ok(OptimizerStep { grad_norm, applied: true })
        })
    }

    /// Takes a step in a launch for all matrices and one for all others.
    fn step_fused(&self, gradients: &[Tensor], rate: f64, scale: f64) -> Result<(), TchError> {
        for decays in [true, false] {
            let own = self.parameters.iter().zip(gradients).filter(|(state, _)| state.decays == decays);
            let tensors: Vec<Moments<'_>> = own
                .map(|(state, gradient)| Moments {
                    parameter: &state.parameter,
                    gradient,
                    mean: &state.first_moment,
                    square: &state.second_moment,
                })
                .collect();
            let decay = if decays { self.decay.weights } else { 0.0 };
            let (step, betas) = (self.steps, self.decay.moments);
            fused_adamw(&tensors, &AdamWStep { step, rate, betas, decay, epsilon: EPSILON, scale })?;
        }
        Ok(())
    }

    /// Takes a step in chunks that fit into the cache of a core.
    fn step_in_chunks(&self, gradients: &[Tensor], rate: f64, scale: f64) -> Result<(), TchError> {
        let t = self.steps as f64;
        let (beta1, beta2) = self.decay.moments;
        let factors = Factors {
            scale,
            change: (1.0 - beta1, 1.0 - beta2),
            rate: rate / (1.0 - beta1.powf(t)),
            root_correction: (1.0 - beta2.powf(t)).sqrt(),
        };
        for (state, gradient) in self.parameters.iter().zip(gradients) {
            let decay = if state.decays { 1.0 - rate * self.decay.weights } else { 1.0 };
            let flat = |tensor: &Tensor| tensor.f_view([-1]);
            let (parameter, gradient) = (flat(&state.parameter)?, flat(gradient)?);
            let (first_moment, second_moment) = (flat(&state.first_moment)?, flat(&state.second_moment)?);
            let count = gradient.size()[0];
            let mut start = 0;
            while start < count {
                let length = CHUNK_ELEMENTS.min(count - start);
                let part = |tensor: &Tensor| tensor.f_narrow(0, start, length);
                factors.step(
                    part(&parameter)?,
                    part(&first_moment)?,
                    part(&second_moment)?,
                    part(&gradient)?,
                    decay,
                )?;
                start += length;
            }
        }
        Ok(())
    }

    /// The moments as shallow clones: `mean.NAME` is the first, `square.NAME` the second.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        self.parameters
            .iter()
            .flat_map(|state| {
                [
                    (format!("mean.{}", state.name), state.first_moment.shallow_clone()),
                    (format!("square.{}", state.name), state.second_moment.shallow_clone()),
                ]
            })
            .collect()
    }

    /// Sets the step count of a restored state. The caller copies its tensors into those of [`AdamW::state`].
    pub fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }
}

/// Factors of a step's formula that all elements share.
struct Factors {
    /// Scale of the gradients, for clipping.
    scale: f64,
    /// Share of the gradient, and of its square, in the new moments.
    change: (f64, f64),
    /// Learning rate divided by the bias correction of the first moment.
    rate: f64,
    /// Square root of the bias correction of the second moment.
    root_correction: f64,
}

impl Factors {
    fn step(
        &self,
        mut parameter: Tensor,
        mut first_moment: Tensor,
        mut second_moment: Tensor,
        mut gradient: Tensor,
        decay: f64,
    ) -> Result<(), TchError> {
        if self.scale != 1.0 {
            let _ = gradient.f_mul_scalar_(self.scale)?;
        }
        if decay != 1.0 {
            let _ = parameter.f_mul_scalar_(decay)?;
        }
        let _ = first_moment.f_lerp_(&gradient, self.change.0)?;
        let _ = second_moment.f_lerp_(&gradient.f_square()?, self.change.1)?;
        let mut divisor = second_moment.f_sqrt()?;
        let _ = divisor.f_div_scalar_(self.root_correction)?.f_add_scalar_(EPSILON)?;
        let _ = parameter.f_add_(&first_moment.f_div(&divisor)?.f_mul_scalar(-self.rate)?)?;
        let _ = gradient.f_zero_()?;
        Ok(())
    }
}

/// Square root of the sum of squares of all elements, summed in double precision in the given order. The norms come from the
/// device in one copy.
fn global_norm(tensors: &[Tensor]) -> Result<f64, TchError> {
    if tensors.is_empty() {
        return Ok(0.0);
    }
    let norms = tensors.iter().map(|tensor| tensor.f_norm()?.f_to_kind(Kind::Double));
    let norms = Tensor::f_stack(&norms.collect::<Result<Vec<_>, _>>()?, 0)?;
    let norms = Vec::<f64>::try_from(norms.f_to_device(Device::Cpu)?)?;
    Ok(norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt())
}

fn clip_scale(norm: f64, max_norm: f64) -> f64 {
    if max_norm > 0.0 && norm > max_norm { max_norm / (norm + NORM_EPSILON) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decay(weights: f64) -> Decay {
        Decay { weights, moments: (0.9, 0.999) }
    }

    fn values(tensor: &Tensor) -> Vec<f64> {
        Vec::<f64>::try_from(tensor.to_kind(Kind::Double).flatten(0, -1)).unwrap()
    }

    /// The formula above in plain double precision.
    struct Reference {
        w: Vec<f64>,
        m: Vec<f64>,
        v: Vec<f64>,
        t: i32,
    }

    impl Reference {
        fn step(&mut self, g: &[f64], rate: f64, decay: f64) {
            self.t += 1;
            for (i, g) in g.iter().enumerate() {
                self.w[i] *= 1.0 - rate * decay;
                self.m[i] = 0.9 * self.m[i] + 0.1 * g;
                self.v[i] = 0.999 * self.v[i] + 0.001 * g * g;
                let mean = self.m[i] / (1.0 - 0.9f64.powi(self.t));
                let square = self.v[i] / (1.0 - 0.999f64.powi(self.t));
                self.w[i] -= rate * mean / (square.sqrt() + 1e-8);
            }
        }
    }

    #[test]
    fn follows_the_formula() {
        let start = [0.5, -1.0, 2.0, 0.25];
        let weight = Tensor::from_slice(&start).to_kind(Kind::Float).reshape([2, 2]);
        let mut optimizer = AdamW::new(vec![("w".into(), weight.shallow_clone())], decay(0.1)).unwrap();
        let mut reference = Reference { w: start.to_vec(), m: vec![0.0; 4], v: vec![0.0; 4], t: 0 };
        for round in 0..20 {
            let gradient: Vec<f64> = (0..4).map(|i| f64::sin(f64::from(round * 4 + i))).collect();
            let tensor = Tensor::from_slice(&gradient).to_kind(Kind::Float).reshape([2, 2]);
            let stepped = optimizer.step(vec![tensor.shallow_clone()], 0.01, 0.0).unwrap();
            assert_eq!(values(&tensor), [0.0; 4], "gradients are zero afterwards");
            reference.step(&gradient, 0.01, 0.1);
            let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
            assert!((stepped.grad_norm - norm).abs() < 1e-6 && stepped.applied);
            for (got, expected) in values(&weight).iter().zip(&reference.w) {
                assert!((got - expected).abs() < 2e-6, "round {round}: {got} and {expected}");
            }
        }
        assert_eq!(optimizer.steps(), 20);
    }

    /// The launches of a GPU, on the CPU: the same steps as in chunks, with clipping and without.
    #[test]
    fn fused_steps_equal_those_in_chunks() {
        let random = |index: i64, seed: i64| {
            tch::manual_seed(seed);
            let shape: &[i64] = if index == 1 { &[7] } else { &[300, 301] };
            Tensor::randn(shape, (Kind::Float, Device::Cpu))
        };
        let new = || {
            let parameters = (0..3).map(|index| (format!("p{index}"), random(index, index)));
            AdamW::new(parameters.collect(), decay(0.1)).unwrap()
        };
        let (mut chunks, mut fused) = (new(), new());
        for (round, scale) in [(1, 1.0), (2, 0.25), (3, 1.0)] {
            let gradients =
                || (0..3).map(|index| random(index, 10 * round as i64 + index)).collect::<Vec<_>>();
            let (a, b) = (gradients(), gradients());
            (chunks.steps, fused.steps) = (round, round);
            no_grad(|| {
                chunks.step_in_chunks(&a, 0.01, scale).unwrap();
                fused.step_fused(&b, 0.01, scale).unwrap();
            });
            assert!(b.iter().all(|gradient| values(gradient).iter().all(|value| *value == 0.0)));
        }
        let all = |own: &AdamW| -> Vec<f64> {
            let state = own.state().into_iter().map(|(_, tensor)| tensor);
            own.parameters()
                .map(|(_, tensor)| tensor.shallow_clone())
                .chain(state)
                .flat_map(|t| values(&t))
                .collect()
        };
        let (one, other) = (all(&chunks), all(&fused));
        let gap = one.iter().zip(&other).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(gap < 1e-6, "{gap}");
        assert!(one.iter().any(|value| value.abs() > 0.1));
    }

    #[test]
    fn weight_decay_applies_to_matrices_only() {
        let gain = Tensor::ones([3], (Kind::Float, Device::Cpu));
        let matrix = Tensor::ones([1, 3], (Kind::Float, Device::Cpu));
        let other = Tensor::ones([1], (Kind::Float, Device::Cpu));
        let parameters = [("gain", &gain), ("matrix", &matrix), ("other", &other)];
        let parameters = parameters.map(|(name, tensor)| (name.to_owned(), tensor.shallow_clone()));
        let mut optimizer = AdamW::new(parameters.into(), decay(0.5)).unwrap();
        optimizer.step(vec![gain.zeros_like(), matrix.zeros_like(), other.ones_like()], 0.1, 1.0).unwrap();
        assert_eq!(values(&gain), [1.0; 3]);
        assert!(values(&matrix).iter().all(|w| (w - 0.95).abs() < 1e-6));
    }

    #[test]
    fn clipping_bounds_the_norm_over_all_tensors() {
        assert_eq!(clip_scale(0.9, 1.0), 1.0);
        assert_eq!(clip_scale(50.0, 0.0), 1.0);
        let (a, b) = (Tensor::from_slice(&[3.0f32]), Tensor::from_slice(&[4.0f32]));
        let norm = global_norm(&[a, b]).unwrap();
        assert!((norm - 5.0).abs() < 1e-9);
        assert!((clip_scale(norm, 1.0) * norm - 1.0).abs() < 1e-6);

        // The first moment after one step reveals the scale of the gradient: 0.1 × scale × g.
        let weight = Tensor::zeros([2], (Kind::Float, Device::Cpu));
        let mut optimizer = AdamW::new(vec![("w".into(), weight)], decay(0.0)).unwrap();
        optimizer.step(vec![Tensor::from_slice(&[3.0f32, 4.0])], 0.1, 1.0).unwrap();
        let mean = values(&optimizer.state()[0].1);
        assert!((mean[0] - 0.06).abs() < 1e-6 && (mean[1] - 0.08).abs() < 1e-6, "{mean:?}");
    }

    #[test]
    fn a_gradient_of_0_moves_nothing_also_after_other_steps() {
        let weight = Tensor::ones([1, 2], (Kind::Float, Device::Cpu));
        let mut optimizer = AdamW::new(vec![("w".into(), weight.shallow_clone())], decay(0.1)).unwrap();
        optimizer.step(vec![weight.ones_like()], 0.1, 1.0).unwrap();
        let moments =
            |optimizer: &AdamW| -> Vec<_> { optimizer.state().iter().map(|(_, t)| values(t)).collect() };
        let before = (values(&weight), moments(&optimizer));
        let stepped = optimizer.step(vec![weight.zeros_like()], 0.1, 1.0).unwrap();
        assert_eq!((stepped.grad_norm, stepped.applied, optimizer.steps()), (0.0, false, 1));
        assert_eq!((values(&weight), moments(&optimizer)), before);
    }

    #[test]
    fn a_gradient_that_is_not_finite_changes_nothing() {
        let weight = Tensor::ones([2], (Kind::Float, Device::Cpu));
        let mut optimizer = AdamW::new(vec![("w".into(), weight.shallow_clone())], decay(0.1)).unwrap();
        let stepped = optimizer.step(vec![Tensor::from_slice(&[f32::NAN, 1.0])], 0.1, 1.0).unwrap();
        assert!(!stepped.applied);
        assert_eq!(optimizer.steps(), 0);
        assert_eq!(values(&weight), [1.0; 2]);
        assert!(optimizer.state().iter().all(|(_, t)| values(t) == [0.0; 2]));
    }
}
