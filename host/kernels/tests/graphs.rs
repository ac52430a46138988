//! The calls by which work is recorded as a graph, with a simulation of libtorch's CUDA half (`graphs/simulated.cpp`).
//!
//! The simulation registers itself as the CUDA device of this process: no other tests are here.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test crate: a panic is how a test fails")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;

use pl_kernels::cuda::Graphs;
use tch::{Device, Kind, TchError, Tensor};

/// The functions of the simulation.
struct Simulation {
    fail_in: unsafe extern "C" fn(*const c_char),
    take_calls: unsafe extern "C" fn() -> *const c_char,
    current_stream: unsafe extern "C" fn() -> i64,
}

impl Simulation {
    /// Compiles and loads it, where symbols of libraries that are loaded later are looked for.
    fn load(folder: &Path) -> Self {
        let library = folder.join("libsimulated.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/graphs/simulated.cpp");
        let headers = Path::new(env!("PL_LIBTORCH_LIB")).with_file_name("include");
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
        let output = Command::new(&compiler)
            .args(["-std=c++17", "-shared", "-fPIC", "-D_GLIBCXX_USE_CXX11_ABI=1", "-isystem"])
            .arg(headers)
            .arg(source)
            .arg("-o")
            .arg(&library)
            .output()
            .unwrap();
        assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
        let path = CString::new(library.to_str().unwrap()).unwrap();
        // SAFETY: our own library, whose loading registers a device.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        // SAFETY: after a failure it is a C string.
        assert!(!handle.is_null(), "{:?}", unsafe { CStr::from_ptr(libc::dlerror()) });
        let symbol = |name: &CStr| {
            // SAFETY: the handle is open, and the name a C string.
            let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
            assert!(!symbol.is_null(), "{name:?}");
            symbol
        };
        // SAFETY: the functions have these signatures.
        unsafe {
            Self {
                fail_in: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char)>(symbol(
                    c"fail_in",
                )),
                take_calls: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_char>(
                    symbol(c"take_calls"),
                ),
                current_stream: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> i64>(symbol(
                    c"current_stream",
                )),
            }
        }
    }

    fn fail_in(&self, name: &CStr) {
        // SAFETY: it copies a C string.
        unsafe { (self.fail_in)(name.as_ptr()) };
    }

    /// Returns the calls since the last time.
    fn calls(&self) -> Vec<String> {
        // SAFETY: it returns a C string, valid until the next call.
        let calls = unsafe { CStr::from_ptr((self.take_calls)()) };
        calls.to_str().unwrap().lines().map(str::to_owned).collect()
    }

    fn stream(&self) -> i64 {
        // SAFETY: it reads a number.
        unsafe { (self.current_stream)() }
    }
}

#[test]
fn graphs_are_recorded_on_a_stream_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let simulation = Simulation::load(folder.path());
    let graphs = Graphs::new(0).unwrap();
    let mut runs = 0;
    let work = || {
        assert_eq!(simulation.stream(), 7);
        runs += 1;
        Tensor::f_full([1], runs, (Kind::Int64, Device::Cpu))
    };
    let (graph, result) = graphs.record(work).unwrap();
    assert_eq!(result.int64_value(&[0]), 2, "the result is that of the recorded run");
    let recording = |pool: u32| {
        vec![
            "stream 7".to_owned(),
            "wait for 0".to_owned(),
            "wait for 7".to_owned(),
            format!("begin in pool 0 {pool}, mode 1 on stream 7"),
            "end on stream 7".to_owned(),
            "stream 0".to_owned(),
            "wait for 7".to_owned(),
        ]
    };
    assert_eq!(simulation.calls(), recording(1));
    // SAFETY: the simulation reads no memory.
    unsafe { graph.replay() }.unwrap();
    assert_eq!(simulation.calls(), ["replay on stream 0"]);

    // Graphs share a pool as long as one of them exists.
    let nothing = || Ok::<(), TchError>(());
    let (second, ()) = graphs.record(nothing).unwrap();
    assert_eq!(simulation.calls(), recording(1));
    drop(graph);
    let (third, ()) = graphs.record(nothing).unwrap();
    assert_eq!(simulation.calls()[0], "free graph of pool 1");
    drop((second, third));
    let (fourth, ()) = graphs.record(nothing).unwrap();
    assert_eq!(simulation.calls()[2..], recording(2));

    // After failures the thread has its stream again, and the allocator's references to the graph stay valid.
    simulation.fail_in(c"end");
    let message = graphs.record(nothing).unwrap_err().to_string();
    assert_eq!(message, "CUDA could not end the recording of a graph: end fails");
    assert_eq!(simulation.stream(), 0);
    simulation.fail_in(c"begin");
    let message = graphs.record(nothing).unwrap_err().to_string();
    assert_eq!(message, "CUDA could not record a graph: begin fails");
    assert_eq!(simulation.stream(), 0);
    simulation.fail_in(c"wait for ");
    assert!(graphs.record(nothing).is_err());
    assert_eq!(simulation.stream(), 0);
    simulation.fail_in(c"");
    simulation.calls();
    let mut runs = 0;
    let second_run_fails = || {
        runs += 1;
        if runs == 1 { Ok(()) } else { Err(TchError::Torch("out of memory".to_owned())) }
    };
    assert!(graphs.record(second_run_fails).is_err());
    let calls = simulation.calls();
    assert!(calls.contains(&"end on stream 7".to_owned()), "{calls:?}");
    assert!(!calls.iter().any(|call| call.starts_with("free")), "{calls:?}");
    assert_eq!(simulation.stream(), 0);
    let mut runs = 0;
    let second_run_panics = || {
        runs += 1;
        assert!(runs < 2);
        Ok::<(), TchError>(())
    };
    assert!(catch_unwind(AssertUnwindSafe(|| graphs.record(second_run_panics))).is_err());
    assert!(simulation.calls().contains(&"end on stream 7".to_owned()));
    assert_eq!(simulation.stream(), 0);
    simulation.fail_in(c"replay");
    // SAFETY: as above.
    let message = unsafe { fourth.replay() }.unwrap_err().to_string();
    assert_eq!(message, "CUDA could not launch a graph: replay fails");
}
