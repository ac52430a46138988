//! Environment variables that libraries read before they compute.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Variables with the values that the program needs, unless they are set.
const VARIABLES: [(&str, &str); 2] = [
    // OpenMP threads sleep while they wait, instead of spinning. Plugins, sandboxes and the interpreter of turns need the
    // cores meanwhile: with spinning, a step of the engine took four times as long under other load.
    ("OMP_WAIT_POLICY", "passive"),
    // cuBLAS repeats its sums with workspaces of a fixed size alone. These take as much as its default on large GPUs.
    ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
];

/// Sets the variables. OpenMP reads its own before `main`, so the program starts itself again if one is not set. If that
/// fails, the program continues: slower, and on a GPU with other bits in each run.
pub fn set_variables() {
    let missing = VARIABLES.iter().filter(|(name, _)| std::env::var_os(name).is_none());
    let missing: Vec<&(&str, &str)> = missing.collect();
    if missing.is_empty() {
        return;
    }
    if let Ok(program) = std::env::current_exe() {
        let variables = missing.iter().map(|(name, value)| (name, value));
        let error = Command::new(program).args(std::env::args_os().skip(1)).envs(variables).exec();
        tracing::debug!("could not start again with {missing:?}: {error}");
    }
}
