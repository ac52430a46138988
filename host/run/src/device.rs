//! Selection of the device that tensors live on, and loading of libtorch's CUDA libraries if they will be
//! used.
//!
//! The program is linked only to libtorch's CPU libraries, so that one binary runs with and without CUDA.
//! libtorch looks for its CUDA libraries once, in the first call about CUDA; loading them later has no
//! effect. Therefore [`select_device`] has to run before anything else uses libtorch.

use std::path::{Path, PathBuf};

use pl_kernels::cuda::{self, Driver, KernelSettings, MIN_DRIVER_VERSION, driver, find_libtorch_cuda};
use tch::Device;

use crate::error::Error;
use crate::error::cuda::{CudaUnavailable, CudaVersion};
use crate::host::Host;
use crate::progress::Notice;

/// The user's preference for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DevicePreference {
    /// CUDA if it works, otherwise the CPU.
    Auto,
    /// The CPU. No CUDA library is loaded or called.
    Cpu,
    /// CUDA; an error if it does not work.
    Cuda,
}

/// A selected device.
#[derive(Debug)]
struct DeviceChoice {
    device: Device,
    /// The reason for the CPU on a machine that has a driver, where the user may expect CUDA.
    fallback_reason: Option<CudaUnavailable>,
}

/// Facts about the machine that the selection depends on.
trait CudaProbe {
    /// Queries NVIDIA's driver.
    fn driver(&self) -> Driver;
    /// Returns the path of `libtorch_cuda.so`, if it is found.
    fn libraries(&self) -> Option<PathBuf>;
    /// Loads `libtorch_cuda.so`.
    fn load(&self, libraries: &Path) -> Result<(), cuda::Error>;
    /// Returns true if libtorch finds a device. libtorch never changes its first answer.
    fn libtorch_finds_device(&self) -> bool;
}

/// The machine that this program runs on.
struct SystemProbe;

impl CudaProbe for SystemProbe {
    fn driver(&self) -> Driver {
        driver()
    }

    fn libraries(&self) -> Option<PathBuf> {
        find_libtorch_cuda()
    }

    fn load(&self, libraries: &Path) -> Result<(), cuda::Error> {
        // SAFETY: libtorch's own library, found by its name, whose initialisation registers its operators.
        unsafe { cuda::load(libraries) }
    }

    fn libtorch_finds_device(&self) -> bool {
        tch::Cuda::is_available()
    }
}

/// Selects a device and loads what it needs. To be called before anything else uses libtorch.
///
/// # Errors
/// [`Error::Device`] if CUDA is demanded and not usable.
pub fn select_device(host: &Host, preference: DevicePreference) -> Result<Device, Error> {
    let choice = choose(preference, &SystemProbe).map_err(Error::Device)?;
    if let Some(reason) = choice.fallback_reason {
        host.notify(Notice::RunningOnCpu(reason));
    }
    if let Device::Cuda(ordinal) = choice.device {
        let cache = pl_toolchain::cache::root().map_err(Error::Cache)?;
        // Without the kernels, libtorch computes the same with more memory and time.
        if let Err(error) = cuda::open(ordinal, &KernelSettings::new(&cache)) {
            host.notify(Notice::KernelsUnavailable(error));
        }
    }
    Ok(choice.device)
}

/// Chooses the device, and loads libtorch's CUDA libraries if it is CUDA.
fn choose(preference: DevicePreference, probe: &dyn CudaProbe) -> Result<DeviceChoice, CudaUnavailable> {
    let cpu = |fallback_reason| Ok(DeviceChoice { device: Device::Cpu, fallback_reason });
    if preference == DevicePreference::Cpu {
        return cpu(None);
    }
    match (prepare_cuda(probe), preference) {
        (Ok(()), _) => Ok(DeviceChoice { device: Device::Cuda(0), fallback_reason: None }),
        (Err(reason), DevicePreference::Cuda) => Err(reason),
        (Err(CudaUnavailable::NoDriver), _) => cpu(None),
        (Err(reason), _) => cpu(Some(reason)),
    }
}

