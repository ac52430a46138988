//! Facts about the machine: what it has, what is missing for which feature, and the command that fixes it.

use std::fs;
use std::path::Path;

use pl_kernels::cpu::SimdLevel;
use pl_sandbox::{DockerSettings, DockerWorkers};
use pl_toolchain::{EXAMPLE_MODEL, Language};
use serde::Serialize;

use crate::device::{DevicePreference, select_device};
use crate::error::Error;
use crate::host::Host;
use crate::locate;
use crate::memory::{Bytes, MachineMemory};
use crate::sandbox::is_python_cached;

/// Plugins that the program ships with.
const SHIPPED: [&str; 4] = ["math.wasm", "code.wasm", "planning.wasm", "search.wasm"];

/// Free disk space below which downloads and checkpoints soon fail.
const LITTLE_DISK: u64 = 4 << 30;

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Everything is there.
    Ready,
    /// Works, but slower or with less than it could.
    Limited,
    /// A feature can't be used.
    Missing,
}

/// One thing that the machine has or lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Name, which stays the same between releases.
    pub name: &'static str,
    pub status: Status,
    /// Description of what was found, or of the problem.
    pub found: String,
    /// Feature that needs it.
    pub needed_for: &'static str,
    /// Command or change that helps. `None` if nothing is missing.
    pub remedy: Option<String>,
}

impl Check {
    fn ready(name: &'static str, needed_for: &'static str, found: impl Into<String>) -> Check {
        Check { name, status: Status::Ready, found: found.into(), needed_for, remedy: None }
    }

    fn lacking(self, status: Status, remedy: impl Into<String>) -> Check {
        Check { status, remedy: Some(remedy.into()), ..self }
    }
}

/// Checks the machine. Starts no container, fetches nothing and takes some seconds at most.
pub fn checks(host: &Host) -> Vec<Check> {
    // First: libtorch looks for CUDA only once.
    let cuda = cuda(host);
    let mut checks =
        vec![cpu(), memory(), disk(), cuda, model(), plugins(), python_worker(host), docker(host)];
    checks.extend(Language::ALL.map(tools));
    checks
}

fn cpu() -> Check {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name));
    let (instructions, status) = match SimdLevel::detect() {
        SimdLevel::Avx512 => ("AVX-512", Status::Ready),
        SimdLevel::Avx2 => ("AVX2", Status::Ready),
        SimdLevel::Portable => ("no AVX2", Status::Limited),
    };
    let model = model.unwrap_or("unknown model");
    let found = format!(
        "{model}, {threads} threads, {instructions}, training by {}",
        pl_kernels::cpu::matmul::description()
    );
    let check = Check::ready("cpu", "generation and training", found);
    match status {
        Status::Ready => check,
        status => {
            check.lacking(status, "use a CPU with AVX2, FMA and F16C: generation is several times as fast")
        }
    }
}

fn memory() -> Check {
    let needed_for = "models; `pl-host plan FILE` estimates what a workflow takes";
    match MachineMemory::read() {
        Some(MachineMemory { total, free }) => {
            Check::ready("memory", needed_for, format!("{} free of {}", Bytes(free), Bytes(total)))
        }
        None => Check::ready("memory", needed_for, "unknown")
            .lacking(Status::Limited, "mount /proc: without it, no warning says that a workflow won't fit"),
    }
}

fn disk() -> Check {
    let needed_for = "models, compiled plugins and tools";
    let root = match pl_toolchain::cache::root() {
        Ok(root) => root,
        Err(error) => {
            let check = Check::ready("cache", needed_for, error.to_string());
            return check.lacking(Status::Missing, "set PL_HOST_CACHE to a folder that you can write to");
        }
    };
    let Some(free) = free_space(&root) else {
        return Check::ready("cache", needed_for, root.display().to_string());
    };
    let check = Check::ready("cache", needed_for, format!("{}, {} free", root.display(), Bytes(free)));
    if free < LITTLE_DISK {
        return check.lacking(Status::Limited, "free some disk space, or set PL_HOST_CACHE to another disk");
    }
    check
}

