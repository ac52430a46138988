//! Compilation of kernels to machine code with NVRTC. It needs no GPU.

use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};

use cudarc::nvrtc::{result, sys};

use super::error::Error;
use super::library;

/// Source of kernels.
#[derive(Debug)]
pub struct KernelSource {
    /// Name in messages.
    pub name: &'static str,
    /// CUDA C++ without includes. `primitives.cu` and `numbers.cu` are put before it.
    pub text: &'static str,
}

impl KernelSource {
    /// Returns the complete text that is compiled.
    fn full_text(&self) -> String {
        [include_str!("primitives.cu"), include_str!("numbers.cu"), self.text].join("\n")
    }
}

/// The loaded NVRTC.
#[derive(Debug)]
pub struct Compiler {
    version: (i32, i32),
}

impl Compiler {
    /// Looks for NVRTC in `folders`, then in the system's library folders.
    ///
    /// # Errors
    /// [`Error::NoCompiler`] if it is not found, [`Error::Library`] if it can't be loaded.
    pub fn find(folders: &[PathBuf]) -> Result<Self, Error> {
        for folder in folders {
            let nvrtc = folder.join("libnvrtc.so.13");
            if !nvrtc.is_file() {
                continue;
            }
            // NVRTC loads these itself, but only from the system's library folders.
            for builtins in builtins(folder) {
                // SAFETY: a library of NVRTC by its name, whose loading has no side effects; the user chose the folder.
                unsafe { library::load(&builtins)? };
            }
            // SAFETY: as above.
            unsafe { library::load(&nvrtc)? };
            break;
        }
        // SAFETY: loads NVRTC, whose loading has no side effects; found by name if it is already loaded.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::NoCompiler { folders: folders.to_vec() });
        }
        let mut version = (0, 0);
        // SAFETY: writes two integers.
        unsafe { sys::nvrtcVersion(&raw mut version.0, &raw mut version.1) }
            .result()
            .map_err(Error::call("query the version of NVRTC"))?;
        Ok(Self { version })
    }

    /// Returns the machine code (a cubin) of a source for an architecture, as in `sm_90`. It comes from the
    /// folder `cache` if that is given and the same NVRTC compiled the source before.
    ///
    /// # Errors
    /// [`Error::Compile`] with NVRTC's log.
    pub fn compile(&self, source: &KernelSource, arch: &str, cache: Option<&Path>) -> Result<Vec<u8>, Error> {
        let text = source.full_text();
        let options = [format!("--gpu-architecture={arch}"), "--std=c++17".to_owned()];
        let file = cache.map(|folder| CacheFile::new(folder, &text, &options, self.version));
        if let Some(code) = file.as_ref().and_then(CacheFile::get) {
            return Ok(code);
        }
        let failed = |reason| Error::Compile { name: source.name, arch: arch.to_owned(), reason };
        let code = compile(&text, &options, failed)?;
        if let Some(file) = file {
            file.put(&code);
        }
        Ok(code)
    }
}

fn builtins(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path());
    files.filter(|path| path.to_string_lossy().contains("/libnvrtc-builtins.so")).collect()
}

/// A program of NVRTC that is destroyed when dropped.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: it was created and is destroyed once.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

/// Compiles a text. `failed` makes an error from a reason.
fn compile(text: &str, options: &[String], failed: impl Fn(String) -> Error) -> Result<Vec<u8>, Error> {
    let text = CString::new(text).map_err(|e| failed(e.to_string()))?;
    let program = Program(result::create_program(&text, None).map_err(|e| failed(e.to_string()))?);
    // SAFETY: the program was created and not destroyed.
    if let Err(error) = unsafe { result::compile_program(program.0, options) } {
        // SAFETY: as above.
        let log = unsafe { result::get_program_log(program.0) }.unwrap_or_default();
        let log: Vec<u8> = log.into_iter().map(|c| c as u8).collect();
        let log = CStr::from_bytes_until_nul(&log).map(CStr::to_string_lossy).unwrap_or_default();
        return Err(failed(format!("{error}\n{log}")));
    }
    let mut size = 0;
    // SAFETY: as above; it writes one number.
    unsafe { sys::nvrtcGetCUBINSize(program.0, &raw mut size) }
        .result()
        .map_err(|e| failed(e.to_string()))?;
    let mut code = vec![0u8; size];
    // SAFETY: `code` has the size that NVRTC returned.
    unsafe { sys::nvrtcGetCUBIN(program.0, code.as_mut_ptr().cast()) }
        .result()
        .map_err(|e| failed(e.to_string()))?;
    Ok(code)
}

