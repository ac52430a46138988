//! Which device a run uses, and the CUDA half of libtorch, which is loaded only where it will be used.
//!
//! The program is linked to libtorch's CPU half alone, so that one binary runs with and without CUDA. libtorch looks
//! for its CUDA half once, when it is first asked about CUDA; after that it is too late to load it. So [`choose`] has
//! to come before anything else is asked of libtorch.

use std::fmt;
use std::path::{Path, PathBuf};

use tch::Device;

use super::{Driver, Error, LEAST_DRIVER, driver, library};

/// Names the folder that holds `libtorch_cuda.so`, where it is not beside `libtorch_cpu.so`.
pub const FOLDER_VARIABLE: &str = "PL_HOST_LIBTORCH_CUDA";

/// What a person asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// CUDA where it works, else the CPU.
    Auto,
    /// The CPU. Nothing of CUDA is touched.
    Cpu,
    /// CUDA and nothing else.
    Cuda,
}

/// What they get.
#[derive(Debug)]
pub struct Choice {
    /// The device.
    pub device: Device,
    /// Why it is not CUDA although there is a driver: for a person who may have expected it.
    pub passed_over: Option<Refusal>,
}

/// Why there is no CUDA, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// No libcuda.
    #[error(
        "there is no NVIDIA driver (libcuda.so.1) on this machine; install driver 580 or newer, or use --device cpu"
    )]
    NoDriver,
    /// libcuda does not answer.
    #[error("the NVIDIA driver does not answer ({0}); `nvidia-smi` should work first, or use --device cpu")]
    BrokenDriver(String),
    /// libcuda is older than libtorch's libraries.
    #[error(
        "the NVIDIA driver knows CUDA up to {has} only, and {} is needed; install driver 580 or newer, or use --device cpu",
        Version(LEAST_DRIVER)
    )]
    OldDriver {
        /// As a person would write it.
        has: Version,
    },
    /// The driver sees no device.
    #[error(
        "the NVIDIA driver sees no device; CUDA_VISIBLE_DEVICES may hide it, or a container may not have been given it; or use --device cpu"
    )]
    NoDevice,
    /// libtorch's CUDA half is missing.
    #[error(
        "libtorch has no CUDA libraries here: `cargo xtask setup --cuda` fetches them, or {FOLDER_VARIABLE} names the folder of a libtorch_cuda.so 2.11; or use --device cpu"
    )]
    NoLibraries,
    /// It is there, but can't be loaded.
    #[error("{0}; `cargo xtask setup --cuda` fetches libraries that belong together, or use --device cpu")]
    Unloadable(#[source] Error),
    /// Everything is there, and libtorch still sees no device.
    #[error("libtorch sees no CUDA device, although its libraries in {folder} were loaded and the driver sees one: are they of libtorch 2.11? Or use --device cpu", folder = .0.display())]
    Unseen(PathBuf),
}

/// A version of CUDA as the driver counts: 13000 is 13.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(pub i32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

/// What a choice depends on.
pub trait Machine {
    /// NVIDIA's driver.
    fn driver(&self) -> Driver;
    /// `libtorch_cuda.so`, where there is one.
    fn libraries(&self) -> Option<PathBuf>;
    /// Loads it.
    fn load(&self, libraries: &Path) -> Result<(), Error>;
    /// Whether libtorch sees a device. What it answers first, it answers for good.
    fn sees_device(&self) -> bool;
}

/// The machine that this program runs on.
#[derive(Debug, Clone, Copy)]
pub struct ThisMachine;

impl Machine for ThisMachine {
    fn driver(&self) -> Driver {
        driver()
    }

