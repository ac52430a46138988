//! The training of each policy: settings of the file, of the policy, and of the algorithm.

// clippy.toml excuses test functions, but not what they call.
#![allow(clippy::panic, clippy::unwrap_used)]

mod common;

use common::TestCatalog;
use pl_dsl::settings::ALGORITHMS;
use pl_dsl::workflow::objective::{
    Advantage, Aggregation, Algorithm, Baseline, Correction, CriticBase, GroupBy, KlEstimator, KlPlace,
    Objective, Ratio, Returns, Scale, TrustRegion,
};
use pl_dsl::workflow::{BatchOrder, InFlight, LrSchedule, PolicyTraining, Workflow};
use pl_dsl::{Checked, Override, Source, check, render};

/// A file with settings in `train`, and inner blocks of the policy `coder`.
fn file(train: &str, coder: &str) -> String {
    format!(
        "workflow w\nplugin maths = \"math.wasm\"\nmodel base = \"smollm2-135m\"\n\
         policy coder {{ model = base; lora {{ rank = 4 }}; {coder} }}\n\
         policy reasoner {{ model = base; lora {{ rank = 4 }} }}\n\
         environment problems = maths.problems\n\
         agent tool = maths.tool {{ policy = coder; max_tokens = 200 }}\n\
         agent reason = maths.reasoner {{ policy = reasoner; max_tokens = 64 }}\n\
         turns {{ start -> tool -> reason -> end }}\nreward score = maths.score\n\
         train {{ steps = 20; {train} }}\n"
    )
}

fn checked(train: &str, coder: &str, overrides: &[&str]) -> Checked {
    let overrides: Vec<Override> = overrides.iter().map(|one| one.parse().unwrap()).collect();
    check(&Source { name: "x.mas".to_owned(), text: file(train, coder) }, &overrides, &TestCatalog)
}

/// Messages of a file, one per line.
fn messages(train: &str, coder: &str, overrides: &[&str]) -> String {
    let Checked { diagnostics, sources, .. } = checked(train, coder, overrides);
    render::short(&diagnostics, &sources)
}

fn valid(train: &str, coder: &str, overrides: &[&str]) -> Workflow {
    let Checked { workflow, diagnostics, sources, .. } = checked(train, coder, overrides);
    assert!(diagnostics.is_empty(), "{}", render::short(&diagnostics, &sources));
    workflow.unwrap()
}

/// Training of `coder` and of `reasoner`.
fn training(train: &str, coder: &str, overrides: &[&str]) -> [PolicyTraining; 2] {
    let mut policies = valid(train, coder, overrides).policies.into_iter().map(|one| one.training.unwrap());
    [policies.next().unwrap(), policies.next().unwrap()]
}

fn objective(train: &str) -> Objective {
    training(train, "", &[])[0].objective
}

#[test]
fn without_settings_it_is_at_grpo() {
    let [coder, reasoner] = training("", "", &[]);
    let objective = Objective { overlong_buffer: 40, ..ALGORITHMS[0].objective };
    assert_eq!(coder.objective, objective);
    assert_eq!(reasoner.objective, Objective { overlong_buffer: 12, ..objective });
    assert_eq!((coder.freeze, coder.update_every, coder.critic), (0, 1, None));
    let optimizer = &coder.optimizer;
    assert_eq!((optimizer.learning_rate, optimizer.lr_schedule), (5e-6, LrSchedule::Constant));
    assert_eq!((optimizer.beta1, optimizer.beta2, optimizer.max_grad_norm), (0.9, 0.999, 1.0));
}

/// Each algorithm is its row of the table, and `check` accepts it.
#[test]
fn an_algorithm_sets_the_choices() {
    for one in &ALGORITHMS {
        let found = objective(&format!("algorithm = {}", one.word));
        assert_eq!(found, Objective { overlong_buffer: 40, ..one.objective }, "{}", one.word);
        let critic = training(&format!("algorithm = {}", one.word), "", &[])[0].critic.clone();
        assert_eq!(critic.is_some(), one.objective.advantage == Advantage::Gae, "{}", one.word);
    }
}

