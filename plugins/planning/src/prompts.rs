//! The games in words: rules, the form of a plan, worked examples.

use crate::game::{Game, GameKind, StateForm};
use crate::{Blocksworld, PlanPath, Queens, Sokoban, Sudoku, text};

/// Description of a game for agents.
pub struct Texts {
    /// Rules, and the symbols of the state.
    pub rules: &'static str,
    /// Form of a plan.
    pub plan: &'static str,
    /// Form of the answers.
    pub answer: Answer,
    /// States with plans that solve them, or with a first move where the answer is a move. The generators make none of
    /// these states.
    pub examples: [(&'static str, &'static str); 2],
}

/// Form of an agent's answers.
#[derive(Debug, Clone, Copy)]
pub enum Answer {
    /// A plan after a mark. In examples, the words come before the mark: a small model takes the bare mark for a part of
    /// Sokoban's walls.
    Marked(&'static str),
    /// One move, and nothing else.
    Move,
}

impl Texts {
    /// Returns the instruction of the agent that moves.
    pub fn to_move(&self) -> String {
        match self.answer {
            Answer::Marked(_) => {
                format!("You may reason first. Then write #### and the plan: {}.", self.plan)
            }
            Answer::Move => format!("Answer with {}.", self.plan),
        }
    }

    /// Returns the instruction of the agent that programs.
    pub fn to_program(&self) -> String {
        let form = match self.answer {
            Answer::Marked(_) => {
                format!("It finds a plan and prints it in the form **Actions List**: and then {}", self.plan)
            }
            Answer::Move => format!("It finds the next move and prints {}", self.plan),
        };
        format!("Write a Python program in a ```python block. {form}.")
    }

    /// Writes an example's plan as the agent that moves.
    pub fn moves(&self, plan: &str) -> String {
        match self.answer {
            Answer::Marked(words) => format!("{words}#### {plan}"),
            Answer::Move => plan.to_owned(),
        }
    }

    /// Writes an example's plan as the agent that programs.
    pub fn program(&self, plan: &str) -> String {
        let line = match self.answer {
            Answer::Marked(_) => format!("print(\"**Actions List**:\", {plan})"),
            Answer::Move => format!("print(\"{plan}\")"),
        };
        format!("```python\n{line}\n```")
    }
}

impl GameKind {
    /// Returns the game's description for agents that see its state in a form.
    pub fn texts(self, form: StateForm) -> &'static Texts {
        match self {
            Self::PlanPath if form == StateForm::Words => &STEPS,
            Self::PlanPath => &PLAN_PATH,
            Self::Sokoban => &SOKOBAN,
            Self::Sudoku => &SUDOKU,
            Self::Queens => &QUEENS,
            Self::Blocksworld => &BLOCKSWORLD,
        }
    }

    /// Returns the part of a text that holds a plan of the game.
    pub fn find_plan(self, text: &str) -> Option<&str> {
        fn source<G: Game>(text: &str) -> Option<&str> {
            Some(text::find::<G>(text)?.source)
        }
        match self {
            Self::PlanPath => source::<PlanPath>(text),
            Self::Sokoban => source::<Sokoban>(text),
            Self::Sudoku => source::<Sudoku>(text),
            Self::Queens => source::<Queens>(text),
            Self::Blocksworld => source::<Blocksworld>(text),
        }
    }
}

const PLAN_PATH: Texts = Texts {
    rules: "Walk on a grid from S to G. A dot is free, # is a wall. Each move goes one cell: U is up, D is down, L is \
            left, R is right.",
    plan: "a JSON list of the letters \"U\", \"D\", \"L\" and \"R\"",
    answer: Answer::Marked(""),
    examples: [
        ("S.G\nS is at row 0, column 0; G is at row 0, column 2.", "[\"R\", \"R\"]"),
        ("G#\n..\n.S\nS is at row 2, column 1; G is at row 0, column 0.", "[\"L\", \"U\", \"U\"]"),
    ],
};

/// Plan-Path in words, one move at a time.
const STEPS: Texts = Texts {
    rules: "Walk to the goal, one step at a time.",
    plan: "one word: up, down, left or right",
    answer: Answer::Move,
    examples: [
        ("Free directions: down, right. Goal: 40 right.", "right"),
        ("Free directions: up, left. Goal: 50 up and 40 left.", "up"),
    ],
};

const SOKOBAN: Texts = Texts {
    rules: "Push every box onto a goal. # is a wall, a space is floor, a dot is a goal, $ is a box, @ is you, * is a \
            box on a goal, + is you on a goal. Each move goes one cell: U is up, D is down, L is left, R is right. \
            Walking into a box pushes it if the cell behind it is free. Boxes can't be pulled.",
    plan: PLAN_PATH.plan,
    answer: Answer::Marked("Moves: "),
    examples: [
        ("######\n#@$ .#\n######\nYou are at [1, 1]. Boxes: [1, 2]. Goals: [1, 4].", "[\"R\", \"R\"]"),
        ("####\n#. #\n#$ #\n# @#\n####\nYou are at [3, 2]. Boxes: [2, 1]. Goals: [1, 1].", "[\"L\", \"U\"]"),
    ],
};

