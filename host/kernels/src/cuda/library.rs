//! Shared libraries that are loaded at run time, libtorch's CUDA libraries among them.

use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::error::Error;

/// Environment variable with the folder of `libtorch_cuda.so`, if it is not with the loaded libtorch.
pub const LIBTORCH_CUDA_VARIABLE: &str = "PL_HOST_LIBTORCH_CUDA";

/// Loads a library and its dependencies until the process ends, and makes its symbols available to libraries
/// that are loaded later.
///
/// # Errors
/// [`Error::Library`] with the loader's message.
///
/// # Safety
/// The library's initialisation is sound, which runs when it is loaded.
pub unsafe fn load(path: &Path) -> Result<(), Error> {
    let failed = |reason: String| Error::Library { path: path.to_owned(), reason };
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| failed(e.to_string()))?;
    // SAFETY: `name` is a C string; the caller guarantees the rest.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if !handle.is_null() {
        return Ok(());
    }
    // SAFETY: after a failure it is null or a C string, valid until this thread's next call of the loader.
    let reason = unsafe {
        let message = libc::dlerror();
        if message.is_null() { String::new() } else { CStr::from_ptr(message).to_string_lossy().into_owned() }
    };
    Err(failed(reason))
}

/// Returns a function of the libraries that were loaded by [`load`], with their dependencies. Returns `None` if none has it.
///
/// # Safety
/// `T` is the type of a pointer to that function.
pub(super) unsafe fn symbol<T: Copy>(name: &CStr) -> Option<T> {
    const { assert!(size_of::<T>() == size_of::<*mut c_void>()) };
    // SAFETY: `name` is a C string.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: both are pointers; the caller guarantees the type.
    (!address.is_null()).then(|| unsafe { std::mem::transmute_copy(&address) })
}

/// Returns the path of a library that this process has loaded. Returns `None` if it has not.
pub fn loaded(file_name: &str) -> Option<PathBuf> {
    struct Search<'a> {
        file_name: &'a str,
        found: Option<PathBuf>,
    }
    extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
        // SAFETY: the loader gives a valid `info`, and `search` is the argument given below.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<'_>>()) };
        if info.dlpi_name.is_null() {
            return 0;
        }
        // SAFETY: the loader's name of a library is a C string.
        let name = unsafe { CStr::from_ptr(info.dlpi_name) };
        let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
        if path.file_name().is_some_and(|name| name == search.file_name) {
            search.found = Some(path.to_owned());
            return 1;
        }
        0
    }
    let mut search = Search { file_name, found: None };
    // SAFETY: `visit` has the required signature, and `search` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

/// Finds `libtorch_cuda.so` in the folder that [`LIBTORCH_CUDA_VARIABLE`] names, or with the loaded libtorch
/// if the variable is not set.
pub fn find_libtorch_cuda() -> Option<PathBuf> {
    let named = std::env::var_os(LIBTORCH_CUDA_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    find(named, loaded("libtorch_cpu.so"))
}

/// Finds `libtorch_cuda.so` in the named folder, or with the loaded libtorch if none is named.
fn find(named: Option<PathBuf>, libtorch: Option<PathBuf>) -> Option<PathBuf> {
    let folders = match named {
        Some(folder) => vec![folder],
        None => {
            let own_folder = libtorch?.canonicalize().ok()?.parent()?.to_owned();
            // Set-up keeps the CUDA libraries in a folder of their own, because the folder of libtorch_cpu is
            // linked.
            vec![own_folder.parent()?.join("cuda"), own_folder]
        }
    };
    let found = folders.iter().map(|folder| folder.join("libtorch_cuda.so")).find(|path| path.is_file())?;
    // The library finds its dependencies relative to its real path.
    found.canonicalize().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loaded_libraries_are_found() {
        // The tests of this crate are linked to libtorch.
        let _ = tch::Tensor::zeros([1], (tch::Kind::Float, tch::Device::Cpu));
        let path = loaded("libtorch_cpu.so").unwrap();
        assert!(path.is_file(), "{}", path.display());
        assert_eq!(loaded("libtorch_none.so"), None);
    }

    #[test]
    fn an_invalid_library_is_an_error_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libnothing.so");
        std::fs::write(&path, "not a library").unwrap();
        for path in [path, folder.path().join("libmissing.so")] {
            // SAFETY: neither is a library.
            let message = unsafe { load(&path) }.unwrap_err().to_string();
            assert!(message.starts_with(&format!("{} can't be loaded: ", path.display())), "{message}");
        }
    }

    #[test]
    fn cuda_libraries_are_found_in_the_named_folder_or_with_the_loaded_libtorch() {
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
        let with_cpu = file("torch/lib/libtorch_cuda.so");
        assert_eq!(find(None, Some(cpu.clone())), Some(with_cpu));
        let own_folder = file("torch/cuda/libtorch_cuda.so");
        assert_eq!(find(None, Some(cpu.clone())), Some(own_folder));
        assert_eq!(find(Some(root.join("elsewhere")), Some(cpu.clone())), Some(named));
        // A wrong name does not fall back to other folders.
        assert_eq!(find(Some(root.join("nowhere")), Some(cpu)), None);
    }
}
