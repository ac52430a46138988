//! CUDA graphs: libtorch's work on a device, and that of the kernels here, is recorded once and launched again as a whole.
//!
//! A launch of a graph costs about as much as that of one kernel, while a step of generation has thousands of small ones. A
//! graph reads and writes the memory that its recording did: inputs are written to the same tensors before each launch, and
//! outputs are read from those that the recorded work returned. Tensors that come and go within the work are in a pool of
//! libtorch's allocator that all graphs share, because only one runs at a time.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::rc::{Rc, Weak};

use tch::TchError;

use super::error::Error;

unsafe extern "C" {
    fn pl_current_stream(device: c_int, stream: *mut *mut c_void, reason: *mut c_char, size: usize) -> bool;
    fn pl_graph_stream(device: c_int, id: *mut i64, reason: *mut c_char, size: usize) -> bool;
    fn pl_exchange_stream(
        device: c_int,
        id: i64,
        earlier: *mut i64,
        reason: *mut c_char,
        size: usize,
    ) -> bool;
    fn pl_wait_for_stream(device: c_int, id: i64, reason: *mut c_char, size: usize) -> bool;
    fn pl_graph_pool(first: *mut u64, second: *mut u64, reason: *mut c_char, size: usize) -> bool;
    fn pl_graph_begin(
        device: c_int,
        first: u64,
        second: u64,
        graph: *mut *mut c_void,
        reason: *mut c_char,
        size: usize,
    ) -> bool;
    fn pl_graph_end(graph: *mut c_void, reason: *mut c_char, size: usize) -> bool;
    fn pl_graph_replay(graph: *mut c_void, reason: *mut c_char, size: usize) -> bool;
    fn pl_graph_free(graph: *mut c_void);
}

/// Calls a function of the shim with a buffer for the reason of its failure.
pub(super) fn call(action: &str, function: impl FnOnce(*mut c_char, usize) -> bool) -> Result<(), Error> {
    let mut reason = [0; 1024];
    if function(reason.as_mut_ptr(), reason.len()) {
        return Ok(());
    }
    // SAFETY: the shim writes a C string within the size of the buffer.
    let reason = unsafe { CStr::from_ptr(reason.as_ptr()) }.to_string_lossy();
    // libtorch adds its stack of C++ calls.
    let reason = reason.lines().next().unwrap_or_default().to_owned();
    Err(Error::Call { action: action.to_owned(), reason })
}

/// Returns the driver's handle of the stream that this thread's work of libtorch goes to.
pub(super) fn current_stream(ordinal: usize) -> Result<*mut c_void, Error> {
    let mut stream = std::ptr::null_mut();
    // SAFETY: it writes one pointer.
    call("find libtorch's stream", |reason, size| unsafe {
        pl_current_stream(ordinal as c_int, &raw mut stream, reason, size)
    })?;
    Ok(stream)
}

/// The graphs of one thread on one device.
#[derive(Debug)]
pub struct Graphs {
    ordinal: usize,
    /// Stream to record on, because the default stream can't be captured.
    stream: i64,
    /// Memory of the graphs that exist.
    pool: RefCell<Weak<[u64; 2]>>,
}

impl Graphs {
    /// Prepares graphs on a device of libtorch.
    ///
    /// # Errors
    /// If libtorch's CUDA half is not loaded, or is of a version whose graphs have another interface.
    pub fn new(ordinal: usize) -> Result<Self, Error> {
        let mut stream = 0;
        // SAFETY: it writes one number.
        call("take a stream for graphs", |reason, size| unsafe {
            pl_graph_stream(ordinal as c_int, &raw mut stream, reason, size)
        })?;
        Ok(Self { ordinal, stream, pool: RefCell::default() })
    }

    /// Runs work twice, the second time without executing it, to record it. Returns the graph with the result of the second
    /// run, whose tensors have values after a replay.
    ///
    /// The first run is for libraries that initialise themselves and take memory with their first call. The work must not wait
    /// for the device or copy to the host, and does the same each time.
    ///
    /// # Errors
    /// Those of the work; [`Error::Call`] if it can't be recorded. Nothing should be recorded after that: libtorch's allocator
    /// goes on as if a recording were in progress.
    pub fn record<T>(&self, mut work: impl FnMut() -> Result<T, TchError>) -> Result<(Graph, T), Error> {
        let pool = self.pool()?;
        let _stream = CurrentStream::exchange(self.ordinal, self.stream)?;
        drop(work()?);
        wait(self.ordinal, self.stream)?;
        let recording = Recording::begin(self.ordinal, *pool)?;
        let result = work()?;
        Ok((recording.end(pool)?, result))
    }

