//! Devices that a workflow names and this machine lacks.

/// Reason why the devices of a policy can't be used, with its remedy.
#[derive(Debug, thiserror::Error)]
pub enum DevicesUnavailable {
    /// There is no such core, or the process may not use it.
    #[error("`cpu:{core}`: this process may run on {}", cores(available))]
    NoCore { core: u32, available: Vec<u32> },
    /// A GPU is named and CUDA is not in use.
    #[error(
        "`cuda:{number}`: this run uses the CPU, because of `--device cpu` or because CUDA does not work here; `pl-host \
         doctor` says why"
    )]
    OnCpu { number: u32 },
    /// There is no such GPU.
    #[error("`cuda:{number}`: this machine has {count} GPUs, which are numbered from 0")]
    NoGpu { number: u32, count: i64 },
    /// The system doesn't say or change which cores a thread runs on.
    #[error("the system doesn't give cores to threads: {0}; remove the cores from `devices`")]
    System(#[from] std::io::Error),
}

/// Writes numbers of cores, consecutive ones as a range.
fn cores(numbers: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let one = |(first, last): &(u32, u32)| match first == last {
        true => format!("cpu:{first}"),
        false => format!("cpu:{first}-{last}"),
    };
    ranges.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_cores_are_a_range() {
        assert_eq!(cores(&[0, 1, 2, 5, 7, 8]), "cpu:0-2, cpu:5, cpu:7-8");
    }
}
