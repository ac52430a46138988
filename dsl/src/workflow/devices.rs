//! Devices that policies are generated for and trained on.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `devices { rollout = ["cpu:0"]; train = ["cpu:1"] }`. `None` for the whole machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Devices {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<DeviceSet>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train: Option<DeviceSet>,
}

impl Devices {
    /// True if nothing is chosen.
    pub fn is_empty(&self) -> bool {
        self.rollout.is_none() && self.train.is_none()
    }
}

/// Cores of the CPU, or a GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeviceSet {
    /// Numbers of the cores, ascending. Empty for all of them.
    Cpu(Vec<u32>),
    /// Number of the GPU.
    Cuda(u32),
}

impl fmt::Display for DeviceSet {
    /// Writes the names of the devices: `cpu:0, cpu:1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceSet::Cpu(cores) if cores.is_empty() => f.write_str("cpu"),
            DeviceSet::Cpu(cores) => {
                let names: Vec<String> = cores.iter().map(|core| format!("cpu:{core}")).collect();
                f.write_str(&names.join(", "))
            }
            DeviceSet::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}