    /// Returns the pool of the graphs that exist, or a new one: libtorch gives a pool up with its last graph.
    fn pool(&self) -> Result<Rc<[u64; 2]>, Error> {
        if let Some(pool) = self.pool.borrow().upgrade() {
            return Ok(pool);
        }
        let [mut first, mut second] = [0, 0];
        // SAFETY: it writes two numbers.
        call("make a pool of memory for graphs", |reason, size| unsafe {
            pl_graph_pool(&raw mut first, &raw mut second, reason, size)
        })?;
        let pool = Rc::new([first, second]);
        *self.pool.borrow_mut() = Rc::downgrade(&pool);
        Ok(pool)
    }
}

/// The current stream of this thread until it is dropped.
struct CurrentStream {
    ordinal: usize,
    stream: i64,
    earlier: i64,
}

impl CurrentStream {
    /// Makes another stream current and waits for the one before.
    fn exchange(ordinal: usize, stream: i64) -> Result<Self, Error> {
        let own = Self { ordinal, stream, earlier: exchange(ordinal, stream)? };
        wait(ordinal, own.earlier)?;
        Ok(own)
    }
}

impl Drop for CurrentStream {
    fn drop(&mut self) {
        // Both fail only if the device has failed, which the next operation on it reports.
        let _ = exchange(self.ordinal, self.earlier);
        let _ = wait(self.ordinal, self.stream);
    }
}

/// Makes another stream current. Returns the one before.
fn exchange(ordinal: usize, stream: i64) -> Result<i64, Error> {
    let mut earlier = 0;
    // SAFETY: the stream is one of libtorch's on this device; it writes one number.
    call("change libtorch's stream", |reason, size| unsafe {
        pl_exchange_stream(ordinal as c_int, stream, &raw mut earlier, reason, size)
    })?;
    Ok(earlier)
}

/// Waits for the work of a stream.
fn wait(ordinal: usize, stream: i64) -> Result<(), Error> {
    // SAFETY: the stream is one of libtorch's on this device.
    call("wait for libtorch's stream", |reason, size| unsafe {
        pl_wait_for_stream(ordinal as c_int, stream, reason, size)
    })
}

/// A recording in progress. It ends when it is dropped, also by a panic of the work.
struct Recording(*mut c_void);

impl Recording {
    fn begin(ordinal: usize, [first, second]: [u64; 2]) -> Result<Self, Error> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: it writes one pointer.
        call("record a graph", |reason, size| unsafe {
            pl_graph_begin(ordinal as c_int, first, second, &raw mut graph, reason, size)
        })?;
        Ok(Self(graph))
    }

    fn end(self, pool: Rc<[u64; 2]>) -> Result<Graph, Error> {
        let graph = self.0;
        // Ended once.
        std::mem::forget(self);
        // SAFETY: the recording is in progress on this thread.
        call("end the recording of a graph", |reason, size| unsafe { pl_graph_end(graph, reason, size) })?;
        Ok(Graph { graph, _pool: pool })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // SAFETY: as in `end`. The graph is never freed.
        let _ = call("end the recording of a graph", |reason, size| unsafe {
            pl_graph_end(self.0, reason, size)
        });
    }
}

/// Recorded work.
#[derive(Debug)]
pub struct Graph {
    graph: *mut c_void,
    /// Its memory is that of all graphs of the pool.
    _pool: Rc<[u64; 2]>,
}

impl Graph {
    /// Launches the work after all earlier work of this thread.
    ///
    /// # Errors
    /// If the device fails.
    ///
    /// # Safety
    /// All tensors that the work read or wrote, and did not allocate itself, exist and are where they were.
    pub unsafe fn replay(&self) -> Result<(), Error> {
        // SAFETY: the graph was recorded without a failure; the caller guarantees its memory.
        call("launch a graph", |reason, size| unsafe { pl_graph_replay(self.graph, reason, size) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: it is freed once; the driver frees it after its last launch has ended.
        unsafe { pl_graph_free(self.graph) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_cuda_there_are_no_graphs_and_no_streams() {
        if tch::Cuda::is_available() {
            return;
        }
        let message = Graphs::new(0).unwrap_err().to_string();
        assert!(
            message.starts_with("CUDA could not take a stream for graphs: libtorch_cuda.so has no"),
            "{message}"
        );
        let message = current_stream(0).unwrap_err().to_string();
        assert!(message.contains("find libtorch's stream"), "{message}");
    }
}
