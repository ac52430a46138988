use super::judge::judge_oracle;
use super::leaks::Leak;
use super::*;
use crate::test_failures::failure;

fn result(strategy: Strategy, success: f64, unsolved: Option<[f64; 3]>) -> AdversaryResult {
    let (example, fault) = (String::new(), None);
    AdversaryResult { strategy, example, episodes: 10, success, reward: 0.0, unsolved, faults: 0, fault }
}

fn judge(adversaries: Vec<AdversaryResult>) -> Vec<FindingSeverity> {
    judge_with(adversaries, Vec::new())
}

fn judge_with(adversaries: Vec<AdversaryResult>, oracle: Vec<OracleResult>) -> Vec<FindingSeverity> {
    let findings = audit(adversaries, oracle).judge(&[], true);
    findings.into_iter().map(|finding| finding.severity).collect()
}

fn audit(adversaries: Vec<AdversaryResult>, oracle: Vec<OracleResult>) -> Audit {
    let (double_scores, shared_tasks, findings) = (Vec::new(), Vec::new(), Vec::new());
    let (rewards, declared_rewards) = (None, None);
    Audit {
        scenario: None,
        adversaries,
        oracle,
        rewards,
        declared_rewards,
        double_scores,
        shared_tasks,
        findings,
    }
}

/// Texts of the findings of a severity.
fn texts(findings: &[Finding], severity: FindingSeverity) -> Vec<&str> {
    let own = findings.iter().filter(|finding| finding.severity == severity);
    own.map(|finding| finding.text.as_str()).collect()
}

#[test]
fn severities_follow_from_success_and_from_what_longer_episodes_earn() {
    use FindingSeverity::{Defect, Look, Ok};
    assert_eq!(judge(vec![result(Strategy::Empty, 0.0, Some([0.0; 3]))]), [Ok, Ok]);
    assert_eq!(judge(vec![result(Strategy::Echo, 0.2, Some([-1.0, -4.0, -8.0]))]), [Look, Ok]);
    assert_eq!(judge(vec![result(Strategy::Echo, 0.9, None)]), [Defect, Ok]);
    // Shaping that telescopes, and shaping that pays for each turn; costs that grow are fine.
    assert_eq!(judge(vec![result(Strategy::Random, 0.0, Some([0.3, 0.5, 0.51]))]), [Look, Ok]);
    assert_eq!(judge(vec![result(Strategy::Random, 0.0, Some([0.3, 1.2, 2.4]))]), [Defect, Look, Ok]);
    assert_eq!(judge(vec![result(Strategy::Random, 0.0, Some([-0.5, -0.3, -0.2]))]), [Ok, Ok]);
}

#[test]
fn an_audit_whose_every_episode_fails_has_a_defect() {
    use FindingSeverity::{Defect, Look, Ok};
    let faulty = |strategy| AdversaryResult { faults: 10, ..result(strategy, 0.0, Some([0.0; 3])) };
    assert_eq!(judge(vec![faulty(Strategy::Empty), faulty(Strategy::Echo)]), [Defect, Look, Look, Ok]);
    // One adversary's episodes came to their end.
    let played = result(Strategy::Random, 0.0, Some([0.0; 3]));
    assert_eq!(judge(vec![faulty(Strategy::Empty), played]), [Look, Ok]);
    // Four of ten episodes of each failed.
    let partly = |strategy| AdversaryResult { faults: 4, ..result(strategy, 0.0, Some([0.0; 3])) };
    assert_eq!(judge(vec![partly(Strategy::Empty), partly(Strategy::Echo)]), [Look, Look, Ok]);
    let scored = Audit { rewards: Some((0.0, 0.0)), ..audit(vec![faulty(Strategy::Empty)], Vec::new()) };
    let findings = scored.judge(&[], true);
    assert!(findings.iter().all(|finding| finding.severity != Defect), "{findings:?}");
}

#[test]
fn faults_are_counted_by_episodes_and_not_by_attempts() {
    // Every attempt of task 0 fails, and the first one of task 1.
    let mut batch = RolloutBatch::default();
    for (task, attempt) in [(0, 0), (0, 1), (0, 2), (1, 0)] {
        batch.failures.push(failure(Phase::Play, task, attempt, ""));
    }
    assert_eq!(faulty_episodes(&batch), 2);
}

fn oracle(success: f64, reward: f64) -> OracleResult {
    OracleResult {
        tasks: "train".to_owned(),
        level: Some(3),
        actions: 10,
        episodes: 10,
        success,
        unsolvable: 1.0 - success,
        reward,
        faults: 0,
    }
}

