//! Execution of kernels on the CPU for tests: `emulated.h`, compiled by the system's C++ compiler.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::process::Command;

use tch::Device;

use super::error::Error;
use super::launch::{Argument, Kernel, Launch};

type Emulate =
    unsafe extern "C" fn(*const c_char, *const c_uint, c_uint, c_uint, *const *mut c_void, u64) -> c_int;

/// A library of kernels, with a seed for the order in which threads run.
#[derive(Clone, Copy)]
pub(super) struct Emulated {
    emulate: Emulate,
    seed: u64,
}

impl Emulated {
    /// Returns the same library with another seed.
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Compiles the last of `sources`, files in `src/cuda`, which includes the others. The library is stored
    /// with the test's binary, so that all tests share it until a source changes.
    pub fn compile(sources: &[&str]) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cuda");
        let mut hasher = blake3::Hasher::new();
        for source in sources {
            hasher.update(&std::fs::read(folder.join(source)).unwrap());
        }
        let name = format!("emulated-{}.so", hasher.finalize().to_hex());
        let library = std::env::current_exe().unwrap().with_file_name(name);
        if !library.exists() {
            let partial = library.with_extension(format!("partial-{}", std::process::id()));
            let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
            let output = Command::new(&compiler)
                .args(["-std=c++17", "-O2", "-shared", "-fPIC", "-Wall", "-Wno-unknown-pragmas", "-Werror"])
                .arg("-o")
                .arg(&partial)
                .arg(folder.join(sources[sources.len() - 1]))
                .output()
                .unwrap();
            assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
            std::fs::rename(&partial, &library).unwrap();
        }
        let path = CString::new(library.to_str().unwrap()).unwrap();
        // SAFETY: the library was built from our own source and stays loaded; the symbol has this
        // signature.
        let emulate = unsafe {
            let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
            assert!(!handle.is_null(), "{:?}", CStr::from_ptr(libc::dlerror()));
            let symbol = libc::dlsym(handle, c"emulate".as_ptr());
            assert!(!symbol.is_null());
            std::mem::transmute::<*mut c_void, Emulate>(symbol)
        };
        Self { emulate, seed: 1 }
    }
}

impl Launch for Emulated {
    fn device(&self) -> Device {
        Device::Cpu
    }

    unsafe fn launch(&self, kernel: Kernel, grid: [u32; 2], arguments: &[Argument]) -> Result<(), Error> {
        // The library keeps its state in globals.
        static ONE_AT_A_TIME: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock();
        let name = CString::new(kernel.name).unwrap();
        let addresses: Vec<*mut c_void> = arguments.iter().map(Argument::address).collect();
        // SAFETY: guaranteed by the caller, with tensors on the CPU.
        let code = unsafe {
            let (grid, addresses) = (grid.as_ptr(), addresses.as_ptr());
            (self.emulate)(name.as_ptr(), grid, kernel.threads, kernel.shared, addresses, self.seed)
        };
        let reason = match code {
            0 => return Ok(()),
            1 => "the kernel does not exist",
            _ => "its threads are deadlocked",
        };
        Err(Error::Call { action: format!("launch {}", kernel.name), reason: reason.into() })
    }
}
