//! Sums over GPUs of several processes by NCCL, the library that comes with libtorch's for CUDA.
//!
//! Its functions are looked up among the symbols of the libraries that [`super::load`] has loaded, because cudarc looks for a
//! file `libnccl.so`, and libtorch brings `libnccl.so.2` in a folder of its own. NCCL's own reductions add in an order that
//! depends on the machine, so numbers are only sent by it, and added here in the order of ranks.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use tch::{Device, Kind, TchError, Tensor};

use super::error::Error;
use super::graphs::current_stream;
use super::launch::Kernels;
use super::library::symbol;
use super::registry::opened;

/// Size of an identifier in bytes (`NCCL_UNIQUE_ID_BYTES`).
pub const ID_BYTES: usize = 128;

/// Code of f32 (`ncclFloat32`).
const FLOAT: c_int = 7;

/// Identifier of a communicator, which one rank makes and all others need (`ncclUniqueId`).
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([c_char; ID_BYTES]);

/// `ncclComm_t`
type Handle = *mut c_void;

type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;
type Transfer = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, Handle, *mut c_void) -> c_int;

/// Functions of NCCL, as its header `nccl.h` (2.7 and later) declares them.
struct Functions {
    unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    init_rank: unsafe extern "C" fn(*mut Handle, c_int, UniqueId, c_int) -> c_int,
    abort: unsafe extern "C" fn(Handle) -> c_int,
    group_start: unsafe extern "C" fn() -> c_int,
    group_end: unsafe extern "C" fn() -> c_int,
    /// Reads its first argument.
    send: Transfer,
    receive: Transfer,
    error_string: ErrorString,
}

impl Functions {
    /// Looks the functions up. Returns `None` if NCCL is not loaded.
    fn find() -> Option<Functions> {
        // SAFETY: the types are those of NCCL's header.
        unsafe {
            Some(Functions {
                unique_id: symbol(c"ncclGetUniqueId")?,
                init_rank: symbol(c"ncclCommInitRank")?,
                abort: symbol(c"ncclCommAbort")?,
                group_start: symbol(c"ncclGroupStart")?,
                group_end: symbol(c"ncclGroupEnd")?,
                send: symbol(c"ncclSend")?,
                receive: symbol(c"ncclRecv")?,
                error_string: symbol(c"ncclGetErrorString")?,
            })
        }
    }

    fn check(&self, action: &str, result: c_int) -> Result<(), Error> {
        if result == 0 {
            return Ok(());
        }
        // SAFETY: the function returns a constant for every number.
        let reason = unsafe { CStr::from_ptr((self.error_string)(result)) }.to_string_lossy().into_owned();
        Err(Error::Call { action: format!("{action} by NCCL"), reason })
    }
}

fn functions() -> Result<Functions, Error> {
    let missing = || Error::Call { action: "find NCCL".into(), reason: "it is not loaded".into() };
    Functions::find().ok_or_else(missing)
}

/// Returns true if NCCL is loaded. It comes with libtorch's CUDA libraries.
pub fn is_loaded() -> bool {
    Functions::find().is_some()
}

/// Returns a new identifier of a communicator.
///
/// # Errors
/// If NCCL is not loaded, or finds no network.
pub fn unique_id() -> Result<[u8; ID_BYTES], Error> {
    let functions = functions()?;
    let mut id = UniqueId([0; ID_BYTES]);
    // SAFETY: it writes one identifier.
    functions.check("make an identifier", unsafe { (functions.unique_id)(&raw mut id) })?;
    Ok(id.0.map(|byte| byte as u8))
}

/// Connection of this process's GPU with those of other ranks.
pub struct Communicator {
    functions: Functions,
    handle: Handle,
    kernels: Arc<Kernels>,
    ordinal: usize,
    rank: usize,
    ranks: usize,
}

// SAFETY: NCCL's communicators may be used by any thread, one at a time, and `sum` is called by the thread of one learner.
unsafe impl Send for Communicator {}
// SAFETY: as above.
unsafe impl Sync for Communicator {}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator(rank {} of {} on cuda:{})", self.rank, self.ranks, self.ordinal)
    }
}

impl Communicator {
    /// Joins the communicator of an identifier as a rank, with a GPU that no other rank has. Waits for all ranks.
    ///
    /// # Errors
    /// If NCCL is not loaded, the GPU has no open kernels, or the ranks can't reach each other.
    pub fn join(device: Device, id: &[u8; ID_BYTES], rank: usize, ranks: usize) -> Result<Self, Error> {
        let functions = functions()?;
        let not_open =
            || Error::Call { action: "use NCCL".into(), reason: format!("{device:?} is not open") };
        let (Device::Cuda(ordinal), Some(kernels)) = (device, opened(device)) else { return Err(not_open()) };
        kernels.make_current()?;
        let mut handle = std::ptr::null_mut();
        let id = UniqueId(id.map(|byte| byte as c_char));
        // SAFETY: the device's context is current; it writes one handle.
        let result = unsafe { (functions.init_rank)(&raw mut handle, ranks as c_int, id, rank as c_int) };
        functions.check("join the other ranks", result)?;
        Ok(Self { functions, handle, kernels, ordinal, rank, ranks })
    }