#[test]
fn a_key_that_is_written_wins_over_the_algorithm() {
    let found = objective("algorithm = grpo; scale = none; clip_high = 0.3; kl = 0.04; group_by = [task]");
    assert_eq!(found.algorithm, Algorithm::Grpo);
    assert_eq!((found.scale, found.clip_high, found.kl), (Scale::None, 0.3, 0.04));
    assert_eq!(found.group_by, GroupBy { agent: false, turn: false });
    assert_eq!((found.returns, found.aggregation), (Returns::Episode, Aggregation::SequenceMean));
}

#[test]
fn a_policy_has_settings_of_its_own() {
    let [coder, reasoner] = training(
        "learning_rate = 1e-4; kl = 0.1",
        "train { learning_rate = 1e-5; algorithm = dr_grpo; divisor = 100; freeze = 3; update_every = 2; \
         weight_decay = 0.1; beta1 = 0.8; beta2 = 0.95 }",
        &[],
    );
    let of_optimizer = |training: &PolicyTraining| {
        let own = &training.optimizer;
        [own.weight_decay, own.beta1, own.beta2]
    };
    assert_eq!((of_optimizer(&coder), of_optimizer(&reasoner)), ([0.1, 0.8, 0.95], [0.0, 0.9, 0.999]));
    assert_eq!((coder.optimizer.learning_rate, reasoner.optimizer.learning_rate), (1e-5, 1e-4));
    assert_eq!((coder.objective.kl, reasoner.objective.kl), (0.1, 0.1));
    assert_eq!(coder.objective.algorithm, Algorithm::DrGrpo);
    assert_eq!((coder.objective.divisor, reasoner.objective.divisor), (Some(100), None));
    assert_eq!((coder.freeze, coder.update_every, reasoner.freeze), (3, 2, 0));
    assert_eq!(reasoner.objective.algorithm, Algorithm::AtGrpo);
}

/// A policy with more tasks per update than a step has is updated after several steps, on all of them.
#[test]
fn an_update_may_train_on_several_steps() {
    let [coder, reasoner] =
        training("tasks_per_step = 4", "train { tasks_per_update = 12; freeze = 2 }", &[]);
    assert_eq!((coder.steps_per_update, reasoner.steps_per_update), (3, 1));
    let steps = coder.update_steps();
    let due: Vec<u64> = (1..=12).filter(|step| steps.is_due(*step)).collect();
    assert_eq!(due, [5, 8, 11]);
    assert_eq!([0, 4, 5, 7, 8].map(|step| steps.last(step)), [0, 0, 5, 5, 8]);
    assert_eq!((steps.trained(8), steps.trained(7).count()), (6..=8, 0));
    assert_eq!([1, 4, 5, 7].map(|step| steps.first_untrained(step)), [3, 3, 6, 6]);
    assert_eq!([2, 3, 4].map(|step| coder.trains_on(step)), [false, true, true]);
    // Every step after `freeze` is trained on once.
    let trained: Vec<u64> = (1..=20).flat_map(|step| steps.trained(step)).collect();
    assert_eq!(trained, (3..=20).collect::<Vec<_>>());
}

/// The choices that the file has written for its own algorithm are not those of the policy's.
#[test]
fn an_algorithm_of_a_policy_replaces_the_choices_of_the_file() {
    let [coder, reasoner] = training(
        "algorithm = dr_grpo; ratio = sequence; clip_high = 0.5; entropy = 0.01",
        "train { algorithm = ppo }",
        &[],
    );
    let expected = ALGORITHMS.iter().find(|one| one.word == "ppo").unwrap().objective;
    assert_eq!(coder.objective, Objective { entropy: 0.01, overlong_buffer: 40, ..expected });
    assert_eq!((reasoner.objective.ratio, reasoner.objective.clip_high), (Ratio::Sequence, 0.5));
}

