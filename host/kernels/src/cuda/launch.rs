//! Compiled kernels on a device, and their launch.

use std::collections::HashMap;
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, result, sys};
use cudarc::nvrtc::Ptx;
use tch::{Device, Tensor};

use super::compile::{Compiler, KernelSource};
use super::driver::{Driver, driver};
use super::error::Error;
use super::graphs::current_stream;
use super::library;

/// Folders of NVRTC and of its cache.
#[derive(Debug, Default)]
pub struct KernelSettings {
    /// Folders in which NVRTC is looked for before the system's.
    pub nvrtc: Vec<PathBuf>,
    /// Folder of compiled kernels; created if it doesn't exist. `None` compiles at each start.
    pub cache: Option<PathBuf>,
}

impl KernelSettings {
    /// Uses NVRTC as set-up installs it, with libtorch's CUDA libraries or alone, and keeps compiled kernels
    /// in `cache`, the folder of everything that is downloaded or compiled.
    pub fn new(cache: &Path) -> Self {
        let libtorch = library::loaded("libtorch_cuda.so").and_then(|path| Some(path.parent()?.to_owned()));
        let with_libtorch = libtorch.map(|folder| folder.join("../../nvidia/cu13/lib"));
        let nvrtc = with_libtorch.into_iter().chain([cache.join("nvrtc-13.0.88")]).collect();
        Self { nvrtc, cache: Some(cache.join("kernels")) }
    }
}

/// An argument of a kernel. Its bytes are passed to the kernel.
#[derive(Debug)]
pub(super) enum Argument {
    /// Address of a tensor's numbers; null for an optional tensor that is missing.
    Pointer(u64),
    /// A whole number.
    Count(i32),
    /// A number.
    Number(f32),
}

impl Argument {
    pub(super) fn tensor(tensor: &Tensor) -> Self {
        Self::Pointer(tensor.data_ptr() as u64)
    }

    /// Returns the address of the bytes.
    pub(super) fn address(&self) -> *mut c_void {
        match self {
            Self::Pointer(pointer) => std::ptr::from_ref(pointer) as *mut c_void,
            Self::Count(count) => std::ptr::from_ref(count) as *mut c_void,
            Self::Number(number) => std::ptr::from_ref(number) as *mut c_void,
        }
    }
}

/// A kernel with the sizes of its launch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel {
    pub name: &'static str,
    /// Number of threads of a block.
    pub threads: u32,
    /// Bytes of shared memory of a block.
    pub shared: u32,
}

/// A device that runs kernels.
pub(super) trait Launch: Send + Sync {
    /// Returns the device that has the tensors.
    fn device(&self) -> Device;

    /// Launches a kernel over a grid of blocks, after all earlier work of this thread.
    ///
    /// # Safety
    /// The arguments are those of the kernel, in its order. Its pointers are to as much memory on the device
    /// as it reads and writes, and this memory is not freed before the kernel has run (libtorch frees in the
    /// stream's order).
    unsafe fn launch(&self, kernel: Kernel, grid: [u32; 2], arguments: &[Argument]) -> Result<(), Error>;
}

/// The kernels on one device.
#[derive(Debug)]
pub struct Kernels {
    ordinal: usize,
    context: Arc<CudaContext>,
    functions: HashMap<&'static str, CudaFunction>,
}

impl Kernels {
    /// Compiles and loads the kernels of each source.
    pub(super) fn new(
        ordinal: usize,
        settings: &KernelSettings,
        sources: &[(&KernelSource, &[Kernel])],
    ) -> Result<Self, Error> {
        // The driver's functions panic without a driver.
        match driver() {
            Driver::Absent => return Err(Error::NoDriver),
            Driver::Failed(reason) => return Err(Error::Call { action: "start".into(), reason }),
            Driver::Found { .. } => {}
        }
        let context = CudaContext::new(ordinal).map_err(Error::call(format!("open device {ordinal}")))?;
        let (major, minor) =
            context.compute_capability().map_err(Error::call("query the compute capability"))?;
        if major < 8 {
            return Err(Error::Device { ordinal, major, minor });
        }
        let compiler = Compiler::find(&settings.nvrtc)?;
        let mut functions = HashMap::new();
        for (source, kernels) in sources {
            let code = compiler.compile(source, &format!("sm_{major}{minor}"), settings.cache.as_deref())?;
            let module =
                context.load_module(Ptx::from_binary(code)).map_err(Error::call("load compiled kernels"))?;
            for kernel in *kernels {
                let function = module
                    .load_function(kernel.name)
                    .map_err(Error::call(format!("find the kernel {}", kernel.name)))?;
                // More than 48 KiB need this attribute.
                let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                function
                    .set_attribute(attribute, kernel.shared as i32)
                    .map_err(Error::call(format!("set the shared memory of {}", kernel.name)))?;
                functions.insert(kernel.name, function);
            }
        }
        Ok(Self { ordinal, context, functions })
    }

    /// Makes the device that of this thread's calls of the driver.
    pub(super) fn make_current(&self) -> Result<(), Error> {
        self.context.bind_to_thread().map_err(Error::call(format!("use device {}", self.ordinal)))
    }

    /// Returns the number by which no other GPU is known, on any machine.
    ///
    /// # Errors
    /// If the driver doesn't know it.
    pub fn uuid(&self) -> Result<[u8; 16], Error> {
        let uuid = self.context.uuid().map_err(Error::call("find the UUID of the device"))?;
        Ok(uuid.bytes.map(|byte| byte as u8))
    }
}

impl Launch for Kernels {
    fn device(&self) -> Device {
        Device::Cuda(self.ordinal)
    }

    unsafe fn launch(&self, kernel: Kernel, grid: [u32; 2], arguments: &[Argument]) -> Result<(), Error> {
        let failed = |reason: String| Error::Call { action: format!("launch {}", kernel.name), reason };
        let function = self.functions.get(kernel.name).ok_or_else(|| failed("it was not compiled".into()))?;
        self.context.bind_to_thread().map_err(|e| failed(e.to_string()))?;
        let mut arguments: Vec<*mut c_void> = arguments.iter().map(Argument::address).collect();
        let (grid, block) = ((grid[0], grid[1], 1), (kernel.threads, 1, 1));
        let stream = current_stream(self.ordinal)?.cast();
        // SAFETY: guaranteed by the caller; the stream is libtorch's on this device.
        unsafe {
            let function = function.cu_function();
            result::launch_kernel(function, grid, block, kernel.shared, stream, &mut arguments)
        }
        .map_err(|e| failed(e.to_string()))
    }
}
