//! Kinds of CPUs: the same operations give the same bits on the same kind.

/// Returns the architecture of this machine's CPU, and those of its instruction sets that decide which kernels run.
pub(super) fn cpu_kind() -> String {
    let mut kind = std::env::consts::ARCH.to_owned();
    #[cfg(target_arch = "x86_64")]
    for (name, has) in [
        ("avx2", std::arch::is_x86_feature_detected!("avx2")),
        ("avx512", std::arch::is_x86_feature_detected!("avx512f")),
        ("vnni", std::arch::is_x86_feature_detected!("avx512vnni")),
        ("bf16", std::arch::is_x86_feature_detected!("avx512bf16")),
    ] {
        if has {
            kind.push(' ');
            kind.push_str(name);
        }
    }
    kind
}
