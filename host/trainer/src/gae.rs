//! Generalised advantage estimation (Schulman et al. 2015, arXiv:1506.02438) over the tokens of completions
//! and over an agent's turns in an episode.
//!
//! Token `t` of a completion has the reward `r_t` and the value `V_t`, the critic's estimate before the token
//! was sampled (for the first token, at the end of the prompt). With the advantage `A_t`,
//!
//! ```text
//! A_t = δ_t + g λ A_(t+1)        δ_t = r_t + g V_(t+1) - V_t        R_t = A_t + V_t
//! ```
//!
//! The successor of a token is the next token of its completion, with the discount `g = γ`. The successor of a
//! completion's last token depends on the turn, with the discount `g = γ_turn` unless the turn goes on:
//!
//! | turn | `V_(t+1)` | `A_(t+1)` |
//! |---|---|---|
//! | the model is asked again with the results of its tool calls | value at the end of that prompt | advantage of that completion's first token |
//! | the agent acts again on this path | value at the end of that prompt | advantage of that turn's first token |
//! | the episode ended, or the agent could not act again | 0 | 0 |
//! | a tree went on from another candidate | value of the agent's prompt in the state after the step | 0 |
//!
//! Tokens of other agents and of the environment lie between two turns and count as no time.

/// Discounts of rewards and of advantages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Discounts {
    /// γ, from one token to the next of its completion.
    pub token: f64,
    /// γ_turn, from the last token of a turn to the first of the agent's next.
    pub turn: f64,
    /// λ, the discount of advantages in addition to the above.
    pub lambda: f64,
}

/// Continuation of a trajectory after a turn's last token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Successor {
    /// The agent does not act again.
    End,
    /// The agent's next turn, as an index into the turns. It must be greater than the turn's own.
    Turn(usize),
    /// The turn's next completion, after the results of tool calls, as an index into the turns, greater than the turn's
    /// own. The discount is that from token to token.
    Call(usize),
    /// Value of the state after the turn, where no further turn was sampled.
    Value(f64),
}

/// One completion of an agent: a turn, or one of several model calls of a turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turn<'a> {
    /// Value before each token.
    pub values: &'a [f32],
    /// Reward of each token; the reward of the step is that of the last.
    pub rewards: &'a [f64],
    /// Continuation after the last token.
    pub successor: Successor,
}

/// Estimates of one completion, per token.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// Advantages `A`.
    pub advantages: Vec<f64>,
    /// Value targets `R = A + V`.
    pub returns: Vec<f64>,
}

