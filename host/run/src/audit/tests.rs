use super::*;

fn result(strategy: Strategy, success: f64, unsolved: Option<[f64; 3]>) -> AdversaryResult {
    let example = String::new();
    AdversaryResult { strategy, example, episodes: 10, success, reward: 0.0, unsolved, faults: 0 }
}

fn judge(adversaries: Vec<AdversaryResult>) -> Vec<FindingSeverity> {
    judge_with(adversaries, Vec::new())
}

fn judge_with(adversaries: Vec<AdversaryResult>, oracle: Vec<OracleResult>) -> Vec<FindingSeverity> {
    let (shared_tasks, findings) = (Vec::new(), Vec::new());
    let audit = Audit { scenario: None, adversaries, oracle, rewards: None, shared_tasks, findings };
    audit.judge(&BTreeMap::new(), true).into_iter().map(|finding| finding.severity).collect()
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
    assert_eq!(judge_oracle(&silent()).text, "the oracle solves none of the 10 tasks of train (level 3)");
}
