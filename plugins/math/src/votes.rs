//! Votes: which answers of several are the same, and which of them most agents give.

use crate::grader;

/// Groups of equal answers, in the order of their first answers.
pub struct Votes<'a>(Vec<Group<'a>>);

struct Group<'a> {
    answer: &'a str,
    voters: Vec<usize>,
}

impl<'a> Votes<'a> {
    /// Counts answers. A voter is the position of an answer.
    pub fn count(answers: impl IntoIterator<Item = &'a str>) -> Self {
        let mut groups: Vec<Group<'a>> = Vec::new();
        for (voter, answer) in answers.into_iter().enumerate() {
            match groups.iter_mut().find(|group| same(group.answer, answer)) {
                Some(group) => group.voters.push(voter),
                None => groups.push(Group { answer, voters: vec![voter] }),
            }
        }
        Self(groups)
    }

    /// Returns the answer with the most votes, of several the first one.
    pub fn winner(&self) -> Option<&'a str> {
        let most = self.most();
        self.0.iter().find(|group| group.voters.len() == most).map(|group| group.answer)
    }

    /// Returns the number of votes of the winner.
    pub fn most(&self) -> usize {
        self.0.iter().map(|group| group.voters.len()).max().unwrap_or(0)
    }

    /// Returns true if another voter gives the same answer as `voter`.
    pub fn is_confirmed(&self, voter: usize) -> bool {
        self.0.iter().any(|group| group.voters.len() > 1 && group.voters.contains(&voter))
    }
}

/// Returns true if two answers are the same, whichever of them is taken for the right one.
fn same(a: &str, b: &str) -> bool {
    grader::grade(a, b) || grader::grade(b, a)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_answers_count_together() {
        let votes = Votes::count(["8", "1/2", "0.5", r"\frac{1}{2}"]);
        assert_eq!((votes.winner(), votes.most()), (Some("1/2"), 3));
        assert_eq!(
            (0..4).map(|voter| votes.is_confirmed(voter)).collect::<Vec<_>>(),
            [false, true, true, true]
        );
        assert_eq!(Votes::count(["x = 5", "6", "5"]).winner(), Some("x = 5"));
    }

    #[test]
    fn the_first_of_equally_frequent_answers_wins() {
        assert_eq!(Votes::count(["8", "7"]).winner(), Some("8"));
        assert_eq!(Votes::count([]).winner(), None);
        assert_eq!(Votes::count([]).most(), 0);
    }
}
