//! Number literals: units, fractions and exponents.

use std::time::Duration;

use super::scalar::Scalar;
use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::reports::Reports;
use crate::source::Location;

/// Parses a number with its unit, if it has one. Returns `None` if an error was reported.
pub(crate) fn number(text: &str, location: Location, reports: &mut Reports) -> Option<Scalar> {
    let digits = number_length(text);
    let (number, unit) = text.split_at(digits);
    let wrong = |reports: &mut Reports, help: &str| {
        reports.error(DiagnosticCode::WrongType, location, format!("unknown unit `{unit}`"), "").help(help);
        None
    };
    const UNITS: &str = "sizes have KiB, MiB and GiB, durations have ms, s, m and h";
    let Ok(float) = number.parse::<f64>() else { return wrong(reports, UNITS) };
    let size = match unit {
        "" => {
            if let Ok(whole) = number.parse::<i64>() {
                return Some(Scalar::Integer(whole));
            }
            if !float.is_finite() || number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
                reports.error(DiagnosticCode::OutOfRange, location, format!("`{number}` is too large"), "");
                return None;
            }
            return Some(Scalar::Number(float));
        }
        "KiB" => Some(1_u64 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    if let Some(size) = size {
        let bytes = float * size as f64;
        if !(0.0..=i64::MAX as f64).contains(&bytes) {
            reports.error(
                DiagnosticCode::OutOfRange,
                location,
                format!("the size `{text}` is out of range"),
                "",
            );
            return None;
        }
        return Some(Scalar::Bytes(bytes as u64));
    }
    let seconds = match unit {
        "ms" => float / 1000.0,
        "s" => float,
        "m" => float * 60.0,
        "h" => float * 3600.0,
        _ => {
            let same = ["KiB", "MiB", "GiB", "ms", "s", "m", "h"].into_iter().find(|known| {
                known.eq_ignore_ascii_case(unit) || known.replace('i', "") == unit.to_uppercase()
            });
            let same = same.or(match unit {
                "kB" | "K" | "k" | "KB" => Some("KiB"),
                "MB" | "M" => Some("MiB"),
                "GB" | "G" => Some("GiB"),
                "sec" | "secs" | "second" | "seconds" => Some("s"),
                "min" | "mins" | "minute" | "minutes" => Some("m"),
                "hour" | "hours" => Some("h"),
                _ => None,
            });
            let help = same.map(|same| format!("write `{number}{same}`"));
            return wrong(reports, help.as_deref().unwrap_or(UNITS));
        }
    };
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) => Some(Scalar::Duration(duration)),
        Err(_) => {
            reports.error(
                DiagnosticCode::OutOfRange,
                location,
                format!("the duration `{text}` is out of range"),
                "",
            );
            None
        }
    }
}

/// Returns the length of the number in bytes, without its unit.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let mut end = digits(usize::from(text.starts_with('-')));
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1);
    }
    if bytes.get(end).is_some_and(|byte| matches!(byte, b'e' | b'E')) {
        let sign = usize::from(bytes.get(end + 1).is_some_and(|byte| matches!(byte, b'+' | b'-')));
        if bytes.get(end + 1 + sign).is_some_and(u8::is_ascii_digit) {
            end = digits(end + 1 + sign);
        }
    }
    end
}
