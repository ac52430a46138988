//! Copies between a host and a device that don't wait for the device's earlier work.
//!
//! libtorch's own copies wait unless the host's memory is pinned. Here a step of generation gets its inputs, and gives its
//! tokens back, while the device works on another one.

use std::ffi::c_char;
use std::fmt;

use cudarc::driver::{result, sys};
use tch::{Device, TchError, Tensor};
use torch_sys::C_tensor;

use super::error::Error;
use super::graphs::{call, current_stream};

unsafe extern "C" {
    fn pl_pin_memory(
        tensor: *const C_tensor,
        pinned: *mut *mut C_tensor,
        reason: *mut c_char,
        size: usize,
    ) -> bool;
}

/// Copies a tensor of the CPU to a device, in the order of this thread's work there, without waiting for it.
///
/// # Errors
/// If memory runs out or the device fails.
pub fn upload(tensor: &Tensor, device: Device) -> Result<Tensor, TchError> {
    if !device.is_cuda() {
        return tensor.f_to_device(device);
    }
    let mut pinned = std::ptr::null_mut();
    // SAFETY: the tensor is alive, and it writes one pointer.
    call("pin memory", |reason, size| unsafe {
        pl_pin_memory(tensor.as_ptr(), &raw mut pinned, reason, size)
    })?;
    // SAFETY: a new tensor, which nothing else refers to.
    let pinned = unsafe { Tensor::from_ptr(pinned) };
    // The allocator of pinned memory does not reuse it before the copy has ended.
    pinned.f_internal_to_copy((tensor.kind(), device), true)
}

/// A tensor on its way to the CPU.
pub struct Download {
    tensor: Tensor,
    /// Happens when the copy has ended. `None` if there is nothing to wait for.
    copied: Option<Event>,
}

impl Download {
    /// Starts to copy a tensor, after this thread's earlier work on its device.
    ///
    /// # Errors
    /// If memory runs out or the device fails.
    pub fn start(tensor: &Tensor) -> Result<Self, TchError> {
        let ordinal = match tensor.device() {
            Device::Cuda(ordinal) => Some(ordinal),
            _ => None,
        };
        // libtorch takes pinned memory for a copy that doesn't wait.
        let copy = tensor.f_internal_to_copy((tensor.kind(), Device::Cpu), ordinal.is_some())?;
        Ok(Self { tensor: copy, copied: ordinal.map(Event::record).transpose()? })
    }

    /// Waits for the copy alone, not for later work on the device.
    ///
    /// # Errors
    /// If the device fails.
    pub fn wait(self) -> Result<Tensor, TchError> {
        if let Some(copied) = &self.copied {
            copied.wait()?;
        }
        Ok(self.tensor)
    }
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download").finish_non_exhaustive()
    }
}

/// A point in a stream's work.
struct Event(sys::CUevent);

impl Event {
    /// The end of this thread's work of libtorch on a device so far.
    fn record(ordinal: usize) -> Result<Self, Error> {
        let stream = current_stream(ordinal)?.cast();
        // The device is current on this thread, whose work libtorch has launched.
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
            .map_err(Error::call("create an event"))?;
        let event = Self(event);
        // SAFETY: a new event, and a stream of the same device.
        unsafe { result::event::record(event.0, stream) }.map_err(Error::call("record an event"))?;
        Ok(event)
    }

    fn wait(&self) -> Result<(), Error> {
        // SAFETY: the event exists until it is dropped.
        unsafe { result::event::synchronize(self.0) }.map_err(Error::call("wait for an event"))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once. An error would be one of earlier work, which the next operation reports.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_gpu_copies_are_those_of_libtorch() {
        let tensor = Tensor::from_slice(&[1.5, -2.0]);
        let there = upload(&tensor, Device::Cpu).unwrap();
        let back = Download::start(&there).unwrap().wait().unwrap();
        assert!(back.equal(&tensor));
        // Later changes don't reach the copy.
        let (mut there, started) = (there, Download::start(&tensor).unwrap());
        let _ = there.zero_();
        assert!(started.wait().unwrap().equal(&back));
        if !tch::Cuda::is_available() {
            assert!(upload(&tensor, Device::Cuda(0)).is_err());
        }
    }
}