/// Returns the free bytes of the disk that has a folder, or will have it.
fn free_space(folder: &Path) -> Option<u64> {
    let existing = folder.ancestors().find(|ancestor| ancestor.exists())?;
    let disk = rustix::fs::statvfs(existing).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

fn cuda(host: &Host) -> Check {
    match select_device(host, DevicePreference::Cuda) {
        Ok(_) => Check::ready("cuda", "training on a GPU", "usable"),
        Err(error) => Check::ready("cuda", "training on a GPU", without_flag(&error)).lacking(
            Status::Limited,
            "with an NVIDIA GPU: `cargo xtask setup --cuda` in a checkout, a `torch` for CUDA beside an installed package; without \
             one, the CPU is used",
        ),
    }
}

/// Returns the reason for which CUDA is not usable, without naming a flag that was not given.
fn without_flag(error: &Error) -> String {
    match error {
        Error::Device(why) => why.to_string(),
        other => other.to_string(),
    }
}

fn model() -> Check {
    let needed_for = "the examples";
    match locate::model_on_disk(Path::new(""), EXAMPLE_MODEL) {
        Ok(path) => Check::ready("model", needed_for, path.display().to_string()),
        Err(error) => Check::ready("model", needed_for, error.to_string())
            .lacking(Status::Missing, "`pl-host model smollm2-135m` fetches it (93 MB)"),
    }
}

fn plugins() -> Check {
    let needed_for = "the domains of the examples";
    let folder = locate::shipped_plugins().unwrap_or_default();
    let missing: Vec<&str> = SHIPPED.into_iter().filter(|name| !folder.join(name).is_file()).collect();
    if missing.is_empty() {
        return Check::ready("plugins", needed_for, folder.display().to_string());
    }
    Check::ready("plugins", needed_for, format!("{} is missing in {}", missing.join(", "), folder.display()))
        .lacking(
            Status::Missing,
            "`cargo xtask setup` builds them; keep the folder `plugins` next to the program",
        )
}

fn python_worker(host: &Host) -> Check {
    let needed_for = "code of agents, with `backend = wasm`";
    if is_python_cached(host) {
        return Check::ready("python-worker", needed_for, "built in, compiled");
    }
    Check::ready("python-worker", needed_for, "built in; compiled at the first use, which takes some seconds")
}

fn docker(host: &Host) -> Check {
    let needed_for = "code of agents, with `backend = docker`";
    let found = host.block_on(DockerWorkers::inspect(&DockerSettings::default()));
    let usable = found.iter().find(|endpoint| endpoint.problem.is_none());
    if let Some(endpoint) = usable {
        let parts = [&endpoint.engine, &endpoint.image].into_iter().flatten();
        let found = parts.map(String::as_str).collect::<Vec<_>>().join(", ");
        return Check::ready("docker", needed_for, found);
    }
    let problem = found.iter().find_map(|endpoint| endpoint.problem.clone()).unwrap_or_default();
    Check::ready("docker", needed_for, problem).lacking(
        Status::Limited,
        "start Docker, then `pl-host sandbox image`; `pl-host sandbox doctor` shows more",
    )
}

fn tools(language: Language) -> Check {
    let (name, needed_for) = match language {
        Language::Rust => ("plugins-rust", "building plugins in Rust"),
        Language::Python => ("plugins-python", "building plugins in Python"),
        Language::Js => ("plugins-js", "building plugins in JavaScript"),
        Language::C => ("plugins-c", "building plugins in C"),
    };
    match pl_toolchain::find_tools(language) {
        Ok(found) => Check::ready(name, needed_for, found),
        Err(error) => {
            let problem = match &error {
                pl_toolchain::Error::NoTool { missing, .. } => missing.clone(),
                error => error.to_string(),
            };
            let remedy = "`pl-host plugin build --fetch` in a plugin's folder fetches what is missing";
            Check::ready(name, needed_for, problem).lacking(Status::Limited, remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::cuda::CudaUnavailable;

    #[test]
    fn the_space_of_a_folder_that_will_be_made_is_that_of_its_disk() {
        let folder = tempfile::tempdir().unwrap();
        let inside = free_space(&folder.path().join("a/b/c")).unwrap();
        let outside = free_space(folder.path()).unwrap();
        // Other programs write meanwhile.
        assert!(inside > 0 && inside.abs_diff(outside) < outside / 2 + (1 << 30));
    }

    #[test]
    fn a_flag_that_was_not_given_is_not_blamed() {
        let error = Error::Device(CudaUnavailable::NoDriver);
        assert!(error.to_string().starts_with("--device cuda: there is no NVIDIA driver"), "{error}");
        assert!(without_flag(&error).starts_with("there is no NVIDIA driver"), "{error}");
    }

    #[test]
    fn every_check_that_is_not_ready_says_what_helps() {
        let check = Check::ready("x", "y", "found");
        assert_eq!(check.remedy, None);
        let check = check.lacking(Status::Limited, "do this");
        assert_eq!((check.status, check.remedy.as_deref()), (Status::Limited, Some("do this")));
        let cpu = cpu();
        assert_eq!(cpu.status == Status::Ready, cpu.remedy.is_none());
    }
}
