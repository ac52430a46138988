//! The result of a program, as agents and the reward see it.

use pl_sdk::prelude::*;
use pl_sdk::sandbox::{Ending, Verdict};

/// Characters kept of the end of an error, whose last line names the exception.
const MAX_ERROR: usize = 800;

/// Numbers of a problem's tests: assert statements, or inputs with an expected output. A program passed if and
/// only if all of them held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Number of tests that held.
    pub held: u32,
    /// Number of tests. 0 if nothing was tested.
    pub total: u32,
}

impl Tally {
    /// Returns true if there are tests and all of them held.
    pub fn passed(self) -> bool {
        self.total > 0 && self.held == self.total
    }

    /// Returns the share of tests that held, 0 to 1 for any two numbers.
    pub fn share(self) -> f64 {
        self.quotient().min(1.0)
    }

    /// Returns the number of tests that held by that of all, whatever they are.
    fn quotient(self) -> f64 {
        f64::from(self.held) / f64::from(self.total.max(1))
    }
}

/// A program and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramRun {
    /// The program.
    pub program: String,
    /// True if the program itself ran to its end, with any result of its tests.
    pub ran: bool,
    /// Test result.
    pub tally: Tally,
    /// First error, cut to its last lines.
    pub error: Option<String>,
}

/// Returns the reason why a job ended before it did its work. It has nothing but the job's own output.
pub fn failure(verdict: &Verdict) -> String {
    match verdict.ending {
        Ending::Ok | Ending::Error if verdict.stderr.trim().is_empty() => {
            "the program ended before it could be tested".to_owned()
        }
        Ending::Ok | Ending::Error => verdict.stderr.trim_end().to_owned(),
        Ending::Timeout => "the program took too long".to_owned(),
        Ending::Memory => "the program used too much memory".to_owned(),
        Ending::OutputLimit => "the program printed or returned too much".to_owned(),
        Ending::ProcessLimit => "the program started too many processes".to_owned(),
        Ending::LostWorker => format!("the sandbox lost the program: {}", verdict.stderr.trim()),
    }
}

/// Returns true if a job ran into a limit: further runs of its program would cost as much.
pub fn exceeded(verdict: &Verdict) -> bool {
    !matches!(verdict.ending, Ending::Ok | Ending::Error)
}

/// Returns the end of a text, from the start of a line if possible.
pub fn last_lines(text: &str) -> String {
    let length = text.chars().count();
    if length <= MAX_ERROR {
        return text.to_owned();
    }
    let end: String = text.chars().skip(length - MAX_ERROR).collect();
    end.split_once('\n').map_or(end.as_str(), |(_, lines)| lines).to_owned()
}

/// Returns the start of a text, with a mark if it is cut.
pub fn shorten(text: &str, length: usize) -> String {
    match text.char_indices().nth(length) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_success_is_not_a_pass() {
        let tally = Tally { held: 2, total: 3 };
        assert!(!tally.passed());
        assert!((tally.share() - 2.0 / 3.0).abs() < 1e-12);
        assert!(!Tally::default().passed());
        assert_eq!(Tally::default().share(), 0.0);
        assert_eq!(Tally { held: 1000, total: 1 }.share(), 1.0);
        assert!(!Tally { held: 1000, total: 1 }.passed());
    }

    /// The control of tests of impossible numbers: reports are read with any, and these would pay a thousand.
    #[test]
    fn a_forged_report_would_pay_a_thousand() {
        let line = "{\"total\":1,\"held\":1000,\"failure\":null}";
        let cheat = include_str!("../tests/cheats/printed_verdict.py");
        assert!(cheat.contains(line), "a program prints it");
        let report = crate::judge::read(&pl_sdk::services::testing::printed(line)).unwrap();
        let crate::judge::Report::Decided { total, held, .. } = report else { panic!("{report:?}") };
        let tally = Tally { held, total };
        assert_eq!(tally.quotient(), 1000.0);
        assert_eq!((tally.share(), tally.passed()), (1.0, false));
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        assert_eq!(shorten("äöü", 3), "äöü");
        assert_eq!(shorten("äöü", 2), "äö…");
        assert_eq!(shorten("", 0), "");
    }

    #[test]
    fn errors_are_cut_to_their_last_lines() {
        let long = format!("{}\nlast but one\nNameError: x", "line\n".repeat(500));
        let error = last_lines(&long);
        assert!(error.len() <= MAX_ERROR && error.starts_with("line\n"), "{error}");
        assert!(error.ends_with("last but one\nNameError: x"), "{error}");
    }
}