const SUDOKU: Texts = Texts {
    rules: "Fill the empty cells of a Sudoku, shown as dots, so that each digit stands once in every row, column and \
            box. A box has 2 x 2 cells on a 4 x 4 grid, 2 rows x 3 columns on a 6 x 6 grid, and 3 x 3 cells on a 9 x 9 \
            grid. Rows and columns are counted from 0.",
    plan: "a JSON list of [row, column, digit] for the empty cells, or of all rows of the full grid",
    answer: Answer::Marked(""),
    examples: [
        ("1 . 3 4\n3 4 1 2\n2 1 4 3\n4 3 . 1\nEmpty cells: [0, 1] [3, 2].", "[[0, 1, 2], [3, 2, 2]]"),
        (
            "4 3 2 1\n. 1 4 3\n3 4 1 .\n1 2 . 4\nEmpty cells: [1, 0] [2, 3] [3, 2].",
            "[[1, 0, 2], [2, 3, 2], [3, 2, 3]]",
        ),
    ],
};

const QUEENS: Texts = Texts {
    rules: "Place one queen in each row of a board so that no two share a column or a diagonal. Q is a queen, a dot is \
            an empty cell. Fixed queens stay where they are. Rows and columns are counted from 0.",
    plan: "a JSON list of the queens' columns, one for each row",
    answer: Answer::Marked(""),
    examples: [
        (
            ".Q..\n....\nQ...\n..Q.\nFixed queens: row 0 column 1, row 2 column 0, row 3 column 2.",
            "[1, 3, 0, 2]",
        ),
        (
            "Q....\n..Q..\n....Q\n.Q...\n.....\nFixed queens: row 0 column 0, row 1 column 2, row 2 column 4, row 3 column 1.",
            "[0, 2, 4, 1, 3]",
        ),
    ],
};

const BLOCKSWORLD: Texts = Texts {
    rules: "Move blocks until the stacks are those of the goal. A stack is written from the bottom to the top. A move \
            takes the top block of a stack and puts it on the top block of another stack, or on the table, where it \
            starts a new stack. The order of the stacks doesn't matter.",
    plan: "a JSON list of moves like {\"move\": [block, place]}, in which the place is a block or \"table\"",
    answer: Answer::Marked(""),
    examples: [
        (
            "Stacks: [[\"C\"], [\"B\", \"A\"]]\nGoal: [[\"C\", \"B\", \"A\"]]",
            "[{\"move\": [\"A\", \"table\"]}, {\"move\": [\"B\", \"C\"]}, {\"move\": [\"A\", \"B\"]}]",
        ),
        ("Stacks: [[\"B\", \"A\"]]\nGoal: [[\"A\"], [\"B\"]]", "[{\"move\": [\"A\", \"table\"]}]"),
    ],
};

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Plays both examples from their states.
    fn play<G: Game>(record: impl Fn(&str) -> Value) {
        for (state, plan) in G::KIND.texts(StateForm::Board).examples {
            let mut puzzle = G::start(serde_json::from_value(record(state)).unwrap()).unwrap();
            assert_eq!(puzzle.show(), state);
            let found = text::find::<G>(plan).unwrap();
            assert!(found.moves.iter().all(|next| puzzle.play(next)) && puzzle.solved(), "{state}");
            assert_eq!(G::KIND.find_plan(&format!("So: {plan}.")), Some(plan));
        }
    }

    /// Returns the lines of a state's board.
    fn lines(state: &str) -> Vec<&str> {
        let is_text =
            |line: &&str| ["S is", "You are", "Empty", "Fixed"].iter().any(|start| line.starts_with(start));
        state.lines().take_while(|line| !is_text(line)).collect()
    }

    #[test]
    fn examples_are_solved() {
        play::<PlanPath>(|state| json!({"grid": lines(state)}));
        play::<Sokoban>(|state| json!({"room": lines(state)}));
        play::<Sudoku>(|state| json!({"puzzle": lines(state).concat()}));
        play::<Queens>(
            |state| json!({"queens": lines(state).iter().map(|row| row.find('Q')).collect::<Vec<_>>()}),
        );
        play::<Blocksworld>(|state| {
            let stacks =
                |line: &str| serde_json::from_str::<Value>(line.split_once(": ").unwrap().1).unwrap();
            let lines: Vec<&str> = state.lines().collect();
            json!({"start": stacks(lines[0]), "goal": stacks(lines[1])})
        });
    }
}
