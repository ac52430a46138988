//! Downloads for CUDA: the compiler of kernels, which needs no GPU, and libtorch's CUDA libraries.
//!
//! The list follows the requirements of the torch 2.11.0 wheel (`Requires-Dist`: the CUDA toolkit 13.0.2 with the
//! parts it names, cuDNN, cuSPARSELt, NCCL, NVSHMEM).

use std::path::{Path, PathBuf};

use anyhow::Result;
use pl_toolchain::cache;

use crate::fetch::{self, Wheel};

/// NVRTC: kernels are compiled with it, in the tests too.
const NVRTC: Wheel = Wheel {
    name: "nvidia-cuda-nvrtc",
    version: "13.0.88",
    sha256: "ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575",
};

/// compute-sanitizer: checks what kernels do to memory while they run.
const SANITIZER: Wheel = Wheel {
    name: "nvidia-cuda-sanitizer-api",
    // Earlier wheels lack programs that it starts.
    version: "13.5.25",
    sha256: "5df2efbdf605a812c6bac07600dd3d801cb9d334a30376113a6f1e2bc0679f54",
};

/// Wheels of libtorch's CUDA half, in addition to those of its CPU half.
pub const LIBRARIES: [Wheel; 12] = [
    NVRTC,
    Wheel {
        name: "nvidia-cublas",
        version: "13.1.0.3",
        sha256: "ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171",
    },
    Wheel {
        name: "nvidia-cudnn-cu13",
        version: "9.19.0.56",
        sha256: "d20e1734305e9d68889a96e3f35094d733ff1f83932ebe462753973e53a572bf",
    },
    Wheel {
        name: "nvidia-cufft",
        version: "12.0.0.61",
        sha256: "6c44f692dce8fd5ffd3e3df134b6cdb9c2f72d99cf40b62c32dde45eea9ddad3",
    },
    Wheel {
        name: "nvidia-cufile",
        version: "1.15.1.6",
        sha256: "08a3ecefae5a01c7f5117351c64f17c7c62efa5fffdbe24fc7d298da19cd0b44",
    },
    Wheel {
        name: "nvidia-curand",
        version: "10.4.0.35",
        sha256: "1aee33a5da6e1db083fe2b90082def8915f30f3248d5896bcec36a579d941bfc",
    },
    Wheel {
        name: "nvidia-cusolver",
        version: "12.0.4.66",
        sha256: "0a759da5dea5c0ea10fd307de75cdeb59e7ea4fcb8add0924859b944babf1112",
    },
    Wheel {
        name: "nvidia-cusparse",
        version: "12.6.3.3",
        sha256: "2b3c89c88d01ee0e477cb7f82ef60a11a4bcd57b6b87c33f789350b59759360b",
    },
    Wheel {
        name: "nvidia-cusparselt-cu13",
        version: "0.8.0",
        sha256: "25e30a8a7323935d4ad0340b95a0b69926eee755767e8e0b1cf8dd85b197d3fd",
    },
    Wheel {
        name: "nvidia-nccl-cu13",
        version: "2.28.9",
        sha256: "e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42",
    },
    Wheel {
        name: "nvidia-nvjitlink",
        version: "13.0.88",
        sha256: "13a74f429e23b921c1109976abefacc69835f2f433ebd323d3946e11d804e47b",
    },
    Wheel {
        name: "nvidia-nvshmem-cu13",
        version: "3.4.5",
        sha256: "290f0a2ee94c9f3687a02502f3b9299a9f9fe826e6d0287ee18482e78d495b80",
    },
];

/// Fetches NVRTC alone into the folder of the cache where pl-host looks for it.
pub fn nvrtc(cache: &Path) -> Result<()> {
    cache::folder(&cache.join("nvrtc-13.0.88"), |partial| {
        eprintln!("      fetching 90 MB, once for all checkouts");
        fetch::unpack(&[NVRTC], partial, |name| {
            let file = name.strip_prefix("nvidia/cu13/lib/")?;
            // The wheel's "alt" libraries are the same code with other trade-offs.
            (file == "libnvrtc.so.13" || file == "libnvrtc-builtins.so.13.0").then(|| file.into())
        })
    })
}

/// Fetches compute-sanitizer. Returns the folder of its programs and libraries.
pub fn sanitizer(cache: &Path) -> Result<PathBuf> {
    let folder = cache.join(format!("compute-sanitizer-{}", SANITIZER.version));
    cache::folder(&folder, |partial| {
        eprintln!("      fetching 18 MB, once for all checkouts");
        fetch::unpack(&[SANITIZER], partial, |name| {
            let file = name.strip_prefix("nvidia/cu13/compute-sanitizer/")?;
            (!file.contains('/')).then(|| file.into())
        })
    })?;
    Ok(folder)
}

/// Maps a member of a wheel to its path. Only libraries have one; they find each other by relative paths. Those of
/// libtorch get a folder of their own, because torch-sys links everything in `torch/lib` and the program must also
/// start without CUDA.
pub fn member(name: &str) -> Option<PathBuf> {
    const LIBTORCH: [&str; 5] = [
        "libtorch_cuda.so",
        "libtorch_cuda_linalg.so",
        "libtorch_nvshmem.so",
        "libc10_cuda.so",
        "libcaffe2_nvrtc.so",
    ];
    if let Some(file) = name.strip_prefix("torch/lib/") {
        return LIBTORCH.contains(&file).then(|| Path::new("torch/cuda").join(file));
    }
    (name.starts_with("nvidia/") && name.contains("/lib/") && name.contains(".so")).then(|| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_keep_their_places_and_libtorchs_stay_out_of_the_linkers_way() {
        let to = |name: &str| member(name).map(|path| path.display().to_string());
        assert_eq!(to("torch/lib/libtorch_cuda.so").as_deref(), Some("torch/cuda/libtorch_cuda.so"));
        assert_eq!(to("nvidia/cu13/lib/libcublas.so.13").as_deref(), Some("nvidia/cu13/lib/libcublas.so.13"));
        assert_eq!(to("nvidia/nccl/lib/libnccl.so.2").as_deref(), Some("nvidia/nccl/lib/libnccl.so.2"));
        for left in [
            "torch/lib/libtorch_cpu.so",
            "torch/lib/libtorch_python.so",
            "nvidia/cu13/lib/libcudart_static.a",
            "nvidia/nvshmem/lib/libnvshmem_device.bc",
            "nvidia/cu13/include/cuda.h",
        ] {
            assert_eq!(to(left), None);
        }
    }
}
