//! Adapters from updates before a checkpoint's own.
//!
//! If one learner may be further behind than another, steps that are not played yet use its weights of several updates.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pl_model::TensorSet;
use pl_types::ValueHeadWeights;
use tch::Tensor;

use super::OTHER_WORKFLOW;
use super::files::damaged;
use super::manifest::{Manifest, SavedVersion};
use super::tensors::{
    VALUE_HEAD, check_size, count_numbers, largest_size, read_adapter, read_tensors, restore_tensors,
    write_tensors,
};
use crate::error::Error;
use crate::trainer::{ServedPolicy, Trainer};

const EARLIER: &str = "earlier";

/// A policy with the adapter that it had after an earlier update.
#[derive(Debug)]
pub struct EarlierVersion {
    /// Number of updates of its learner.
    pub update: u64,
    /// Has an adapter.
    pub policy: ServedPolicy,
}

impl Trainer {
    /// Writes versions of adapters into the folder of a checkpoint.
    pub(super) fn write_earlier(
        &self,
        checkpoint: &Path,
        versions: &[EarlierVersion],
    ) -> Result<Vec<SavedVersion>, Error> {
        let mut saved = Vec::new();
        for EarlierVersion { update, policy } in versions {
            let (Some(name), Some(adapter)) = (self.names().get(policy.policy), &policy.adapter) else {
                continue;
            };
            let path = version_path(checkpoint, *update, name);
            adapter.save(&path).map_err(Error::model(name))?;
            if let Some(ValueHeadWeights { weight, bias }) = &policy.value_head {
                let head = [("weight", Tensor::from_slice(weight)), ("bias", Tensor::from_slice(&[*bias]))];
                write_tensors(
                    &path.join(VALUE_HEAD),
                    head.map(|(name, tensor)| (name.to_owned(), tensor)).into(),
                )?;
            }
            saved.push(SavedVersion { update: *update, policy: name.clone(), version: policy.version });
        }
        Ok(saved)
    }

    /// Reads the earlier versions of a checkpoint that [`Trainer::load`] has loaded.
    ///
    /// # Errors
    /// If a version can't be read or does not fit its policy.
    pub fn load_earlier(&self, checkpoint: &Path) -> Result<Vec<EarlierVersion>, Error> {
        let saved = Manifest::read(checkpoint)?.earlier;
        saved.iter().map(|saved| self.read_version(checkpoint, saved)).collect()
    }

    fn read_version(&self, checkpoint: &Path, saved: &SavedVersion) -> Result<EarlierVersion, Error> {
        let SavedVersion { update, policy: name, version } = saved;
        let path = version_path(checkpoint, *update, name);
        let index = self.names().iter().position(|own| own == name);
        let current = index.and_then(|index| self.served(index)).map(|policy| policy.copy());
        let Some((mut policy, adapter)) = current.and_then(|mut policy| {
            let adapter = policy.adapter.take()?;
            Some((policy, adapter))
        }) else {
            let problem = format!(
                "it has an earlier adapter of policy `{name}`, but the policy has no adapter in this workflow; \
                 {OTHER_WORKFLOW}"
            );
            return Err(Error::Checkpoint { path, problem });
        };
        let width = policy.value_head.as_ref().map(|head| head.weight.len());
        let head = width.map_or(0, |width| width + 1);
        check_size(&path, count_numbers(&adapter.parameters()) + head)?;
        let config = &self.model_for(policy.policy).config;
        let saved = read_adapter(name, &path, config, &adapter)?;
        restore_tensors(&path, adapter.parameters(), saved)?;
        if let Some(width) = width {
            policy.value_head = Some(read_head(&path.join(VALUE_HEAD), width)?);
        }
        (policy.adapter, policy.version) = (Some(adapter), *version);
        Ok(EarlierVersion { update: *update, policy })
    }
}

/// Reads a value head for hidden states of `width` dimensions.
fn read_head(path: &Path, width: usize) -> Result<ValueHeadWeights, Error> {
    let (mut weight, mut bias) = (Vec::new(), Vec::new());
    for (name, tensor) in read_tensors(path)? {
        let numbers =
            Vec::<f32>::try_from(tensor.flatten(0, -1)).map_err(Error::torch(path.display().to_string()))?;
        match name.as_str() {
            "weight" => weight = numbers,
            _ => bias = numbers,
        }
    }
    if weight.len() != width {
        return Err(damaged(path, &format!("has {} weights, not {width}", weight.len())));
    }
    let bias = bias.first().copied().ok_or_else(|| damaged(path, "has no bias"))?;
    Ok(ValueHeadWeights { weight, bias })
}

/// Returns the largest size in bytes of the earlier versions of a policy in a checkpoint, whose adapter and value head have
/// this number of values. Versions without a folder don't count.
pub(super) fn largest_versions(checkpoint: &Path, manifest: &Manifest, policy: &str, numbers: usize) -> u64 {
    let own = manifest.earlier.iter().filter(|saved| saved.policy == policy);
    let updates: BTreeSet<u64> = own.map(|saved| saved.update).collect();
    let existing = updates.iter().filter(|update| version_path(checkpoint, **update, policy).is_dir());
    (existing.count() as u64).saturating_mul(largest_size(numbers))
}

fn version_path(checkpoint: &Path, update: u64, policy: &str) -> PathBuf {
    checkpoint.join(EARLIER).join(update.to_string()).join(policy)
}