/// A choice that was not written follows from those that were.
#[test]
fn defaults_follow_from_the_choices() {
    let found = objective("ratio = sequence");
    assert_eq!((found.clip_low, found.clip_high, found.dual_clip), (3e-4, 4e-4, 0.0));
    assert_eq!(found.aggregation, Aggregation::SequenceMean);
    let found = objective("ratio = none");
    assert_eq!((found.trust_region, found.dual_clip), (TrustRegion::None, 0.0));
    let found = objective("trust_region = cispo");
    assert_eq!((found.clip_low, found.clip_high, found.dual_clip), (1.0, 4.0, 0.0));
    let found = objective("algorithm = rloo; ratio = token");
    assert_eq!((found.trust_region, found.clip_high), (TrustRegion::Clip, 0.2));
    let found = objective("advantage = gae");
    assert_eq!((found.baseline, found.scale, found.returns), (Baseline::None, Scale::Batch, Returns::Step));
    let found = objective("advantage = ema");
    assert_eq!((found.baseline, found.scale), (Baseline::None, Scale::None));
    let found = objective("algorithm = ppo; advantage = group");
    assert_eq!((found.baseline, found.scale), (Baseline::Mean, Scale::Group));
    let found = objective("kl = 0.1; kl_in = reward");
    assert_eq!((found.kl_in, found.kl_estimator), (KlPlace::Reward, KlEstimator::K1));
    let found = objective("correction = icepop; old_logprobs = recompute");
    assert_eq!(found.correction, Correction::Icepop);
    assert_eq!((found.correction_low, found.correction_high), (0.5, 5.0));
}

#[test]
fn a_critic_is_configured_or_implied() {
    let [coder, reasoner] =
        training("algorithm = ppo", "critic { on = shared; weight = 0.5; warmup = 5 }", &[]);
    let critic = coder.critic.unwrap();
    assert_eq!((critic.on, critic.weight, critic.warmup, critic.clip), (CriticBase::Shared, 0.5, 5, 0.5));
    let critic = reasoner.critic.unwrap();
    assert_eq!((critic.on, critic.learning_rate, critic.warmup), (CriticBase::Policy, 1e-4, 0));
}

#[test]
fn a_critic_may_have_an_adapter_or_a_model_of_its_own() {
    let critic = |block: &str| training("algorithm = ppo", block, &[])[0].critic.clone().unwrap();
    let adapter = critic("critic { on = adapter; rank = 4; alpha = 8 }");
    let lora = adapter.lora.unwrap();
    assert_eq!((adapter.on, adapter.model, lora.rank, lora.alpha), (CriticBase::Adapter, None, 4, 8.0));
    assert_eq!((lora.targets.len(), adapter.learning_rate), (7, 1e-4));
    // The base that the policy's own adapter is on.
    assert_eq!(critic("critic { on = adapter; model = base }").model, None);
    let model = critic("critic { model = base }");
    assert_eq!((model.on, model.model, model.lora), (CriticBase::Model, Some(0), None));
    assert_eq!(model.learning_rate, 1e-5);
    assert_eq!(critic("critic { on = model; learning_rate = 0.01 }").learning_rate, 0.01);
    assert_eq!(critic("critic { on = model }").model, None);
}

#[test]
fn critics_that_make_no_sense_are_refused() {
    let refused = |block: &str| messages("algorithm = ppo", block, &[]);
    assert!(refused("critic { on = policy; model = base }").contains("MAS0035"));
    assert!(refused("critic { on = shared; model = base }").contains("MAS0035"));
    assert!(refused("critic { rank = 4 }").contains("`rank` has no effect without `on = adapter`"));
    assert!(refused("critic { model = base; alpha = 4 }").contains("MAS0048"));
    assert!(refused("critic { model = bass }").contains("there is no model `bass`"));
    assert!(refused("critic { on = adaptor }").contains("adapter"));
    // A policy without `lora` trains its model.
    let whole = file("algorithm = ppo", "critic { on = adapter; model = base }")
        .replace("policy coder { model = base; lora { rank = 4 };", "policy coder { model = base;");
    let Checked { diagnostics, sources, .. } =
        check(&Source { name: "x.mas".to_owned(), text: whole }, &[], &TestCatalog);
    assert!(render::short(&diagnostics, &sources).contains("trains this model itself"));
    // An override may choose another kind than the file prepares.
    let given = ["coder.critic.on=policy"];
    let [coder, _] = training("algorithm = ppo", "critic { on = adapter; rank = 4; model = base }", &given);
    let critic = coder.critic.unwrap();
    assert_eq!((critic.on, critic.model, critic.lora), (CriticBase::Policy, None, None));
}

