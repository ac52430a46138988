//! Adapters as PEFT folders: `adapter_config.json` and `adapter_model.safetensors`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use pl_types::{Dtype, SourcePath};
use serde_json::{Value, json};
use tch::Kind;

use crate::error::Error;
use crate::formats::LARGEST_SETTINGS;
use crate::formats::save::{write_json, write_tensors};
use crate::formats::shards::Shards;
use crate::network::adapter::{Adapter, LowRank, Projection, parameter_name};
use crate::network::config::Config;
use crate::network::tensor_set::TensorSet;

const SETTINGS: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";

impl Adapter {
    /// Writes a PEFT folder.
    ///
    /// # Errors
    /// If a file can't be written.
    pub fn save(&self, folder: &Path) -> Result<(), Error> {
        fs::create_dir_all(folder).map_err(Error::io(folder))?;
        let modules: Vec<&str> =
            self.targets().iter().filter_map(|p| p.module().rsplit('.').next()).collect();
        // PEFT expects an integer if the value is one.
        let alpha = if self.alpha.fract() == 0.0 { json!(self.alpha as i64) } else { json!(self.alpha) };
        let settings = json!({
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": null,
            "r": self.rank,
            "lora_alpha": alpha,
            "lora_dropout": 0.0,
            "target_modules": modules,
            "bias": "none",
            "fan_in_fan_out": false,
            "use_rslora": false,
            "use_dora": false,
            "inference_mode": true,
        });
        write_json(&folder.join(SETTINGS), &settings)?;
        write_tensors(&folder.join(TENSORS), self.parameters(), Dtype::F32)
    }

    /// Reads a PEFT folder for a model of these dimensions, onto the CPU.
    ///
    /// # Errors
    /// If a file is missing, or if it is not a plain LoRA adapter of such a model.
    pub fn load(source: impl Into<SourcePath>, config: &Config) -> Result<Self, Error> {
        let source = source.into();
        let (folder, path) = (source.path(), source.path().join(SETTINGS));
        let text = source.join(SETTINGS).read_at_most(LARGEST_SETTINGS).map_err(Error::io(&path))?;
        let settings: Value =
            serde_json::from_slice(&text).map_err(|e| Error::format(&path, format!("not JSON: {e}")))?;
        if settings["peft_type"] != "LORA" {
            return Err(Error::format(&path, "`peft_type` is not LORA; only LoRA adapters can be loaded"));
        }
        for key in ["use_rslora", "use_dora", "fan_in_fan_out"] {
            if settings[key].as_bool() == Some(true) {
                return Err(Error::format(&path, format!("`{key}` is set, which is not supported")));
            }
        }
        for key in ["rank_pattern", "alpha_pattern", "modules_to_save", "layers_to_transform"] {
            let value = &settings[key];
            let empty = value.is_null()
                || value.as_object().is_some_and(|o| o.is_empty())
                || value.as_array().is_some_and(|a| a.is_empty());
            if !empty {
                return Err(Error::format(&path, format!("`{key}` is set, which is not supported")));
            }
        }
        let rank = settings["r"].as_u64().and_then(|r| usize::try_from(r).ok()).unwrap_or(0);
        let alpha = settings["lora_alpha"].as_f64().unwrap_or(0.0);

        let path = folder.join(TENSORS);
        let stored = Shards::open(&source.join(TENSORS))?;
        let mut unused: BTreeSet<&String> = stored.names().collect();
        // `target_modules` may be a pattern, so the targets are taken from the tensors.
        let targets: Vec<Projection> =
            Projection::ALL.into_iter().filter(|p| unused.contains(&parameter_name(0, *p, 'A'))).collect();
        let adapter = Self::build(config, rank, alpha, &targets, |layer, projection, fan_in, out| {
            let mut take = |factor: char, shape: [i64; 2]| {
                let tensor = parameter_name(layer, projection, factor);
                unused.remove(&tensor);
                let value = stored
                    .take(&tensor, |stored| Ok(stored.f_to_kind(Kind::Float)?))?
                    .ok_or_else(|| Error::MissingTensor { path: path.clone(), tensor: tensor.clone() })?;
                if value.size() == shape {
                    return Ok(value);
                }
                Err(Error::Shape { path: path.clone(), tensor, expected: shape.to_vec(), got: value.size() })
            };
            Ok(LowRank { a: take('A', [rank as i64, fan_in])?, b: take('B', [out, rank as i64])? })
        })
        .map_err(|e| match e {
            Error::Adapter(reason) => Error::format(folder, reason),
            other => other,
        })?;
        match unused.first() {
            None => Ok(adapter),
            Some(name) => Err(Error::format(
                &path,
                format!("the tensor `{name}` belongs to no projection of the model"),
            )),
        }
    }
}
