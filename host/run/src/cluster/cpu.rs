//! Kinds of CPUs: the same operations give the same bits on the same kind.

/// Returns the architecture of this machine's CPU, its vendor, and those of its instruction sets that decide which kernels run.
pub(super) fn cpu_kind() -> String {
    let mut kind = std::env::consts::ARCH.to_owned();
    let vendor = pl_model::cpu_vendor();
    if vendor != [0; 12] {
        kind.push(' ');
        kind.push_str(&String::from_utf8_lossy(&vendor));
    }
    #[cfg(target_arch = "x86_64")]
    for (name, has) in [
        ("avx2", std::arch::is_x86_feature_detected!("avx2")),
        ("avx512", std::arch::is_x86_feature_detected!("avx512f")),
        ("vnni", std::arch::is_x86_feature_detected!("avx512vnni")),
        ("bf16", std::arch::is_x86_feature_detected!("avx512bf16")),
        ("amx", pl_kernels::cpu::amx::is_available()),
    ] {
        if has {
            kind.push(' ');
            kind.push_str(name);
        }
    }
    kind
}
