//! Recording of work on a device.

use std::rc::Rc;

use pl_kernels::cuda::{Graph, Graphs};
use tch::{Device, Kind, TchError, Tensor};

use super::single_rows::SingleRowAttention;

/// Work that reads and writes the same tensors each time, and returns one.
pub(super) type RepeatedWork = Rc<dyn Fn() -> Result<Tensor, TchError>>;

/// A recorder of work.
pub(super) trait GraphRecorder {
    /// Returns true if it records steps of models with a number format and a width of heads.
    fn supports(&self, device: Device, kind: Kind, head_dim: i64) -> bool;

    /// Records work.
    ///
    /// # Errors
    /// Those of the work, or if the device can't record it. Nothing may be recorded after that.
    fn record(&self, work: RepeatedWork) -> Result<Box<dyn RecordedWork>, TchError>;
}

/// Work that was recorded.
pub(super) trait RecordedWork {
    /// Repeats the work with the present values of its tensors. Returns its result, whose values stay until the next replay of
    /// any recorded work.
    ///
    /// # Safety
    /// The tensors that the work reads, and does not own, exist and are where they were.
    unsafe fn replay(&self) -> Result<&Tensor, TchError>;
}

impl GraphRecorder for Graphs {
    fn supports(&self, device: Device, kind: Kind, head_dim: i64) -> bool {
        // Without the kernels, all sequences would be gathered up to the length of the recording.
        SingleRowAttention::is_paged(device, kind, head_dim)
    }

    fn record(&self, work: RepeatedWork) -> Result<Box<dyn RecordedWork>, TchError> {
        let (graph, output) = Graphs::record(self, &*work)?;
        Ok(Box::new(CudaWork { graph, output, _work: work }))
    }
}

/// Work as a CUDA graph.
struct CudaWork {
    graph: Graph,
    output: Tensor,
    /// Owns the tensors of the graph.
    _work: RepeatedWork,
}

impl RecordedWork for CudaWork {
    unsafe fn replay(&self) -> Result<&Tensor, TchError> {
        // SAFETY: the work is kept and owns what it reads, except tensors that the caller guarantees.
        unsafe { self.graph.replay() }?;
        Ok(&self.output)
    }
}
