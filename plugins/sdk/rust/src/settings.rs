//! Settings of items without settings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of an item without settings: any setting is an error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoSettings {}