/// A model that only a critic is on is used.
#[test]
fn the_model_of_a_critic_is_used() {
    let text = |critic: &str| {
        file("algorithm = ppo", critic).replace("policy coder", "model small = \"./small\"\npolicy coder")
    };
    let found = |critic: &str| {
        let text = text(critic);
        let Checked { diagnostics, sources, .. } =
            check(&Source { name: "x.mas".to_owned(), text }, &[], &TestCatalog);
        render::short(&diagnostics, &sources)
    };
    assert_eq!(found("critic { model = small }"), "");
    assert_eq!(found("critic { on = adapter; model = small }"), "");
    assert!(found("critic { on = adapter }").contains("model `small` is never used"));
}

#[test]
fn overrides_make_the_block_that_is_missing() {
    let given = ["coder.train.kl=0.1", "coder.critic.clip=0.2", "coder.train.algorithm=ppo"];
    let [coder, reasoner] = training("", "", &given);
    assert_eq!((coder.objective.kl, reasoner.objective.kl), (0.1, 0.0));
    assert_eq!(coder.critic.unwrap().clip, 0.2);
    assert_eq!(
        messages("", "", &["coder.trian.kl=0.1"]),
        "x.mas: MAS0031 error: --set coder.trian.kl=0.1: policy `coder` has no `trian` block (did you mean `train`?)\n"
    );
}

/// A policy that a file prepares for training may be switched off from outside.
#[test]
fn overrides_switch_off_what_the_file_prepares() {
    let workflow = valid("", "train { kl = 0.1 }", &["coder.train=false"]);
    assert_eq!(workflow.policies[0].training, None);
    assert!(messages("", "train = false; train { kl = 0.1 }", &[]).contains("MAS0035"));
    let found = training("algorithm = ppo; lambda = 0.9", "critic { clip = 0.2 }", &["train.algorithm=grpo"]);
    assert_eq!(found[0].critic, None);
    assert!(messages("algorithm = grpo; lambda = 0.9", "critic { clip = 0.2 }", &[]).contains("MAS0048"));
}

/// A setting of the file that only one policy can use is for that one.
#[test]
fn a_default_may_be_for_one_policy() {
    assert_eq!(messages("lambda = 0.9", "train { algorithm = ppo }", &[]), "");
    assert_eq!(
        messages("lambda = 0.9", "train { algorithm = dapo }", &[]),
        "x.mas:11:30: MAS0048 error: `lambda` has no effect without `advantage = gae` (remove it, or set `advantage = gae`)\n"
    );
    // The policy's own setting is for nobody else.
    assert!(messages("algorithm = ppo", "train { algorithm = dapo; lambda = 0.9 }", &[]).contains("MAS0048"));
}

#[test]
fn untrained_policies_have_no_training() {
    let workflow = valid("", "train = false", &[]);
    assert_eq!(workflow.policies[0].training, None);
    assert!(workflow.policies[1].training.is_some());
    let text = file("", "train { kl = 0.1 }");
    let text: String = text.lines().filter(|line| !line.starts_with("train")).collect::<Vec<_>>().join("\n");
    let played = check(&Source { name: "x.mas".to_owned(), text }, &[], &TestCatalog);
    assert!(played.workflow.unwrap().policies.iter().all(|policy| policy.training.is_none()));
}

