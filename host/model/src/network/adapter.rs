//! Low-rank adapters (LoRA, Hu et al. 2021): `W x + (alpha / rank) B A x` on chosen projections.

use std::fmt;
use std::str::FromStr;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use tch::{Device, Kind, TchError, Tensor, no_grad};

use crate::error::Error;
use crate::network::config::Config;
use crate::network::tensor_set::TensorSet;

/// A linear layer of a block, which an adapter can target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Projection {
    /// Attention query.
    Q,
    /// Attention key.
    K,
    /// Attention value.
    V,
    /// Attention output.
    O,
    /// Feed-forward gate.
    Gate,
    /// Feed-forward up.
    Up,
    /// Feed-forward down.
    Down,
}

impl Projection {
    /// All projections, in the order of parameter lists.
    pub const ALL: [Self; 7] = [Self::Q, Self::K, Self::V, Self::O, Self::Gate, Self::Up, Self::Down];

    /// Returns the name in workflows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Q => "q",
            Self::K => "k",
            Self::V => "v",
            Self::O => "o",
            Self::Gate => "gate",
            Self::Up => "up",
            Self::Down => "down",
        }
    }

    /// Returns the module's name in Hugging Face models.
    pub fn module(self) -> &'static str {
        match self {
            Self::Q => "self_attn.q_proj",
            Self::K => "self_attn.k_proj",
            Self::V => "self_attn.v_proj",
            Self::O => "self_attn.o_proj",
            Self::Gate => "mlp.gate_proj",
            Self::Up => "mlp.up_proj",
            Self::Down => "mlp.down_proj",
        }
    }

    /// Returns the widths of the input and the output.
    pub fn shape(self, config: &Config) -> (i64, i64) {
        let (h, q, kv, f) = (config.hidden, config.q_width(), config.kv_width(), config.ffn);
        match self {
            Self::Q => (h, q),
            Self::K | Self::V => (h, kv),
            Self::O => (q, h),
            Self::Gate | Self::Up => (h, f),
            Self::Down => (f, h),
        }
    }
}

impl fmt::Display for Projection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Projection {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|p| p.name() == name).ok_or_else(|| {
            Error::Adapter(format!("`{name}` is not a projection; use q, k, v, o, gate, up or down"))
        })
    }
}

/// The two factors on one projection.
#[derive(Debug)]
pub struct LowRank {
    /// `[rank, in]`.
    pub a: Tensor,
    /// `[out, rank]`.
    pub b: Tensor,
}

/// An adapter for all layers of a model.
#[derive(Debug)]
pub struct Adapter {
    /// Rank of the factors.
    pub rank: usize,
    /// Numerator of the scale `alpha / rank` of the products.
    pub alpha: f64,
    /// Target projections, in the order of [`Projection::ALL`].
    targets: Vec<Projection>,
    /// Factors on each projection, by layer.
    layers: Vec<[Option<LowRank>; 7]>,
}

impl Adapter {
    /// Creates an adapter on the CPU that does not change the model's outputs yet: A is uniform in
    /// ±1/sqrt(in) (Kaiming-uniform with a = sqrt 5, as in PEFT) from the ChaCha8 stream of `seed`, and B is
    /// zero.
    ///
    /// # Errors
    /// [`Error::Adapter`] for rank 0, an `alpha` that is not a positive number, or no targets.
    pub fn new(
        config: &Config,
        rank: usize,
        alpha: f64,
        targets: &[Projection],
        seed: [u8; 32],
    ) -> Result<Self, Error> {
        let mut stream = ChaCha8Rng::from_seed(seed);
        Self::build(config, rank, alpha, targets, |_, _, fan_in, out| {
            let bound = 1.0 / (fan_in as f32).sqrt();
            let count = rank * fan_in as usize;
            let values: Vec<f32> = (0..count)
                // 24 bits, the resolution of evenly spaced f32 in [0, 1).
                .map(|_| ((stream.next_u32() >> 8) as f32 / (1 << 24) as f32 * 2.0 - 1.0) * bound)
                .collect();
            let a = Tensor::f_from_slice(&values)?.f_view([rank as i64, fan_in])?;
            let b = Tensor::f_zeros([out, rank as i64], (Kind::Float, Device::Cpu))?;
            Ok(LowRank { a, b })
        })
    }

