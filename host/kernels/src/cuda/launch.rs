//! Compiled kernels on a device, and how they are launched.

use std::collections::HashMap;
#[cfg(test)]
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg, sys};
use cudarc::nvrtc::Ptx;
use tch::{Device, Tensor};

use super::{Compiler, Driver, Error, driver, head, library};

/// Where NVRTC and its cache are.
#[derive(Debug, Default)]
pub struct Settings {
    /// Folders to look for NVRTC in, before the system's.
    pub nvrtc: Vec<PathBuf>,
    /// Folder of compiled kernels; made if it doesn't exist. None compiles at each start.
    pub cache: Option<PathBuf>,
}

impl Settings {
    /// NVRTC as set-up leaves it, with libtorch's CUDA libraries or by itself, and compiled kernels in `cache`, the
    /// folder of all that is fetched or compiled.
    pub fn new(cache: &Path) -> Self {
        let libtorch = library::loaded("libtorch_cuda.so").and_then(|path| Some(path.parent()?.to_owned()));
        let beside = libtorch.map(|folder| folder.join("../../nvidia/cu13/lib"));
        let nvrtc = beside.into_iter().chain([cache.join("nvrtc-13.0.88")]).collect();
        Self { nvrtc, cache: Some(cache.join("kernels")) }
    }
}

/// An argument of a kernel: its bytes are what the kernel gets.
#[derive(Debug)]
pub(super) enum Argument {
    /// Of a tensor's numbers; null for a tensor that may be left out.
    Pointer(u64),
    /// A count.
    Count(i32),
}

impl Argument {
    pub(super) fn tensor(tensor: &Tensor) -> Self {
        Self::Pointer(tensor.data_ptr() as u64)
    }

    /// Where the bytes are.
    #[cfg(test)]
    pub(super) fn address(&self) -> *mut c_void {
        match self {
            Self::Pointer(pointer) => std::ptr::from_ref(pointer) as *mut c_void,
            Self::Count(count) => std::ptr::from_ref(count) as *mut c_void,
        }
    }
}

/// A kernel with the sizes it is launched with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel {
    pub name: &'static str,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of memory that a block's threads share.
    pub shared: u32,
}

/// Something that runs kernels.
pub(super) trait Launch: Send + Sync {
    /// Where the tensors are to be.
    fn device(&self) -> Device;

    /// Launches a kernel over a grid of blocks, after all that was launched before.
    ///
    /// # Safety
    /// The arguments are those of the kernel, in its order, and its pointers are to as much memory on the device as
    /// it reads and writes, which is not freed before the kernel has run (libtorch frees in order of the stream).
    unsafe fn launch(&self, kernel: Kernel, grid: [u32; 2], arguments: &[Argument]) -> Result<(), Error>;
}

/// The kernels on one device.
#[derive(Debug)]
pub struct Kernels {
    ordinal: usize,
    stream: Arc<CudaStream>,
    functions: HashMap<&'static str, CudaFunction>,
}

impl Kernels {
    fn new(ordinal: usize, settings: &Settings) -> Result<Self, Error> {
        // The driver's functions panic where there is no driver.
        match driver() {
            Driver::Absent => return Err(Error::NoDriver),
            Driver::Failed(reason) => return Err(Error::Call { doing: "start".into(), reason }),
            Driver::Found { .. } => {}
        }
        let context = CudaContext::new(ordinal).map_err(Error::call(format!("open device {ordinal}")))?;
        let (major, minor) =
            context.compute_capability().map_err(Error::call("tell the compute capability"))?;
        if major < 8 {
            return Err(Error::Device { ordinal, major, minor });
        }
        let compiler = Compiler::find(&settings.nvrtc)?;
        let code =
            compiler.compile(&head::SOURCE, &format!("sm_{major}{minor}"), settings.cache.as_deref())?;
        let module =
            context.load_module(Ptx::from_binary(code)).map_err(Error::call("load compiled kernels"))?;
        let mut functions = HashMap::new();
        for kernel in head::KERNELS {
            let function = module
                .load_function(kernel.name)
                .map_err(Error::call(format!("find the kernel {}", kernel.name)))?;
            // More than 48 KiB have to be asked for.
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function
                .set_attribute(attribute, kernel.shared as i32)
                .map_err(Error::call(format!("give shared memory to {}", kernel.name)))?;
            functions.insert(kernel.name, function);
        }
        Ok(Self { ordinal, stream: context.default_stream(), functions })
    }
}

impl Launch for Kernels {
    fn device(&self) -> Device {
        Device::Cuda(self.ordinal)
    }

    unsafe fn launch(&self, kernel: Kernel, grid: [u32; 2], arguments: &[Argument]) -> Result<(), Error> {
        let failed = |reason: String| Error::Call { doing: format!("launch {}", kernel.name), reason };
        let function = self.functions.get(kernel.name).ok_or_else(|| failed("it was not compiled".into()))?;
        let mut launch = self.stream.launch_builder(function);
        for argument in arguments {
            match argument {
                Argument::Pointer(pointer) => launch.arg(pointer),
                Argument::Count(count) => launch.arg(count),
            };
        }
        let config = LaunchConfig {
            grid_dim: (grid[0], grid[1], 1),
            block_dim: (kernel.threads, 1, 1),
            shared_mem_bytes: kernel.shared,
        };
        // SAFETY: the caller's promise.
        unsafe { launch.launch(config) }.map(|_| ()).map_err(|e| failed(e.to_string()))
    }
}

/// The devices whose kernels were opened. They stay open until the process ends.
static OPENED: Mutex<Vec<Arc<Kernels>>> = Mutex::new(Vec::new());

/// Compiles and loads the kernels for a device and keeps them for the process. Compiling takes seconds, once.
///
/// # Errors
/// Where there is no driver, no NVRTC, or the device is too old: nothing that stops a run, for libtorch does without
/// these kernels.
pub fn open(ordinal: usize, settings: &Settings) -> Result<Arc<Kernels>, Error> {
    if let Some(kernels) = opened(Device::Cuda(ordinal)) {
        return Ok(kernels);
    }
    let kernels = Arc::new(Kernels::new(ordinal, settings)?);
    OPENED.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&kernels));
    Ok(kernels)
}

/// The kernels of a device that was opened; none for others, and none on a processor.
pub fn opened(device: Device) -> Option<Arc<Kernels>> {
    let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    opened.iter().find(|kernels| kernels.device() == device).cloned()
}
