//! Finds a plan in what a model or a program writes.

use crate::game::Game;
use crate::literal::{Literal, lists};

/// Marks that a plan follows: the answer's marks, and the mark that programs print.
const MARKS: [&str; 3] = ["####", "\\boxed{", "Actions List"];

/// A plan with at least one move.
#[derive(Debug, PartialEq)]
pub struct Found<'t, M> {
    /// The moves.
    pub moves: Vec<M>,
    /// The part of the text that holds them.
    pub source: &'t str,
}

/// Finds the plan that a text ends with: the first list after the last mark or, if there is none, the last list of the
/// text. Rows without brackets count if no list is a plan.
pub fn find<G: Game>(text: &str) -> Option<Found<'_, G::Move>> {
    let mark = MARKS.iter().filter_map(|mark| Some(text.rfind(mark)? + mark.len())).max();
    let marked = mark.and_then(|end| text.get(end..));
    marked
        .and_then(|after| plans::<G>(after).next().or_else(|| bare::<G>(after)))
        .or_else(|| plans::<G>(text).next_back().or_else(|| bare::<G>(text)))
}

fn plans<G: Game>(text: &str) -> impl DoubleEndedIterator<Item = Found<'_, G::Move>> {
    lists(text).into_iter().filter_map(|(list, source)| Some(Found { moves: moves::<G>(&list)?, source }))
}

fn bare<G: Game>(text: &str) -> Option<Found<'_, G::Move>> {
    Some(Found { moves: moves::<G>(&G::bare_plan(text)?)?, source: text })
}

fn moves<G: Game>(list: &Literal) -> Option<Vec<G::Move>> {
    G::plan(list).filter(|moves| !moves.is_empty())
}

/// Returns the words and numbers of each line, without punctuation.
pub fn rows(text: &str) -> impl DoubleEndedIterator<Item = Literal> {
    text.lines().map(|line| {
        let words = line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        Literal::List(words.map(|word| Literal::Word(word.to_owned())).collect())
    })
}

/// Returns the last line whose words and numbers are a plan.
pub fn last_row(text: &str, is_plan: impl Fn(&Literal) -> bool) -> Option<Literal> {
    rows(text).rev().find(|row| row.list().is_some_and(|items| !items.is_empty()) && is_plan(row))
}