    /// Creates an adapter with the factors that `make(layer, projection, in, out)` returns.
    pub(crate) fn build(
        config: &Config,
        rank: usize,
        alpha: f64,
        targets: &[Projection],
        mut make: impl FnMut(usize, Projection, i64, i64) -> Result<LowRank, Error>,
    ) -> Result<Self, Error> {
        if rank == 0 {
            return Err(Error::Adapter("the rank must be at least 1".into()));
        }
        if !(alpha.is_finite() && alpha > 0.0) {
            return Err(Error::Adapter(format!("alpha is {alpha}; it must be a positive number")));
        }
        let targets: Vec<Projection> =
            Projection::ALL.into_iter().filter(|projection| targets.contains(projection)).collect();
        if targets.is_empty() {
            return Err(Error::Adapter("it has no target projections".into()));
        }
        let mut layers = Vec::with_capacity(config.layers);
        for layer in 0..config.layers {
            let mut parts = [const { None }; 7];
            for projection in &targets {
                let (fan_in, out) = projection.shape(config);
                parts[*projection as usize] = Some(make(layer, *projection, fan_in, out)?);
            }
            layers.push(parts);
        }
        Ok(Self { rank, alpha, targets, layers })
    }

    /// Returns the scale `alpha / rank`.
    pub fn scale(&self) -> f64 {
        self.alpha / self.rank as f64
    }

    /// Returns the target projections.
    pub fn targets(&self) -> &[Projection] {
        &self.targets
    }

    /// Returns true if none of its numbers is infinite or NaN. Waits for the device.
    ///
    /// # Errors
    /// If libtorch fails (memory).
    pub fn is_finite(&self) -> Result<bool, TchError> {
        let mut sums = Vec::new();
        for parts in &self.layers {
            let factors = parts.iter().flatten().flat_map(|part| [&part.a, &part.b]);
            let factors: Vec<Tensor> = factors.map(|factor| factor.f_view(-1)).collect::<Result<_, _>>()?;
            // In f64, in which finite numbers of the factors' formats have finite sums.
            sums.push(no_grad(|| Tensor::f_cat(&factors, 0)?.f_sum(Kind::Double))?);
        }
        if sums.is_empty() {
            return Ok(true);
        }
        Ok(Tensor::f_stack(&sums, 0)?.f_isfinite()?.f_all()?.f_int64_value(&[])? == 1)
    }

    /// Returns the factors on a layer's projection, if it is a target.
    pub fn part(&self, layer: usize, projection: Projection) -> Option<&LowRank> {
        self.layers.get(layer)?[projection as usize].as_ref()
    }
}

impl TensorSet for Adapter {
    /// The names are PEFT's; the order is by layer, projection, A before B.
    fn parameters(&self) -> Vec<(String, Tensor)> {
        let mut all = Vec::new();
        for (i, parts) in self.layers.iter().enumerate() {
            for projection in &self.targets {
                if let Some(part) = &parts[*projection as usize] {
                    all.push((parameter_name(i, *projection, 'A'), part.a.shallow_clone()));
                    all.push((parameter_name(i, *projection, 'B'), part.b.shallow_clone()));
                }
            }
        }
        all
    }

    fn map(&self, mut f: impl FnMut(&Tensor) -> Tensor) -> Self {
        let mut factors = |part: &LowRank| LowRank { a: f(&part.a), b: f(&part.b) };
        let layers = self
            .layers
            .iter()
            .map(|parts| parts.each_ref().map(|part| part.as_ref().map(&mut factors)))
            .collect();
        Self { rank: self.rank, alpha: self.alpha, targets: self.targets.clone(), layers }
    }
}

/// Returns PEFT's name of a factor.
pub(crate) fn parameter_name(layer: usize, projection: Projection, factor: char) -> String {
    format!("base_model.model.model.layers.{layer}.{}.lora_{factor}.weight", projection.module())
}
