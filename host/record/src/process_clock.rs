//! Clock of the process that wrote a line of `timings.jsonl`. A resumed run has several.

/// Clock of a line's times.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessClock {
    /// The line's `clock_started`. Earlier versions have none.
    pub started: Option<String>,
    /// Time of the line's update on the clock: its start or its end, the same for all lines. `None` if the line has none.
    pub trained: Option<f64>,
}

impl ProcessClock {
    /// Returns true if this line and the one before it are of different processes.
    pub fn is_after_resume(&self, before: &ProcessClock) -> bool {
        match (&self.started, &before.started) {
            // A later step is trained later, unless the clock was started again.
            (None, None) => self.trained.zip(before.trained).is_some_and(|(own, before)| own < before),
            (own, other) => own != other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_the_clock_tells_processes_apart() {
        let clock = |started: Option<&str>, trained| ProcessClock {
            started: started.map(str::to_owned),
            trained: Some(trained),
        };
        let (first, second) = (Some("2026-01-01T10:00:00.000Z"), Some("2026-01-01T12:00:00.000Z"));
        for (before, line, expected) in [
            (clock(None, 2.0), clock(None, 3.0), false),
            (clock(None, 2.0), clock(None, 1.0), true),
            (clock(None, 2.0), clock(first, 3.0), true),
            (clock(first, 2.0), clock(first, 3.0), false),
            (clock(first, 2.0), clock(second, 3.0), true),
        ] {
            assert_eq!(line.is_after_resume(&before), expected, "{before:?}, {line:?}");
        }
    }
}