/// Loads libtorch's CUDA libraries after all checks, in the order of their cost.
fn prepare_cuda(probe: &dyn CudaProbe) -> Result<(), CudaUnavailable> {
    match probe.driver() {
        Driver::Absent => return Err(CudaUnavailable::NoDriver),
        Driver::Failed(reason) => return Err(CudaUnavailable::BrokenDriver(reason)),
        Driver::Found { version, .. } if version < MIN_DRIVER_VERSION => {
            return Err(CudaUnavailable::OldDriver { has: CudaVersion(version) });
        }
        Driver::Found { devices: 0, .. } => return Err(CudaUnavailable::NoDevice),
        Driver::Found { .. } => {}
    }
    let libraries = probe.libraries().ok_or(CudaUnavailable::NoLibraries)?;
    probe.load(&libraries).map_err(CudaUnavailable::LoadFailed)?;
    if probe.libtorch_finds_device() { Ok(()) } else { Err(CudaUnavailable::NotFoundByLibtorch(libraries)) }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A machine of given properties, which records the calls to it.
    struct FakeProbe {
        driver: Driver,
        libraries: Option<PathBuf>,
        loads: bool,
        finds_device: bool,
        calls: RefCell<Vec<&'static str>>,
    }

    impl CudaProbe for FakeProbe {
        fn driver(&self) -> Driver {
            self.calls.borrow_mut().push("driver");
            self.driver.clone()
        }

        fn libraries(&self) -> Option<PathBuf> {
            self.calls.borrow_mut().push("libraries");
            self.libraries.clone()
        }

        fn load(&self, libraries: &Path) -> Result<(), cuda::Error> {
            self.calls.borrow_mut().push("load");
            let path = libraries.to_owned();
            if self.loads {
                Ok(())
            } else {
                Err(cuda::Error::Library { path, reason: "no libcublas".into() })
            }
        }

        fn libtorch_finds_device(&self) -> bool {
            self.calls.borrow_mut().push("device");
            self.finds_device
        }
    }

    fn working() -> FakeProbe {
        FakeProbe {
            driver: Driver::Found { version: 13_010, devices: 1 },
            libraries: Some("/torch/libtorch_cuda.so".into()),
            loads: true,
            finds_device: true,
            calls: RefCell::default(),
        }
    }

    #[test]
    fn cuda_is_chosen_if_it_works_and_loaded_before_libtorch_is_called() {
        for preference in [DevicePreference::Auto, DevicePreference::Cuda] {
            let machine = working();
            let choice = choose(preference, &machine).unwrap();
            assert_eq!(choice.device, Device::Cuda(0));
            assert!(choice.fallback_reason.is_none());
            assert_eq!(*machine.calls.borrow(), ["driver", "libraries", "load", "device"]);
        }
    }

    #[test]
    fn the_cpu_needs_no_call_about_cuda() {
        let machine = working();
        assert_eq!(choose(DevicePreference::Cpu, &machine).unwrap().device, Device::Cpu);
        assert!(machine.calls.borrow().is_empty());
    }

    #[test]
    fn a_missing_part_is_named_with_its_remedy() {
        let found = |version, devices| Driver::Found { version, devices };
        let cases = [
            (FakeProbe { driver: Driver::Absent, ..working() }, "no NVIDIA driver (libcuda.so.1)", 1),
            (FakeProbe { driver: Driver::Failed("timeout".into()), ..working() }, "work (timeout)", 1),
            (FakeProbe { driver: found(12_080, 1), ..working() }, "only up to 12.8, and 13.0 is needed", 1),
            (FakeProbe { driver: found(13_000, 0), ..working() }, "CUDA_VISIBLE_DEVICES", 1),
            (FakeProbe { libraries: None, ..working() }, "`cargo xtask setup --cuda` fetches them", 2),
            (FakeProbe { loads: false, ..working() }, "can't be loaded: no libcublas; `cargo xtask", 3),
            (FakeProbe { finds_device: false, ..working() }, "in /torch/libtorch_cuda.so were loaded", 4),
        ];
        for (machine, expected, calls) in cases {
            let message = choose(DevicePreference::Cuda, &machine).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
            assert!(message.ends_with("use --device cpu"), "{message}");
            // No library is loaded and libtorch is not called after a check has failed.
            assert_eq!(machine.calls.borrow().len(), calls, "{message}");

            let choice = choose(DevicePreference::Auto, &machine).unwrap();
            assert_eq!(choice.device, Device::Cpu);
            let reason = choice.fallback_reason.map(|reason| reason.to_string());
            // On a machine without a driver, the CPU needs no explanation.
            assert_eq!(reason, (machine.driver != Driver::Absent).then_some(message));
        }
    }
}
