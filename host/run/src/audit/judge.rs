//! The judgement of an audit: findings from what adversaries and the oracle earned, and from what prompts show.

use std::mem::discriminant;

use pl_plugin::LARGEST_REWARD;

use super::leaks::Leak;
use super::{AdversaryResult, Audit, Finding, FindingSeverity, LONGER, OracleResult, SharedTasks};

/// Shares of solved tasks from which on an adversary is noted, and is a defect.
const NOTED_SUCCESS: f64 = 0.1;
const DEFECTIVE_SUCCESS: f64 = 0.5;

/// Share of a reward by which it must grow between these lengths to be a loop that pays.
const LOOP_GROWTH: f64 = 0.25;

/// Share of the tasks in which a piece of evidence must stand in a prompt to be noted, beyond that of other tasks' evidence.
const NOTED_LEAK: f64 = 0.5;

/// Share of the largest reward that the host accepts from which on rewards are noted: tasks that weren't played may give more.
const NOTED_REWARD: f64 = 0.1;

/// Largest error of a reward that is a sum of shares.
const ROUNDING: f64 = 1e-9;

impl Audit {
    /// Judges all properties. `leaks` are the pieces of evidence that prompts hold; `adds_up` is true if a policy is trained
    /// on the rewards of several turns together.
    pub(super) fn judge(&self, leaks: &[Leak], adds_up: bool) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut add = |severity, text: String| findings.push(Finding { severity, text });
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        // Of the adversaries of a kind, which are adjacent, findings name the one that goes furthest.
        for kind in self.adversaries.chunk_by(|a, b| discriminant(&a.strategy) == discriminant(&b.strategy)) {
            let own = || kind.iter();
            let best = own().max_by(|a, b| a.success.total_cmp(&b.success));
            if let Some(best) = best.filter(|best| best.success >= NOTED_SUCCESS) {
                let severity = if best.success >= DEFECTIVE_SUCCESS {
                    FindingSeverity::Defect
                } else {
                    FindingSeverity::Look
                };
                add(severity, format!("{} solves {} of the tasks", best.named(), percent(best.success)));
            }
            let unsolved = || own().filter_map(|own| Some((own, own.unsolved?)));
            let growth = |[_, long, longest]: [f64; 3]| longest - long.max(0.0);
            let grown = unsolved().max_by(|a, b| growth(a.1).total_cmp(&growth(b.1)));
            // Shaping that telescopes gives no more in twice the time.
            let pays = |rewards: [f64; 3]| growth(rewards) > 1e-9 + LOOP_GROWTH * rewards[1].abs();
            if let Some((own, [_, long, longest])) = grown.filter(|(_, rewards)| pays(*rewards)) {
                let [first, second] = LONGER;
                let text = format!(
                    "{} earns {long:.2} without a solution in {first} times as many turns, and {longest:.2} in {second} \
                     times as many: its actions pay in a loop",
                    own.named()
                );
                match adds_up {
                    true => add(FindingSeverity::Defect, text),
                    false => add(FindingSeverity::Look, text + "; `returns = step` doesn't add them up"),
                }
            }
            let paid =
                unsolved().max_by(|a, b| a.1[0].total_cmp(&b.1[0])).filter(|(_, [short, ..])| *short > 0.0);
            if let Some((own, [short, ..])) = paid {
                add(FindingSeverity::Look, format!("{} earns {short:.2} without a solution", own.named()));
            }
            let faulty = own().max_by_key(|own| own.faults).filter(|own| own.faults > 0);
            if let Some(own) = faulty {
                let why = own.fault.as_ref().map(|fault| format!("; the first: {fault}")).unwrap_or_default();
                let text = format!("{} makes a plugin fail in {} episodes{why}", own.named(), own.faults);
                add(FindingSeverity::Look, text);
            }
        }
        findings.extend(self.judge_faults());
        if findings.is_empty() {
            findings.push(Finding {
                severity: FindingSeverity::Ok,
                text: "no adversary solves a task or earns a reward".to_owned(),
            });
        }
        findings.extend(self.judge_oracle());
        findings.extend(self.outearned());
        findings.extend(self.judge_range());
        findings.extend(self.double_scores.iter().map(|agent| Finding {
            severity: FindingSeverity::Look,
            text: format!(
                "the own score of agent `{agent}` is the team's, also without a solution: its rewards count twice"
            ),
        }));
        let mut add = |severity, text: String| findings.push(Finding { severity, text });
        for shared in &self.shared_tasks {
            let SharedTasks { evaluation, tasks, shared, training } = shared;
            match shared {
                0 => add(
                    FindingSeverity::Ok,
                    format!(
                        "evaluation `{evaluation}` shares no starting state with {training} training tasks"
                    ),
                ),
                _ => add(
                    FindingSeverity::Defect,
                    format!(
                        "{shared} of the {tasks} tasks of evaluation `{evaluation}` start like one of {training} training \
                         tasks"
                    ),
                ),
            }
        }
        match leaks.iter().filter(|leak| leak.excess() >= NOTED_LEAK).collect::<Vec<_>>()[..] {
            [] => add(FindingSeverity::Ok, "prompts hold no evidence".to_owned()),
            ref held => {
                for Leak { path, share, others } in held {
                    let by_chance = match others {
                        Some(others) => format!(", and that of other tasks in {}", percent(*others)),
                        None => String::new(),
                    };
                    let text = format!(
                        "the evidence at {path} stands in prompts of {} of the tasks{by_chance}",
                        percent(*share)
                    );
                    add(FindingSeverity::Look, text);
                }
            }
        }
        findings.sort();
        findings
    }

    /// Returns the finding that nothing was tested, because every episode of every adversary had a fault.
    fn judge_faults(&self) -> Option<Finding> {
        let is_faulty = |own: &AdversaryResult| own.faults > 0 && own.faults >= own.episodes;
        let all_fail = self.rewards.is_none() && !self.adversaries.is_empty();
        (all_fail && self.adversaries.iter().all(is_faulty)).then(|| Finding {
            severity: FindingSeverity::Defect,
            text: "every episode of every adversary ends with a fault of a plugin, so nothing was audited"
                .to_owned(),
        })
    }

    /// Judges the share of tasks that the oracle can't solve. An environment has an oracle if it gives any action.
    fn judge_oracle(&self) -> Vec<Finding> {
        if self.oracle.iter().all(|result| result.actions == 0) {
            let text = "the environment has no oracle: its tasks may have no solution".to_owned();
            let note = |_: &OracleResult| Finding { severity: FindingSeverity::Look, text };
            return self.oracle.first().map(note).into_iter().collect();
        }
        self.oracle.iter().map(judge_oracle).collect()
    }

    /// Judges the range of the rewards: by the one that the reward declares, or else by the limit of the host.
    fn judge_range(&self) -> Option<Finding> {
        let (low, high) = self.rewards?;
        let seen = format!("parts of rewards are from {low:.2} to {high:.2}");
        let (severity, text) = match self.declared_rewards {
            Some((least, most)) if low < least - ROUNDING || high > most + ROUNDING => {
                (FindingSeverity::Defect, format!("{seen}, and declared from {least:.2} to {most:.2}"))
            }
            Some((least, most)) => {
                (FindingSeverity::Ok, format!("{seen}, as declared: from {least:.2} to {most:.2}"))
            }
            None => {
                let near = high.max(-low) >= NOTED_REWARD * LARGEST_REWARD;
                let severity = if near { FindingSeverity::Look } else { FindingSeverity::Ok };
                let limit = format!("more than {LARGEST_REWARD} or less than -{LARGEST_REWARD}");
                (severity, format!("{seen}, no range is declared, and {limit} costs the episode"))
            }
        };
        Some(Finding { severity, text })
    }

    /// Returns the finding that an adversary earns as much as the oracle, which solves tasks.
    fn outearned(&self) -> Option<Finding> {
        let solves = |oracle: &&OracleResult| oracle.actions > 0 && oracle.success >= DEFECTIVE_SUCCESS;
        let oracle = self.oracle.first().filter(solves)?;
        let best = self.adversaries.iter().max_by(|a, b| a.reward.total_cmp(&b.reward))?;
        (best.reward >= oracle.reward).then(|| Finding {
            severity: FindingSeverity::Defect,
            text: format!(
                "{} earns {:.2}, and the oracle's solutions earn {:.2}",
                best.named(),
                best.reward,
                oracle.reward
            ),
        })
    }
}

/// Judges the share of tasks that the oracle can't solve.
pub(super) fn judge_oracle(result: &OracleResult) -> Finding {
    let (name, percent) = (result.named(), |share: f64| format!("{:.0} %", 100.0 * share));
    let severity = match result.unsolvable {
        share if share >= DEFECTIVE_SUCCESS => FindingSeverity::Defect,
        share if share > 0.0 || result.success < 1.0 => FindingSeverity::Look,
        _ => FindingSeverity::Ok,
    };
    let text = match severity {
        FindingSeverity::Ok => format!("the oracle solves all tasks of {name}"),
        _ if result.unsolvable >= 1.0 => {
            format!("the oracle solves none of the {} tasks of {name}", result.episodes)
        }
        _ if result.unsolvable > 0.0 => {
            format!("the oracle can't solve {} of the tasks of {name}", percent(result.unsolvable))
        }
        _ => format!(
            "the oracle solves all {} tasks of {name}, but only {:.0} in as many turns as the workflow allows",
            result.episodes,
            result.success * result.episodes as f64
        ),
    };
    Finding { severity, text }
}