    /// Replaces numbers `[n]` (f32, contiguous, on the GPU) by their sums over all ranks, added in the order of ranks. Each rank
    /// sums a part and sends it to the others.
    ///
    /// # Errors
    /// [`Error::Tensor`] if they are no such tensor; if a rank is away.
    pub fn sum(&self, numbers: &mut Tensor) -> Result<(), Error> {
        self.check_numbers(numbers)?;
        let torch = |error: TchError| Error::Call { action: "sum".into(), reason: error.to_string() };
        let count = numbers.numel();
        let part = |rank: usize| count * rank / self.ranks..count * (rank + 1) / self.ranks;
        let own = part(self.rank);
        let of = |tensor: &Tensor, range: &Range<usize>| {
            tensor.f_narrow(0, range.start as i64, range.len() as i64).map_err(torch)
        };
        let options = (Kind::Float, numbers.device());
        let received = Tensor::f_empty([self.ranks as i64, own.len() as i64], options).map_err(torch)?;
        let row = |rank: usize| received.f_select(0, rank as i64).map_err(torch);
        row(self.rank)?.f_copy_(&of(numbers, &own)?).map_err(torch)?;
        self.exchange(|peer| Ok((of(numbers, &part(peer))?, row(peer)?)))?;
        let mut sum = row(0)?;
        for rank in 1..self.ranks {
            let _ = sum.f_add_(&row(rank)?).map_err(torch)?;
        }
        of(numbers, &own)?.f_copy_(&sum).map_err(torch)?;
        self.exchange(|peer| Ok((of(numbers, &own)?, of(numbers, &part(peer))?)))
    }

    fn check_numbers(&self, numbers: &Tensor) -> Result<(), Error> {
        let is_fit = numbers.device() == Device::Cuda(self.ordinal)
            && numbers.kind() == Kind::Float
            && numbers.dim() == 1
            && numbers.is_contiguous();
        if is_fit {
            return Ok(());
        }
        let expected = format!("[n], f32, contiguous, on cuda:{}", self.ordinal);
        Err(Error::tensor("the sum over ranks", "numbers", &expected, numbers))
    }

    /// Sends each other rank a tensor and receives one from it, all at once, on this thread's stream of libtorch.
    fn exchange(&self, tensors: impl Fn(usize) -> Result<(Tensor, Tensor), Error>) -> Result<(), Error> {
        let Self { functions, handle, .. } = self;
        self.kernels.make_current()?;
        let stream = current_stream(self.ordinal)?;
        // SAFETY: no arguments; `group_end` follows.
        functions.check("begin an exchange", unsafe { (functions.group_start)() })?;
        let peers = (0..self.ranks).filter(|peer| *peer != self.rank);
        let exchanged = peers.into_iter().try_for_each(|peer| {
            let (sent, received) = tensors(peer)?;
            let peer = peer as c_int;
            let pointers = (sent.data_ptr(), received.data_ptr());
            // SAFETY: both are f32 on the device and contiguous, since their owner is; libtorch frees tensors in the stream's order.
            let (sending, receiving) = unsafe {
                (
                    (functions.send)(pointers.0, sent.numel(), FLOAT, peer, *handle, stream),
                    (functions.receive)(pointers.1, received.numel(), FLOAT, peer, *handle, stream),
                )
            };
            functions.check("send", sending).and_then(|()| functions.check("receive", receiving))
        });
        // SAFETY: `group_start` came before. It has to end in any case.
        let ended = functions.check("exchange", unsafe { (functions.group_end)() });
        exchanged.and(ended)
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // Others may be away, for which a clean end would wait.
        // SAFETY: the handle is not used afterwards.
        unsafe { (self.functions.abort)(self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_nccl_the_message_says_so() {
        if is_loaded() {
            return;
        }
        let message = unique_id().unwrap_err().to_string();
        assert_eq!(message, "CUDA could not find NCCL: it is not loaded");
        let message = Communicator::join(Device::Cpu, &[0; ID_BYTES], 0, 2).unwrap_err().to_string();
        assert!(message.contains("not loaded"), "{message}");
    }

    /// With NCCL of a Python package: `PL_HOST_NCCL=…/libnccl.so.2`. It needs no GPU for this.
    #[test]
    fn identifiers_of_a_loaded_nccl_differ() {
        let Some(path) = std::env::var_os("PL_HOST_NCCL") else { return };
        // SAFETY: NCCL's own library, whose loading has no side effects.
        unsafe { super::super::load(path.as_ref()).unwrap() };
        assert!(is_loaded());
        let (one, other) = (unique_id().unwrap(), unique_id().unwrap());
        assert_ne!(one, other);
    }
}
