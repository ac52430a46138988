//! Waiting threads of libtorch.

use std::os::unix::process::CommandExt;
use std::process::Command;

const POLICY: &str = "OMP_WAIT_POLICY";

/// Makes OpenMP threads sleep while they wait, instead of spinning. Plugins, sandboxes and the interpreter of
/// turns need the cores meanwhile: with spinning, a step of the engine took four times as long under other
/// load.
///
/// OpenMP reads the variable before `main`, so the program starts itself again if it is not set. If that
/// fails, the program continues, only slower.
pub fn set_omp_wait_policy_passive() {
    if std::env::var_os(POLICY).is_some() {
        return;
    }
    if let Ok(program) = std::env::current_exe() {
        let error = Command::new(program).args(std::env::args_os().skip(1)).env(POLICY, "passive").exec();
        tracing::debug!("could not start again with {POLICY}: {error}");
    }
}