/// A file of the cache: a BLAKE3 hash of the code, then the code. Its name is a hash of everything that the
/// code depends on. Write access to the folder allows running code on this user's device, so only the user
/// may have it.
struct CacheFile(PathBuf);

impl CacheFile {
    fn new(folder: &Path, text: &str, options: &[String], version: (i32, i32)) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(text.as_bytes());
        for option in options {
            hasher.update(&[0]).update(option.as_bytes());
        }
        let hash = &hasher.finalize().to_hex()[..32];
        Self(folder.join(format!("{hash}-{}.{}.cubin", version.0, version.1)))
    }

    /// Reads the code. Returns `None` if the file is missing or damaged.
    fn get(&self) -> Option<Vec<u8>> {
        let mut file = std::fs::read(&self.0).ok()?;
        let sum: [u8; 32] = file.get(..32)?.try_into().ok()?;
        file.drain(..32);
        (blake3::hash(&file) == sum).then_some(file)
    }

    /// Writes the code atomically. After a failure, for example on a full disk, the next start compiles
    /// again.
    fn put(&self, code: &[u8]) {
        let write = || -> std::io::Result<()> {
            if let Some(folder) = self.0.parent() {
                std::fs::create_dir_all(folder)?;
            }
            let partial = self.0.with_extension(format!("partial-{}", std::process::id()));
            std::fs::write(&partial, [blake3::hash(code).as_bytes(), code].concat())?;
            std::fs::rename(&partial, &self.0)
        };
        let _ = write();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::launch::KernelSettings;
    use crate::cuda::registry::SOURCES;

    /// Finds NVRTC as set-up installs it.
    fn compiler() -> Option<Compiler> {
        let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let cache = variable("PL_HOST_CACHE")
            .or_else(|| variable("XDG_CACHE_HOME").map(|p| p.join("pl-host")))
            .or_else(|| variable("HOME").map(|p| p.join(".cache/pl-host")))?;
        match Compiler::find(&KernelSettings::new(&cache).nvrtc) {
            Ok(compiler) => Some(compiler),
            Err(error @ Error::NoCompiler { .. }) => {
                pl_testing::skip_or_fail(pl_testing::Requirement::Cuda, &error.to_string());
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn every_kernel_compiles_without_a_gpu() {
        let Some(compiler) = compiler() else { return };
        for (source, kernels) in SOURCES {
            for arch in ["sm_80", "sm_90a"] {
                let code = compiler.compile(source, arch, None).unwrap();
                assert_eq!(&code[..4], b"\x7fELF", "{arch}: machine code");
                for kernel in kernels {
                    let section = format!(".text.{}\0", kernel.name);
                    let found = code.windows(section.len()).any(|bytes| bytes == section.as_bytes());
                    assert!(found, "{arch}: {} is missing", kernel.name);
                }
            }
        }
    }

    #[test]
    fn compiled_code_is_cached_and_damaged_files_are_compiled_again() {
        let Some(compiler) = compiler() else { return };
        let source =
            KernelSource { name: "one.cu", text: "extern \"C\" __global__ void one(int* to) { *to = 1; }" };
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("kernels");
        let compile = || compiler.compile(&source, "sm_80", Some(&cache)).unwrap();
        let code = compile();
        let file = std::fs::read_dir(&cache).unwrap().next().unwrap().unwrap().path();
        // Another program in the file, with a valid hash: it is returned, so nothing was compiled.
        std::fs::write(&file, [blake3::hash(b"other").as_bytes().as_slice(), b"other"].concat()).unwrap();
        assert_eq!(compile(), b"other");
        std::fs::write(&file, "damaged").unwrap();
        assert_eq!(compile(), code);
        assert_eq!(compile(), code);
        compiler.compile(&source, "sm_90", Some(&cache)).unwrap();
        assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 2, "one file per architecture");
    }

    #[test]
    fn a_wrong_source_is_an_error_with_the_log() {
        let Some(compiler) = compiler() else { return };
        let source = KernelSource { name: "wrong.cu", text: "__global__ void wrong() { nothing(); }" };
        let message = compiler.compile(&source, "sm_80", None).unwrap_err().to_string();
        assert!(message.starts_with("NVRTC can't compile wrong.cu for sm_80: "), "{message}");
        assert!(message.contains("nothing"), "{message}");
    }
}
