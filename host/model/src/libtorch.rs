//! Settings of libtorch as a whole, and its errors.

use std::sync::Once;

use tch::{Device, Kind, TchError, Tensor};

unsafe extern "C" {
    fn pl_deterministic(on: bool);
    fn pl_is_deterministic() -> bool;
}

/// Makes libtorch choose deterministic algorithms where an operation has one, on all threads: on GPUs, sums over indices
/// otherwise add in the order in which threads come. cuBLAS also needs `CUBLAS_WORKSPACE_CONFIG`, which it reads before its
/// first product.
pub fn use_deterministic_algorithms(on: bool) {
    // SAFETY: it sets two flags of libtorch's global state.
    unsafe { pl_deterministic(on) };
}

/// Returns true if libtorch chooses deterministic algorithms.
pub fn uses_deterministic_algorithms() -> bool {
    // SAFETY: it reads a flag of libtorch's global state.
    unsafe { pl_is_deterministic() }
}

/// Makes the process keep up to 1 GiB of freed memory for new tensors, instead of returning it to the system after each pass
/// and taking it again page by page: an update spends a twentieth of its time on that. Without effect where the C library is
/// not glibc. To be called before there are other threads.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: glibc's function, with its own constants.
    unsafe {
        // Freed memory at the end of the heap, and the size from which on memory is taken and returned by itself. Both would
        // otherwise follow from the largest tensor so far.
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 30);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
    }
}

/// Computes each function of MKL's vector mathematics once, on one thread. MKL 2024.2 chooses their kernels at the first
/// call; threads that make it at the same time may get a less exact kernel for it (pytorch issue 188792), and an update
/// would then differ in its last bits from that of another process. To be called before the first pass.
pub fn choose_vector_kernels() {
    type Function = fn(&Tensor) -> Result<Tensor, TchError>;
    static CHOSEN: Once = Once::new();
    CHOSEN.call_once(|| {
        for kind in [Kind::Float, Kind::Double] {
            // An operation that fails here fails again, with its message, where its result is needed.
            let Ok(one) = Tensor::f_ones([1], (kind, Device::Cpu)) else { continue };
            let functions: [Function; 10] = [
                Tensor::f_exp,
                Tensor::f_expm1,
                Tensor::f_log,
                Tensor::f_log1p,
                Tensor::f_sqrt,
                Tensor::f_sin,
                Tensor::f_cos,
                Tensor::f_tan,
                Tensor::f_tanh,
                Tensor::f_erf,
            ];
            functions.iter().for_each(|function| drop(function(&one)));
            // Also chosen at the first call.
            drop(Tensor::f_ones([2, 2], (kind, Device::Cpu)).and_then(|square| square.f_mm(&square)));
        }
    });
}

/// Returns true if an operation failed because the memory of its device ran out.
pub fn is_out_of_memory(error: &TchError) -> bool {
    let text = error.to_string();
    // The allocators of GPUs and of the CPU.
    text.contains("out of memory") || text.contains("DefaultCPUAllocator: can't allocate memory")
}

/// Returns the first line of an error: libtorch adds its stack of C++ calls.
pub fn first_line(error: &TchError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deterministic_algorithms_are_switched_on_and_off() {
        assert!(!uses_deterministic_algorithms());
        use_deterministic_algorithms(true);
        assert!(uses_deterministic_algorithms());
        // Operations work as before.
        let sum = Tensor::zeros([2], (Kind::Float, Device::Cpu)).f_index_add_(
            0,
            &Tensor::from_slice(&[1i64, 1]),
            &Tensor::from_slice(&[1f32, 2.0]),
        );
        assert_eq!(Vec::<f32>::try_from(sum.unwrap()).unwrap(), [0.0, 3.0]);
        use_deterministic_algorithms(false);
        assert!(!uses_deterministic_algorithms());
    }

    #[test]
    fn a_lack_of_memory_is_told_from_other_errors() {
        let huge = Tensor::f_zeros([1 << 60], (Kind::Float, Device::Cpu)).unwrap_err();
        assert!(is_out_of_memory(&huge), "{huge}");
        assert!(!first_line(&huge).contains('\n'));
        let on_gpu = TchError::Torch("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has …".into());
        assert!(is_out_of_memory(&on_gpu));
        let shapes = Tensor::f_zeros([2, 3], (Kind::Float, Device::Cpu)).unwrap();
        assert!(!is_out_of_memory(&shapes.f_mm(&shapes).unwrap_err()));
    }
}
