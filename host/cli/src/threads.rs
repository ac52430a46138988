//! How libtorch's threads wait for work.

use std::os::unix::process::CommandExt;
use std::process::Command;

const POLICY: &str = "OMP_WAIT_POLICY";

/// Lets threads that wait for work sleep instead of spinning. Plugins, sandboxes and the interpreter of turns
/// need the cores meanwhile: with spinning, a step of the engine took four times as long beside other work.
///
/// OpenMP reads the variable before `main`, so the program starts itself once more where it is not set. Should
/// that fail, the program goes on as it is: slower, but right.
pub fn wait_politely() {
    if std::env::var_os(POLICY).is_some() {
        return;
    }
    if let Ok(program) = std::env::current_exe() {
        let error = Command::new(program).args(std::env::args_os().skip(1)).env(POLICY, "passive").exec();
        tracing::debug!("could not start again with {POLICY}: {error}");
    }
}