#[test]
fn the_oracle_tells_what_can_be_solved_and_what_that_should_earn() {
    use FindingSeverity::{Defect, Look, Ok};
    let adversary = |reward: f64| vec![AdversaryResult { reward, ..result(Strategy::Echo, 0.0, None) }];
    assert_eq!(judge_with(adversary(-1.0), vec![oracle(1.0, 1.5)]), [Ok, Ok, Ok]);
    assert_eq!(judge_with(adversary(-1.0), vec![oracle(0.9, 1.5)]), [Look, Ok, Ok]);
    assert_eq!(judge_with(adversary(-1.0), vec![oracle(0.3, 1.5)]), [Defect, Ok, Ok]);
    assert_eq!(judge_with(adversary(2.0), vec![oracle(1.0, 1.5)]), [Defect, Ok, Ok, Ok]);
    // An oracle that solves little says little about rewards.
    assert_eq!(judge_with(adversary(2.0), vec![oracle(0.3, 1.5)]), [Defect, Ok, Ok]);
    assert_eq!(oracle(1.0, 1.0).named(), "train (level 3)");
}

#[test]
fn an_oracle_that_solves_nothing_is_a_defect_and_a_missing_one_is_not() {
    use FindingSeverity::{Defect, Look, Ok};
    let silent = || OracleResult { actions: 0, ..oracle(0.0, 0.0) };
    assert_eq!(judge_with(Vec::new(), vec![oracle(0.0, 0.0)]), [Defect, Ok, Ok]);
    assert_eq!(judge_with(Vec::new(), vec![silent(), oracle(1.0, 1.0)]), [Defect, Ok, Ok, Ok]);
    assert_eq!(judge_with(Vec::new(), vec![silent(), silent()]), [Look, Ok, Ok]);
    let slow = || OracleResult { unsolvable: 0.0, ..oracle(0.5, 1.0) };
    assert_eq!(judge_with(Vec::new(), vec![slow()]), [Look, Ok, Ok]);
    assert!(judge_oracle(&slow()).text.ends_with("but only 5 in as many turns as the workflow allows"));
    assert_eq!(judge_oracle(&silent()).text, "the oracle solves none of the 10 tasks of train (level 3)");
}

#[test]
fn rewards_beyond_the_declared_range_are_a_defect_and_those_near_the_limit_of_the_host_are_noted() {
    use FindingSeverity::{Defect, Look, Ok};
    let range = |rewards, declared_rewards| {
        let own = audit(Vec::new(), Vec::new());
        let findings = Audit { rewards: Some(rewards), declared_rewards, ..own }.judge(&[], true);
        let own = findings.into_iter().find(|finding| finding.text.starts_with("parts of rewards"));
        own.map(|finding| (finding.severity, finding.text)).expect("a finding on the range")
    };
    let (severity, text) = range((-1.0, 2.5), None);
    assert_eq!(severity, Ok);
    assert_eq!(
        text,
        "parts of rewards are from -1.00 to 2.50, no range is declared, and more than 1000000 or less than -1000000 \
         costs the episode"
    );
    assert_eq!(range((-1.0, 2e5), None).0, Look);
    assert_eq!(range((-2e5, 0.0), None).0, Look);
    assert_eq!(range((-1.0, 2.5), Some((-1.0, 2.5))).0, Ok);
    let (severity, text) = range((-1.0, 2.5), Some((0.0, 3.0)));
    assert_eq!(severity, Defect);
    assert_eq!(text, "parts of rewards are from -1.00 to 2.50, and declared from 0.00 to 3.00");
    assert_eq!(range((0.0, 3.5), Some((0.0, 3.0))).0, Defect);
}

#[test]
fn a_score_that_counts_twice_is_noted() {
    let own = audit(Vec::new(), Vec::new());
    let findings = Audit { double_scores: vec!["push".to_owned()], ..own }.judge(&[], true);
    let expected =
        "the own score of agent `push` is the team's, also without a solution: its rewards count twice";
    assert_eq!(texts(&findings, FindingSeverity::Look), [expected]);
}

#[test]
fn the_first_fault_says_why_a_plugin_failed() {
    let refused = "task 1, score: the team's reward is 2000000, but rewards are between -1000000 and 1000000";
    let faulty =
        AdversaryResult { faults: 3, fault: Some(refused.to_owned()), ..result(Strategy::Empty, 0.0, None) };
    let findings = audit(vec![faulty], Vec::new()).judge(&[], true);
    let expected = format!("the empty answer makes a plugin fail in 3 episodes; the first: {refused}");
    assert_eq!(texts(&findings, FindingSeverity::Look), [expected]);
}

#[test]
fn evidence_that_prompts_hold_by_chance_is_no_leak() {
    let noted = |share, others| {
        let leak = Leak { path: "/gold".to_owned(), share, others };
        let findings = audit(Vec::new(), Vec::new()).judge(&[leak], true);
        texts(&findings, FindingSeverity::Look).iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(noted(0.6, None), ["the evidence at /gold stands in prompts of 60 % of the tasks"]);
    assert_eq!(
        noted(1.0, Some(0.25)),
        ["the evidence at /gold stands in prompts of 100 % of the tasks, and that of other tasks in 25 %"]
    );
    assert!(noted(0.4, None).is_empty() && noted(1.0, Some(0.6)).is_empty());
}