/// Advantages and value targets of all turns, in the order given.
pub fn estimate(turns: &[Turn<'_>], discounts: &Discounts) -> Vec<Estimate> {
    let mut estimates: Vec<Estimate> = Vec::with_capacity(turns.len());
    // From the last turn to the first, so that each successor's estimate exists.
    for (index, turn) in turns.iter().enumerate().rev() {
        let (value, advantage) = match turn.successor {
            Successor::End => (0.0, 0.0),
            Successor::Value(value) => (value, 0.0),
            Successor::Turn(next) | Successor::Call(next) => {
                debug_assert!(next > index, "turn {next} cannot follow turn {index}");
                let first = |list: Option<f64>| list.unwrap_or(0.0);
                let later = turns.len().checked_sub(next + 1).and_then(|reversed| estimates.get(reversed));
                (
                    first(
                        turns.get(next).and_then(|turn| turn.values.first()).map(|value| f64::from(*value)),
                    ),
                    first(later.and_then(|estimate| estimate.advantages.first()).copied()),
                )
            }
        };
        estimates.push(turn.estimate(value, advantage, discounts));
    }
    estimates.reverse();
    estimates
}

impl Turn<'_> {
    /// Estimates, given the value and the advantage after the last token.
    fn estimate(&self, next_value: f64, next_advantage: f64, discounts: &Discounts) -> Estimate {
        let first_discount = match self.successor {
            Successor::Call(_) => discounts.token,
            Successor::Turn(_) | Successor::Value(_) | Successor::End => discounts.turn,
        };
        let (mut next_value, mut next_advantage, mut discount) = (next_value, next_advantage, first_discount);
        let mut advantages = Vec::with_capacity(self.values.len());
        let mut returns = Vec::with_capacity(self.values.len());
        for (&value, &reward) in self.values.iter().zip(self.rewards).rev() {
            let value = f64::from(value);
            let delta = reward + discount * next_value - value;
            let advantage = delta + discount * discounts.lambda * next_advantage;
            advantages.push(advantage);
            returns.push(advantage + value);
            (next_value, next_advantage, discount) = (value, advantage, discounts.token);
        }
        advantages.reverse();
        returns.reverse();
        Estimate { advantages, returns }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn close(got: &[f64], expected: &[f64]) {
        assert_eq!(got.len(), expected.len());
        for (a, b) in got.iter().zip(expected) {
            assert!((a - b).abs() < 1e-12, "{got:?} instead of {expected:?}");
        }
    }

    /// A tree of three turns of one agent, two candidates each, two tokens per completion. The tree goes on
    /// from 1, then 2, then 5; 0 could have gone on; 3 ended the episode; 4 and 5 are the last turn.
    ///
    /// γ = 0.5, γ_turn = 0.8, λ = 0.5. By hand, from the last turn to the first:
    ///
    /// | turn | r | V | successor | δ_1 | A_1 | δ_0 | A_0 = δ_0 + 0.25 A_1 |
    /// |---|---|---|---|---|---|---|---|
    /// | 5 | 0, 1 | 0.4, 0.6 | end | 1 - 0.6 = 0.4 | 0.4 | 0.3 - 0.4 = -0.1 | 0 |
    /// | 4 | 0, 0 | 0.4, 0.2 | end | -0.2 | -0.2 | 0.1 - 0.4 = -0.3 | -0.35 |
    /// | 3 | 0, 2 | 0.2, 0.8 | end | 1.2 | 1.2 | 0.4 - 0.2 = 0.2 | 0.5 |
    /// | 2 | 0, 0.5 | 0.2, 0.4 | turn 5 | 0.5 + 0.32 - 0.4 = 0.42 | 0.42 + 0.4 · 0 = 0.42 | 0.2 - 0.2 = 0 | 0.105 |
    /// | 1 | 0.1, 1 | 0.5, 0.3 | turn 2 | 1 + 0.16 - 0.3 = 0.86 | 0.86 + 0.4 · 0.105 = 0.902 | 0.1 + 0.15 - 0.5 = -0.25 | -0.0245 |
    /// | 0 | 0, 0 | 0.5, 0.1 | value 0.25 | 0.2 - 0.1 = 0.1 | 0.1 | 0.05 - 0.5 = -0.45 | -0.425 |
    #[test]
    fn a_tree_of_three_turns() {
        let turn = |values, rewards, successor| Turn { values, rewards, successor };
        let turns = [
            turn(&[0.5, 0.1], &[0.0, 0.0], Successor::Value(0.25)),
            turn(&[0.5, 0.3], &[0.1, 1.0], Successor::Turn(2)),
            turn(&[0.2, 0.4], &[0.0, 0.5], Successor::Turn(5)),
            turn(&[0.2, 0.8], &[0.0, 2.0], Successor::End),
            turn(&[0.4, 0.2], &[0.0, 0.0], Successor::End),
            turn(&[0.4, 0.6], &[0.0, 1.0], Successor::End),
        ];
        let expected =
            [[-0.425, 0.1], [-0.0245, 0.902], [0.105, 0.42], [0.5, 1.2], [-0.35, -0.2], [0.0, 0.4]];
        let got = estimate(&turns, &Discounts { token: 0.5, turn: 0.8, lambda: 0.5 });
        for ((estimate, expected), turn) in got.iter().zip(expected).zip(&turns) {
            // The values are f32.
            for (advantage, expected) in estimate.advantages.iter().zip(expected) {
                assert!(
                    (advantage - expected).abs() < 1e-7,
                    "{:?} instead of {expected}",
                    estimate.advantages
                );
            }
            let returns: Vec<f64> =
                estimate.advantages.iter().zip(turn.values).map(|(a, v)| a + f64::from(*v)).collect();
            close(&estimate.returns, &returns);
        }
    }

    /// Turns of one agent, in order, the last one with `end`.
    fn path(parts: &[Vec<(f32, f64)>], end: Successor) -> Vec<(Vec<f32>, Vec<f64>, Successor)> {
        parts
            .iter()
            .enumerate()
            .map(|(index, tokens)| {
                let (values, rewards) = tokens.iter().copied().unzip();
                (values, rewards, if index + 1 < parts.len() { Successor::Turn(index + 1) } else { end })
            })
            .collect()
    }

    fn estimates(turns: &[(Vec<f32>, Vec<f64>, Successor)], discounts: &Discounts) -> Vec<Estimate> {
        let turns: Vec<Turn<'_>> = turns
            .iter()
            .map(|(values, rewards, successor)| Turn { values, rewards, successor: *successor })
            .collect();
        estimate(&turns, discounts)
    }

    fn parts() -> impl Strategy<Value = Vec<Vec<(f32, f64)>>> {
        prop::collection::vec(prop::collection::vec((-2.0f32..2.0, -2.0f64..2.0), 1..6), 1..5)
    }

    proptest! {
        /// λ = 1: the value target is the discounted sum of rewards, whatever the values.
        #[test]
        fn without_a_decay_targets_are_discounted_returns(
            parts in parts(),
            token in 0.5f64..1.0,
            turn in 0.5f64..1.0,
            end in prop::option::of(-2.0f64..2.0),
        ) {
            let successor = end.map_or(Successor::End, Successor::Value);
            let got = estimates(&path(&parts, successor), &Discounts { token, turn, lambda: 1.0 });
            let mut rest = end.unwrap_or(0.0);
            for (tokens, estimate) in parts.iter().zip(&got).rev() {
                let mut discount = turn;
                for ((value, reward), (advantage, target)) in
                    tokens.iter().zip(estimate.advantages.iter().zip(&estimate.returns)).rev()
                {
                    rest = reward + discount * rest;
                    discount = token;
                    prop_assert!((target - rest).abs() < 1e-9);
                    prop_assert!((advantage - (rest - f64::from(*value))).abs() < 1e-9);
                }
            }
        }

        /// λ = 0: one-step temporal differences, so a turn does not depend on the rewards of later ones.
        #[test]
        fn with_full_decay_a_turn_sees_only_the_next_value(mut parts in parts()) {
            let discounts = Discounts { token: 0.9, turn: 0.7, lambda: 0.0 };
            let before = estimates(&path(&parts, Successor::End), &discounts);
            let last = parts.len() - 1;
            parts[last].iter_mut().for_each(|(_, reward)| *reward += 5.0);
            let after = estimates(&path(&parts, Successor::End), &discounts);
            prop_assert_eq!(&before[..last], &after[..last]);
        }

        /// A critic that knows the constant reward of every turn finds no advantage anywhere.
        #[test]
        fn an_exact_critic_has_no_advantages(
            lengths in prop::collection::vec(1usize..6, 1..5),
            reward in -2i32..3,
            lambda in 0.0f64..1.0,
        ) {
            // Without a discount, the value of a turn is the reward times the number of turns left.
            let parts: Vec<Vec<(f32, f64)>> = lengths
                .iter()
                .enumerate()
                .map(|(index, &length)| {
                    let value = (reward * (lengths.len() - index) as i32) as f32;
                    (0..length).map(|t| (value, if t + 1 == length { f64::from(reward) } else { 0.0 })).collect()
                })
                .collect();
            let got = estimates(&path(&parts, Successor::End), &Discounts { token: 1.0, turn: 1.0, lambda });
            for estimate in got {
                prop_assert!(estimate.advantages.iter().all(|advantage| *advantage == 0.0));
            }
        }

        /// A trajectory of several turns with equal discounts is one long completion.
        #[test]
        fn turns_are_joined_like_tokens(parts in parts(), discount in 0.5f64..1.0, lambda in 0.0f64..1.0) {
            let discounts = Discounts { token: discount, turn: discount, lambda };
            let joined = estimates(&path(&[parts.concat()], Successor::End), &discounts).remove(0);
            let apart = estimates(&path(&parts, Successor::End), &discounts);
            let advantages: Vec<f64> = apart.iter().flat_map(|e| e.advantages.clone()).collect();
            prop_assert_eq!(joined.advantages, advantages);
        }
    }

    #[test]
    fn returns_are_rewards_without_values_and_discounts() {
        let parts = [vec![(0.0, 0.0), (0.0, 1.0)], vec![(0.0, 0.0), (0.0, 0.0), (0.0, 4.0)]];
        let got = estimates(&path(&parts, Successor::End), &Discounts { token: 1.0, turn: 1.0, lambda: 1.0 });
        close(&got[0].advantages, &[5.0, 5.0]);
        close(&got[1].advantages, &[4.0, 4.0, 4.0]);
        assert_eq!(got[0].advantages, got[0].returns);
    }
}
