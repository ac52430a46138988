//! Sizes, durations and numbers as they are written.

use std::time::Duration;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// Text of a size, in the largest unit that divides it.
pub(crate) fn show_bytes(bytes: u64) -> String {
    [(GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")]
        .into_iter()
        .find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit))
        .map_or_else(|| format!("{bytes} bytes"), |(unit, name)| format!("{}{name}", bytes / unit))
}

/// Text of a duration, in the largest unit that divides it.
pub(crate) fn show_duration(duration: Duration) -> String {
    match (duration.as_secs(), duration.subsec_nanos()) {
        (whole, 0) if whole > 0 && whole % 3600 == 0 => format!("{}h", whole / 3600),
        (whole, 0) if whole > 0 && whole % 60 == 0 => format!("{}m", whole / 60),
        (whole, 0) => format!("{whole}s"),
        _ => format!("{}ms", duration.as_secs_f64() * 1000.0),
    }
}

/// Text of a number; a small one as `5e-6`.
pub(crate) fn show_number(number: f64) -> String {
    if number != 0.0 && number.abs() < 1e-3 { format!("{number:e}") } else { number.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_shown_in_the_largest_unit() {
        assert_eq!(show_bytes(64 * MIB), "64MiB");
        assert_eq!(show_bytes(1536), "1536 bytes");
        assert_eq!(show_duration(Duration::from_secs(20)), "20s");
        assert_eq!(show_duration(Duration::from_millis(2500)), "2500ms");
        assert_eq!(show_duration(Duration::from_secs(7200)), "2h");
    }
}