    fn libraries(&self) -> Option<PathBuf> {
        let named = std::env::var_os(FOLDER_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        find(named, library::loaded("libtorch_cpu.so"))
    }

    fn load(&self, libraries: &Path) -> Result<(), Error> {
        library::load(libraries)
    }

    fn sees_device(&self) -> bool {
        tch::Cuda::is_available()
    }
}

/// `libtorch_cuda.so`: in the folder that is named, else with the libtorch that is loaded.
fn find(named: Option<PathBuf>, libtorch: Option<PathBuf>) -> Option<PathBuf> {
    let folders = match named {
        Some(folder) => vec![folder],
        None => {
            let beside = libtorch?.canonicalize().ok()?.parent()?.to_owned();
            // Set-up keeps them in a folder of their own, for what lies beside libtorch_cpu is linked to.
            vec![beside.parent()?.join("cuda"), beside]
        }
    };
    let found = folders.iter().map(|folder| folder.join("libtorch_cuda.so")).find(|path| path.is_file())?;
    // It finds what it needs relative to where it really lies.
    found.canonicalize().ok()
}

/// Chooses the device, and loads libtorch's CUDA half where that is CUDA.
///
/// # Errors
/// Where CUDA alone will do and does not work.
pub fn choose(wish: Wish, machine: &dyn Machine) -> Result<Choice, Refusal> {
    let cpu = |passed_over| Ok(Choice { device: Device::Cpu, passed_over });
    if wish == Wish::Cpu {
        return cpu(None);
    }
    match (cuda(machine), wish) {
        (Ok(()), _) => Ok(Choice { device: Device::Cuda(0), passed_over: None }),
        (Err(refusal), Wish::Cuda) => Err(refusal),
        (Err(Refusal::NoDriver), _) => cpu(None),
        (Err(refusal), _) => cpu(Some(refusal)),
    }
}

/// Makes CUDA ready, cheapest question first.
fn cuda(machine: &dyn Machine) -> Result<(), Refusal> {
    match machine.driver() {
        Driver::Absent => return Err(Refusal::NoDriver),
        Driver::Failed(reason) => return Err(Refusal::BrokenDriver(reason)),
        Driver::Found { version, .. } if version < LEAST_DRIVER => {
            return Err(Refusal::OldDriver { has: Version(version) });
        }
        Driver::Found { devices: 0, .. } => return Err(Refusal::NoDevice),
        Driver::Found { .. } => {}
    }
    let libraries = machine.libraries().ok_or(Refusal::NoLibraries)?;
    machine.load(&libraries).map_err(Refusal::Unloadable)?;
    if machine.sees_device() { Ok(()) } else { Err(Refusal::Unseen(libraries)) }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A machine of given facts, which notes what was asked of it.
    struct Imagined {
        driver: Driver,
        libraries: Option<PathBuf>,
        loads: bool,
        sees_device: bool,
        asked: RefCell<Vec<&'static str>>,
    }

    impl Machine for Imagined {
        fn driver(&self) -> Driver {
            self.asked.borrow_mut().push("driver");
            self.driver.clone()
        }

        fn libraries(&self) -> Option<PathBuf> {
            self.asked.borrow_mut().push("libraries");
            self.libraries.clone()
        }

        fn load(&self, libraries: &Path) -> Result<(), Error> {
            self.asked.borrow_mut().push("load");
            let path = libraries.to_owned();
            if self.loads { Ok(()) } else { Err(Error::Library { path, reason: "no libcublas".into() }) }
        }

        fn sees_device(&self) -> bool {
            self.asked.borrow_mut().push("device");
            self.sees_device
        }
    }

    fn working() -> Imagined {
        Imagined {
            driver: Driver::Found { version: 13_010, devices: 1 },
            libraries: Some("/torch/libtorch_cuda.so".into()),
            loads: true,
            sees_device: true,
            asked: RefCell::default(),
        }
    }

    #[test]
    fn cuda_is_chosen_where_everything_is_there_and_loaded_before_libtorch_is_asked() {
        for wish in [Wish::Auto, Wish::Cuda] {
            let machine = working();
            let choice = choose(wish, &machine).unwrap();
            assert_eq!(choice.device, Device::Cuda(0));
            assert!(choice.passed_over.is_none());
            assert_eq!(*machine.asked.borrow(), ["driver", "libraries", "load", "device"]);
        }
    }

    #[test]
    fn the_cpu_asks_for_nothing_of_cuda() {
        let machine = working();
        assert_eq!(choose(Wish::Cpu, &machine).unwrap().device, Device::Cpu);
        assert!(machine.asked.borrow().is_empty());
    }

    #[test]
    fn whatever_is_missing_is_named_with_its_remedy() {
        let found = |version, devices| Driver::Found { version, devices };
        let cases = [
            (Imagined { driver: Driver::Absent, ..working() }, "no NVIDIA driver (libcuda.so.1)", 1),
            (Imagined { driver: Driver::Failed("timeout".into()), ..working() }, "answer (timeout)", 1),
            (Imagined { driver: found(12_080, 1), ..working() }, "up to 12.8 only, and 13.0 is needed", 1),
            (Imagined { driver: found(13_000, 0), ..working() }, "CUDA_VISIBLE_DEVICES", 1),
            (Imagined { libraries: None, ..working() }, "`cargo xtask setup --cuda` fetches them", 2),
            (Imagined { loads: false, ..working() }, "can't be loaded: no libcublas; `cargo xtask", 3),
            (Imagined { sees_device: false, ..working() }, "in /torch/libtorch_cuda.so were loaded", 4),
        ];
        for (machine, expected, questions) in cases {
            let said = choose(Wish::Cuda, &machine).unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
            assert!(said.ends_with("use --device cpu"), "{said}");
            // Nothing is loaded, and libtorch not asked, once it is clear that there will be no CUDA.
            assert_eq!(machine.asked.borrow().len(), questions, "{said}");

            let choice = choose(Wish::Auto, &machine).unwrap();
            assert_eq!(choice.device, Device::Cpu);
            let passed_over = choice.passed_over.map(|refusal| refusal.to_string());
            // A machine without a driver is a CPU's machine: nothing to say.
            let nothing_to_say = machine.driver == Driver::Absent;
            assert_eq!(passed_over, (!nothing_to_say).then_some(said));
        }
    }

    #[test]
    fn libraries_are_looked_for_where_they_are_named_else_with_the_libtorch_that_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let file = |path: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            path
        };
        let cpu = file("torch/lib/libtorch_cpu.so");
        let named = file("elsewhere/libtorch_cuda.so");
        assert_eq!(find(None, None), None);
        assert_eq!(find(None, Some(cpu.clone())), None);
        let beside = file("torch/lib/libtorch_cuda.so");
        assert_eq!(find(None, Some(cpu.clone())), Some(beside));
        let apart = file("torch/cuda/libtorch_cuda.so");
        assert_eq!(find(None, Some(cpu.clone())), Some(apart));
        assert_eq!(find(Some(root.join("elsewhere")), Some(cpu.clone())), Some(named));
        // A wrong name is no reason to take others.
        assert_eq!(find(Some(root.join("nowhere")), Some(cpu)), None);
    }
}
