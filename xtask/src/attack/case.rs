//! An attack or a fault, with the tests that show what becomes of it.

/// Parts that `cargo xtask attack` takes.
pub const PARTS: [&str; 4] = ["sandbox", "plugins", "files", "faults"];

/// A test, by its package and the end of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Test {
    pub package: &'static str,
    pub name: &'static str,
}

impl Test {
    /// Returns the filter of nextest that selects the test.
    pub fn filter(&self) -> String {
        format!("(package(={}) & test(/(^|::){}$/))", self.package, self.name)
    }

    /// Returns true if a test of the package has this name.
    pub fn is(&self, name: &str) -> bool {
        name.strip_suffix(self.name).is_some_and(|before| before.is_empty() || before.ends_with("::"))
    }
}

/// An attack or a fault.
#[derive(Debug)]
pub struct Case {
    pub number: u32,
    pub part: &'static str,
    pub attack: &'static str,
    /// Findings of the security review that it belongs to.
    pub findings: &'static [&'static str],
    /// Tests that show that it fails.
    pub tests: &'static [Test],
    /// Tests that show that it would work without the defence, or that the fault happens: on their own, or beside the attack
    /// in one of `tests`.
    pub controls: &'static [Test],
}

/// Returns the test of this package with this end of its name.
pub const fn test(package: &'static str, name: &'static str) -> Test {
    Test { package, name }
}
