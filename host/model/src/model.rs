//! A loaded language model.

use std::sync::Arc;

use pl_types::ModelDtype;

use crate::network::config::Config;
use crate::network::weights::Weights;
use crate::text::template::ChatTemplate;
use crate::text::tokenizer::Tokenizer;

/// A language model: weights, tokenizer and chat template.
#[derive(Debug)]
pub struct Model {
    /// Dimensions.
    pub config: Config,
    /// Weights.
    pub weights: Weights,
    /// Tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Chat template.
    pub template: Arc<ChatTemplate>,
    /// Form of the matrices.
    pub dtype: ModelDtype,
    /// BLAKE3 of the files that the model was loaded from, in hexadecimal.
    pub hash: String,
}
