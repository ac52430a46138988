//! Kinds of CPUs: the same operations give the same bits on the same kind.

/// Returns the architecture of this machine's CPU, its vendor, and those of its instruction sets that decide which kernels run.
pub(super) fn cpu_kind() -> String {
    let mut kind = std::env::consts::ARCH.to_owned();
    let vendor = cpu_vendor();
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
        ("amx", pl_kernels::cpu::matmul::amx::is_available()),
    ] {
        if has {
            kind.push(' ');
            kind.push_str(name);
        }
    }
    kind
}

/// Returns the vendor of the CPU as it names itself, by which MKL, a part of libtorch, chooses its kernels; zeros if it has no such
/// name.
fn cpu_vendor() -> [u8; 12] {
    let mut name = [0; 12];
    #[cfg(target_arch = "x86_64")]
    {
        let leaf = std::arch::x86_64::__cpuid(0);
        for (part, register) in name.chunks_exact_mut(4).zip([leaf.ebx, leaf.edx, leaf.ecx]) {
            part.copy_from_slice(&register.to_le_bytes());
        }
    }
    name
}
