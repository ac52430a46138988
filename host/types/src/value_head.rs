//! Value heads: linear functions of a model's hidden states.

/// Weights of a value head, a linear layer on hidden states after the final norm.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueHeadWeights {
    /// One per hidden dimension.
    pub weight: Vec<f32>,
    pub bias: f32,
}

impl ValueHeadWeights {
    /// Returns the value of a hidden state of as many dimensions. Products are summed in f64.
    pub fn value(&self, hidden: &[f32]) -> f32 {
        let products =
            self.weight.iter().zip(hidden).map(|(weight, state)| f64::from(*weight) * f64::from(*state));
        (products.sum::<f64>() + f64::from(self.bias)) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_the_product_plus_the_bias() {
        let head = ValueHeadWeights { weight: vec![2.0, -1.0], bias: 0.5 };
        assert_eq!(head.value(&[1.0, 4.0]), -1.5);
    }
}