#[test]
fn settings_of_the_run_are_not_those_of_a_policy() {
    let found = messages("", "train { steps = 3 }", &[]);
    assert!(
        found.contains("it is the same for all policies: write it in the `train` of the file"),
        "{found}"
    );
    let found = messages("normalize = false", "", &[]);
    assert!(found.contains("`scale = none` for `normalize = false`"), "{found}");
}

#[test]
fn a_policy_that_is_never_updated_is_reported() {
    let found = messages("", "train { freeze = 20 }", &[]);
    assert!(
        found.contains("policy `coder` is never updated: `freeze` is 20, but there are 20 steps"),
        "{found}"
    );
    // A setting of the file is reported once.
    assert_eq!(messages("freeze = 20", "", &[]).lines().count(), 1);
    valid("", "train { freeze = 19 }", &[]);
}

/// A tree compares candidates by the rewards of later turns only if an agent has some.
#[test]
fn returns_of_later_turns_in_a_tree_are_doubtful() {
    let looping = |train: &str, coder: &str| {
        let turns =
            "turns {\nmax = 2\nstart -> tool -> reason\nreason -> end when env.agreed\nreason -> tool\n}";
        let text = file(train, coder).replace("turns { start -> tool -> reason -> end }", turns);
        let checked = check(&Source { name: "x.mas".to_owned(), text }, &[], &TestCatalog);
        render::short(&checked.diagnostics, &checked.sources)
    };
    let found = looping("algorithm = grpo", "");
    assert!(found.contains("MAS0061 warning: `returns = episode` of policy `coder`"), "{found}");
    assert!(looping("algorithm = reinforce_pp", "").contains("`returns = discounted`"));
    assert!(looping("advantage = ema; returns = episode", "").contains("MAS0061"));
    assert!(looping("", "train { algorithm = grpo }").contains("policy `coder`"));
    for train in ["", "algorithm = ppo", "algorithm = rft", "algorithm = grpo; rollout = flat"] {
        assert_eq!(looping(train, ""), "", "{train}");
    }
    assert_eq!(looping("algorithm = reinforce_pp; samples = 1", ""), "");
    assert_eq!(messages("algorithm = grpo", "", &[]), "");
}

/// A tree credits the end to the agents of its last turn alone, so that there must be no other.
#[test]
fn a_reward_of_the_end_is_for_flat_rollouts() {
    let found = |train: &str, turns: &str| {
        let text = file(train, "").replace("maths.score", "maths.final");
        let text = text.replace("turns { start -> tool -> reason -> end }", turns);
        let checked = check(&Source { name: "x.mas".to_owned(), text }, &[], &TestCatalog);
        render::short(&checked.diagnostics, &checked.sources)
    };
    let turns = "turns { start -> tool -> reason -> end }";
    for train in ["", "returns = episode"] {
        assert!(found(train, turns).contains("MAS0050 error: reward `score`"), "{train}");
        assert_eq!(found(train, "turns { start -> [tool, reason] -> end }"), "", "{train}");
    }
    assert!(found("rollout = flat", turns).contains("MAS0050 error: policy `coder`"));
    assert_eq!(found("rollout = flat; returns = episode", turns), "");
}

#[test]
fn a_buffer_is_within_the_completions_of_all_agents() {
    let penalty = |buffer: u32| format!("overlong = penalize; overlong_buffer = {buffer}");
    assert_eq!(objective(&penalty(64)).overlong_buffer, 64);
    let found = messages(&penalty(65), "", &[]);
    assert!(found.contains("`overlong_buffer` is 65, but an agent has `max_tokens = 64`"), "{found}");
    assert_eq!(found.lines().count(), 1, "{found}");
    // `coder` has an agent with more tokens.
    let own = format!("train {{ {} }}", penalty(200));
    assert_eq!(messages("", &own, &[]), "");
}

