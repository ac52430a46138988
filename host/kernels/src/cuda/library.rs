//! Shared libraries that are loaded while the program runs.

use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Error;

/// Loads a library for good, with everything it needs, for all that are loaded later.
///
/// # Errors
/// [`Error::Library`] with what the loader said.
pub fn load(path: &Path) -> Result<(), Error> {
    let refuse = |reason: String| Error::Library { path: path.to_owned(), reason };
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| refuse(e.to_string()))?;
    // SAFETY: `name` is a C string. What a library does when it is loaded is for its caller to know.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if !handle.is_null() {
        return Ok(());
    }
    // SAFETY: after a failure it is null or a C string, valid until this thread's next call of the loader.
    let reason = unsafe {
        let said = libc::dlerror();
        if said.is_null() { String::new() } else { CStr::from_ptr(said).to_string_lossy().into_owned() }
    };
    Err(refuse(reason))
}

/// Where a library lies that this process has loaded; none where it has not.
pub fn loaded(file_name: &str) -> Option<PathBuf> {
    struct Search<'a> {
        file_name: &'a str,
        found: Option<PathBuf>,
    }
    extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
        // SAFETY: the loader gives a valid `info`, and `search` is what was handed to it below.
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
    // SAFETY: `visit` has the signature that is asked for, and `search` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_loaded_is_found_and_what_is_not_is_not() {
        // The tests of this crate are linked to libtorch.
        let _ = tch::Tensor::zeros([1], (tch::Kind::Float, tch::Device::Cpu));
        let path = loaded("libtorch_cpu.so").unwrap();
        assert!(path.is_file(), "{}", path.display());
        assert_eq!(loaded("libtorch_none.so"), None);
    }

    #[test]
    fn a_library_that_is_none_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libnothing.so");
        std::fs::write(&path, "not a library").unwrap();
        for path in [path, folder.path().join("libmissing.so")] {
            let said = load(&path).unwrap_err().to_string();
            assert!(said.starts_with(&format!("{} can't be loaded: ", path.display())), "{said}");
        }
    }
}
