//! Settings of items that have none.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// For items without settings: any setting is an error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoSettings {}