/// Far below 0.01, logits that are divided by the temperature overflow.
#[test]
fn temperatures_that_are_almost_zero_are_refused() {
    for low in ["1e-46", "0.009"] {
        let found = messages("", "", &[&format!("tool.temperature={low}")]);
        assert!(found.contains("MAS0011") && found.contains("must be 0 or at least 0.01"), "{found}");
        let text = file("", "") + &format!("evaluate test {{ temperature = {low} }}\n");
        let checked = check(&Source { name: "x.mas".to_owned(), text }, &[], &TestCatalog);
        let found = render::short(&checked.diagnostics, &checked.sources);
        assert!(found.contains("must be 0 or at least 0.01"), "{found}");
    }
    valid("", "", &["tool.temperature=0.01"]);
}

#[test]
fn warm_ups_without_an_effect_or_an_end_are_reported() {
    let found = messages("freeze = 5; warmup = 5", "", &[]);
    assert!(
        found.contains("MAS0062 warning: `warmup` is 5, but the policy is frozen for 5 steps"),
        "{found}"
    );
    assert_eq!(found.lines().count(), 1, "{found}");
    let found = messages("", "train { warmup = 20 }", &[]);
    assert!(found.contains("`warmup` is 20, but there are 20 steps"), "{found}");
    valid("freeze = 5; warmup = 6", "train { warmup = 19 }", &[]);
    // A short trial of a file.
    valid("warmup = 5", "", &["train.steps=2"]);
    let critic = "critic { warmup = 15 }";
    let found = messages("algorithm = ppo", &format!("train {{ freeze = 5 }}; {critic}"), &[]);
    assert!(found.contains("MAS0062 warning: policy `coder` is never updated: its critic"), "{found}");
    valid("algorithm = ppo", &format!("train {{ freeze = 4 }}; {critic}"), &[]);
}

