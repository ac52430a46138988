//! Arguments that several commands share: the workflow, its settings, the device and the seed.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pl_dsl::Override;
use pl_run::DevicePreference;

use super::permissions::PermissionArgs;
use crate::exit::CommandError;

/// Arguments of every command that reads a workflow.
#[derive(Args, Clone)]
pub struct WorkflowArgs {
    /// The workflow (.mas)
    pub file: PathBuf,
    #[command(flatten)]
    pub given: OverrideArgs,
    #[command(flatten)]
    pub permissions: PermissionArgs,
}

/// Params and settings from outside the file. Later ones win: environment variables (`PL_HOST_PARAM_NAME`),
/// files, `--set`.
#[derive(Args, Clone)]
pub struct OverrideArgs {
    /// Set a param (NAME=VALUE) or a setting (BLOCK.KEY=VALUE)
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<Override>,
    /// Set params and settings from a file, each line NAME = VALUE or BLOCK.KEY = VALUE
    #[arg(long = "params", value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

impl OverrideArgs {
    /// Returns all params and settings in order.
    pub fn all(&self) -> Result<Vec<Override>, CommandError> {
        let mut all: Vec<Override> = std::env::vars_os()
            .filter_map(|(name, value)| Override::from_variable(name.to_str()?, value.to_str()?))
            .collect();
        all.extend(self.command_line()?);
        Ok(all)
    }

    /// Returns the params and settings of the command line, without those of the environment.
    pub fn command_line(&self) -> Result<Vec<Override>, CommandError> {
        let mut all = Vec::new();
        for file in &self.files {
            let text = pl_dsl::read_text(file)
                .map_err(|e| CommandError::input(format!("cannot read {}: {e}", file.display())))?;
            let source = pl_dsl::Source { name: file.display().to_string(), text };
            all.extend(Override::from_file(&source).map_err(CommandError::input)?);
        }
        all.extend(self.set.iter().cloned());
        Ok(all)
    }
}

/// Device and seed.
#[derive(Args, Clone)]
pub struct MachineArgs {
    /// Device of all tensors
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto)]
    pub device: DeviceChoice,
    /// Seed of every random stream
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DeviceChoice {
    /// CUDA if it is usable, else the CPU
    Auto,
    /// The CPU
    Cpu,
    /// CUDA, or an error if it is not usable (`cargo xtask setup --cuda` fetches its libraries)
    Cuda,
}

impl From<DeviceChoice> for DevicePreference {
    fn from(choice: DeviceChoice) -> DevicePreference {
        match choice {
            DeviceChoice::Auto => DevicePreference::Auto,
            DeviceChoice::Cpu => DevicePreference::Cpu,
            DeviceChoice::Cuda => DevicePreference::Cuda,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn params_are_read_from_files_of_a_few_megabytes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("small.params");
        let read =
            |file: &PathBuf| OverrideArgs { set: Vec::new(), files: vec![file.clone()] }.command_line();
        std::fs::write(&file, "samples = 8\n").unwrap();
        assert_eq!(read(&file).unwrap().len(), 1);
        std::fs::File::options().write(true).open(&file).unwrap().set_len((16 << 20) + 1).unwrap();
        let endless = PathBuf::from("/dev/zero");
        for (file, reason) in [(&file, "it is larger than 16 MiB"), (&endless, "it is not a file")] {
            let expected = format!("cannot read {}: {reason}", file.display());
            assert!(
                matches!(read(file), Err(CommandError::Input(message)) if message == expected),
                "{reason}"
            );
        }
    }
}