#[test]
fn roles_map_agents_to_other_policies() {
    let evaluation = |roles: &str| {
        let text = file("", "") + &format!("evaluate swapped {{ roles {{ {roles} }} }}\n");
        check(&Source { name: "x.mas".to_owned(), text }, &[], &TestCatalog)
    };
    let checked = evaluation("reason = coder; tool = reasoner");
    let roles = &checked.workflow.unwrap().evaluations[0].roles;
    assert_eq!(roles.iter().map(|role| (role.agent, role.policy)).collect::<Vec<_>>(), [(0, 1), (1, 0)]);
    let other = "model other = \"./other\"\npolicy far { model = other; train = false }\n";
    let text = file("", "") + other + "evaluate x { roles { tool = far } }\n";
    let checked = check(&Source { name: "x.mas".to_owned(), text }, &[], &TestCatalog);
    let workflow = checked.workflow.expect("a role may have another model");
    assert_eq!(workflow.policy_of("tool", Some("x")), Some(2));
    assert_eq!(workflow.policy_of("tool", None), Some(0));
    let Checked { diagnostics, sources, workflow, .. } =
        evaluation("tol = reasoner; reason = codr; reason = coder");
    assert!(workflow.is_none());
    insta::assert_snapshot!(render::short(&diagnostics, &sources), @r"
    x.mas:12:28: MAS0012 error: there is no agent `tol` (did you mean `tool`?)
    x.mas:12:53: MAS0012 error: there is no policy `codr` (did you mean `coder`?)
    x.mas:12:59: MAS0008 error: `reason` is set twice in `roles` (remove one of them)
    ");
}

#[test]
fn weights_take_over_in_flight_under_conditions() {
    let in_flight = |train: &str| valid(train, "", &[]).train.unwrap().in_flight;
    assert_eq!(in_flight("schedule = async"), InFlight::Off);
    assert_eq!(in_flight("schedule = one_step_off; in_flight = keep"), InFlight::Keep);
    assert_eq!(in_flight("schedule = async; order = arrival; in_flight = recompute"), InFlight::Recompute);
    for train in ["in_flight = keep", "schedule = async; staleness = 0; in_flight = recompute"] {
        let text = messages(train, "", &[]);
        assert!(text.contains("`in_flight` has no effect with a staleness of 0"), "{text}");
    }
    let train = "schedule = async; in_flight = keep";
    let text = file(train, "server = fleet") + "server fleet = \"http://127.0.0.1:8000\"\n";
    let checked = check(&Source { name: "x.mas".to_owned(), text }, &[], &TestCatalog);
    let text = render::short(&checked.diagnostics, &checked.sources);
    assert!(text.contains("does not tell which weights it samples a token with"), "{text}");
}

#[test]
fn flat_groups_of_one_sample_are_kept_unless_advantages_are_relative() {
    let found =
        |train: &str, overrides: &[&str]| messages(&format!("flat_groups = drop; {train}"), "", overrides);
    let message = "`flat_groups = drop` has no effect with `samples = 1`";
    let ungrouped = "baseline = none; scale = batch; samples = 1";
    for train in ["algorithm = ppo; samples = 1", "advantage = ema; samples = 1", ungrouped] {
        let text = found(train, &[]);
        assert!(text.contains(message), "{train}: {text}");
    }
    for train in ["samples = 2", "algorithm = ppo; samples = 2"] {
        assert_eq!(found(train, &[]), "", "{train}");
    }
    // A group of several agents, and a sample less for a quick look.
    assert!(!found(&format!("group_by = [task]; {ungrouped}"), &[]).contains(message));
    assert_eq!(found("algorithm = ppo", &["train.samples=1"]), "");
}

#[test]
fn tasks_that_end_first_are_trained_on_first_under_conditions() {
    let order = |train: &str| valid(train, "", &[]).train.unwrap().order;
    assert_eq!(order("schedule = async"), BatchOrder::Keys);
    assert_eq!(order("schedule = async; order = arrival"), BatchOrder::Arrival);
    for train in ["order = arrival", "schedule = one_step_off; order = arrival"] {
        let text = messages(train, "", &[]);
        assert!(text.contains("`order = arrival` has no effect with a staleness of"), "{text}");
    }
    let drops = "schedule = async; order = arrival; flat_groups = drop";
    assert_eq!(valid(drops, "", &[]).train.unwrap().max_refills, 0);
    let text = messages(&format!("{drops}; max_refills = 3"), "", &[]);
    assert!(text.contains("so it can't be refilled"), "{text}");
    let by_success =
        "environment problems = maths.problems { curriculum { from = 1; to = 3; raise_at = 0.8 } }";
    let text = file("schedule = async; order = arrival", "")
        .replace("environment problems = maths.problems", by_success);
    let checked = check(&Source { name: "x.mas".to_owned(), text }, &[], &TestCatalog);
    let text = render::short(&checked.diagnostics, &checked.sources);
    assert!(text.contains("can't rise by the success of a step"), "{text}");
}

#[test]
fn a_staleness_of_a_policy_has_conditions() {
    let own = "train { staleness = 4 }";
    let text = messages("", own, &[]);
    assert!(text.contains("only with `schedule = async`"), "{text}");
    let text = messages("schedule = async", own, &[]);
    assert!(text.contains("policies `coder` and `reasoner` are adapters on one model"), "{text}");
    assert!(text.contains("their staleness is 4 and 2"), "{text}");
    assert_eq!(messages("schedule = async; staleness = 4", own, &[]), "");

    // Two models: each policy can have its own, unless its versions replace each other.
    let two_models = file("schedule = async", own).replace(
        "policy reasoner { model = base",
        "model other = \"smollm2-135m\"\npolicy reasoner { model = other",
    );
    let workflow = |text: String| check(&Source { name: "x.mas".to_owned(), text }, &[], &TestCatalog);
    let checked = workflow(two_models.clone());
    assert!(checked.diagnostics.is_empty(), "{}", render::short(&checked.diagnostics, &checked.sources));
    let checked = checked.workflow.unwrap();
    assert_eq!([0, 1].map(|policy| checked.staleness(policy)), [4, 2]);
    assert_eq!(checked.largest_staleness(), 4);
    let whole = workflow(two_models.replace("other; lora { rank = 4 }", "other"));
    let text = render::short(&whole.diagnostics, &whole.sources);
    assert!(
        text.contains("policy `reasoner` trains a whole model, so its versions replace each other"),
        "{text}"
    );
}
