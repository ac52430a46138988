"""Makes the losses, advantages, corrections and divergences that `pl-trainer` is checked against, by the formulas of
TRL and verl.

    pip install --no-deps --target /tmp/peers trl verl
    python3 tests/conformance/loss.py /tmp/peers         writes tests/conformance/loss/{trl,verl}.json

TRL's formulas stand inside methods of its GRPO trainer, and verl's in modules that import much else. They are not copied
here: this script finds the statements and functions in the sources of the installed packages and runs them on seeded
tensors, in double precision. Needs torch and numpy.
"""

import ast
import __future__
import json
import math
import sys
import typing
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import numpy
import torch

HERE = Path(__file__).parent
BOUNDS = [(0.2, 0.28, 3.0), (0.2, 0.2, None), (0.1, 0.4, 1.8)]


def method(source, name):
    found = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef) and n.name == name]
    (one,) = found
    return one


def assigned(node, name):
    """All statements below `node` that assign to `name`."""
    targets = lambda n: [ast.unparse(t) for t in n.targets] if isinstance(n, ast.Assign) else []
    return [n for n in ast.walk(node) if name in targets(n)]


def branch(node, test, name):
    """The body of the `if` or `elif` whose condition contains `test` and which assigns to `name`."""
    for n in ast.walk(node):
        if isinstance(n, ast.If) and test in ast.unparse(n.test):
            if any(assigned(statement, name) for statement in n.body):
                return n.body
    raise SystemExit(f"TRL's source has no branch {test} that sets {name}: adapt this script to its version")


def run(statements, names):
    code = ast.Module(body=list(statements), type_ignores=[])
    scope = {"torch": torch, **names}
    exec(compile(ast.fix_missing_locations(code), "trl", "exec"), scope)  # noqa: S102
    names.update(scope)
    return names


def losses(loss):
    generator = torch.Generator().manual_seed(7)
    rows, tokens = 6, 16
    old = -torch.rand(rows, tokens, generator=generator, dtype=torch.double) * 4
    new = old + torch.randn(rows, tokens, generator=generator, dtype=torch.double) * 0.6
    advantages = torch.randn(rows, 1, generator=generator, dtype=torch.double)
    cases = []
    for low, high, delta in BOUNDS:
        logp = new.clone().requires_grad_()
        trainer = SimpleNamespace(epsilon_low=low, epsilon_high=high, args=SimpleNamespace(delta=delta))
        names = {"self": trainer, "log_importance_weights": logp - old, "advantages": advantages}
        run([assigned(loss, "coef_1")[0], *branch(loss, "'grpo', 'bnpo'", "per_token_loss")], names)
        mask = torch.ones_like(old)
        names["mask"] = mask
        mean = branch(loss, "== 'bnpo'", "loss")
        run([statement for statement in mean if assigned(statement, "loss")][:1], names)
        names["loss"].backward()
        cases.append({
            "low": low,
            "high": high,
            "dual": delta or 0.0,
            "per_token": names["per_token_loss"].flatten().tolist(),
            "mean": names["loss"].item(),
            "gradient": logp.grad.flatten().tolist(),
        })
    kl = run(assigned(loss, "per_token_kl")[:1], {"ref_per_token_logps": new, "per_token_logps": old})
    return {
        "logp": new.flatten().tolist(),
        "old_logp": old.flatten().tolist(),
        "advantages": advantages.expand(rows, tokens).flatten().tolist(),
        "cases": cases,
        "k3": kl["per_token_kl"].flatten().tolist(),
    }


def advantages(score):
    generator = torch.Generator().manual_seed(8)
    group = 4
    rewards = torch.randint(0, 5, (6, group), generator=generator).double() / 4
    rewards[1] = 0.25
    body = branch(score, "'sum_then_normalize'", "advantages")
    nanstd = lambda x, dim: x.std(dim=dim)
    cases = {}
    for scale, name in [("group", "group_scaled"), ("none", "unscaled")]:
        names = {
            "self": SimpleNamespace(scale_rewards=scale, reward_weights=torch.ones(1).double()),
            "device": "cpu",
            "rewards_per_func": rewards.view(-1, 1),
            "unscorable_mask": torch.zeros(rewards.numel(), dtype=torch.bool),
            "num_generations": group,
            "nanstd": nanstd,
        }
        cases[name] = run(body, names)["advantages"].tolist()
    # TRL adds 1e-4 to the spread; what is compared is the advantage times its divisor.
    return {"group": group, "rewards": rewards.flatten().tolist(), "epsilon": 1e-4, **cases}


def other_losses(loss):
    """CISPO, and GSPO's ratio over completions of different lengths with the means of `grpo` and `dr_grpo`."""
    generator = torch.Generator().manual_seed(9)
    rows, tokens = 5, 12
    old = -torch.rand(rows, tokens, generator=generator, dtype=torch.double) * 3 - 0.1
    new = old + torch.randn(rows, tokens, generator=generator, dtype=torch.double) * 0.5
    advantages = torch.randn(rows, 1, generator=generator, dtype=torch.double)
    lengths = torch.tensor([12, 3, 7, 1, 9])
    mask = (torch.arange(tokens) < lengths[:, None]).double()
    cases = []
    for kind, level, low, high in [
        ("cispo", "token", 0.2, 1.3),
        ("grpo", "token", 0.2, 0.28),
        ("grpo", "sequence", 0.1, 0.15),
        ("dr_grpo", "sequence", 0.1, 0.15),
    ]:
        logp = new.clone().requires_grad_()
        names = {
            "self": SimpleNamespace(
                importance_sampling_level=level,
                loss_type=kind,
                epsilon_low=low,
                epsilon_high=high,
                max_completion_length=20,
                args=SimpleNamespace(delta=None),
                current_gradient_accumulation_steps=1,
                model=SimpleNamespace(training=True),
            ),
            "log_ratio": logp - old,
            "per_token_logps": logp,
            "advantages": advantages,
            "mask": mask,
            "mode": "train",
        }
        run(branch(loss, f"importance_sampling_level == '{level}'", "log_importance_weights"), names)
        run([assigned(loss, "coef_1")[0]], names)
        per_token = branch(loss, "== 'cispo'" if kind == "cispo" else "'grpo', 'bnpo'", "per_token_loss")
        run(per_token, names)
        if kind == "cispo":
            # TRL's mean over the tokens of the whole generation batch.
            names["loss"] = (names["per_token_loss"] * mask).sum() / mask.sum()
        else:
            mean = branch(loss, "'grpo', 'sapo'" if kind == "grpo" else "== 'dr_grpo'", "loss")
            run([statement for statement in mean if assigned(statement, "loss")][:1], names)
        names["loss"].backward()
        cases.append({
            "kind": kind,
            "level": level,
            "low": low,
            "high": high,
            "loss": names["loss"].item(),
            "gradient": logp.grad.flatten().tolist(),
        })
    return {
        "tokens": tokens,
        "lengths": lengths.tolist(),
        "divisor": 20,
        "logp": new.flatten().tolist(),
        "old_logp": old.flatten().tolist(),
        "advantages": advantages.flatten().tolist(),
        "cases": cases,
    }


def functions(sources, wanted, scope):
    """Defines functions and classes of some sources without their decorators. Returns a namespace."""
    future = __future__.annotations.compiler_flag
    for source in sources:
        for node in ast.parse(source).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in wanted:
                node.decorator_list = []
                code = ast.Module(body=[node], type_ignores=[])
                exec(compile(code, "verl", "exec", flags=future), scope)  # noqa: S102
    missing = [name for name in wanted if name not in scope]
    if missing:
        raise SystemExit(f"verl's sources have no {missing}: adapt this script to its version")
    return SimpleNamespace(**scope)


class Config(SimpleNamespace):
    def get(self, name, default):
        return getattr(self, name, default)


def verl_functions(package):
    base = {"torch": torch, "np": numpy, "defaultdict": defaultdict, "math": math, **vars(typing)}
    utils = (package / "verl" / "utils" / "torch_functional.py").read_text()
    masked = functions(
        [utils], ["masked_sum", "masked_mean", "masked_var", "masked_whiten", "clip_by_value"], dict(base)
    )
    ppo = package / "verl" / "trainer" / "ppo"
    sources = [(ppo / name).read_text() for name in ["core_algos.py", "rollout_corr_helper.py"]]
    constants = {}
    for node in ast.parse(sources[1]).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            code = ast.Module(body=[node], type_ignores=[])
            exec(compile(code, "verl", "exec"), base, constants)  # noqa: S102
    nothing = lambda **_: {}
    scope = dict(base, **constants, verl_F=masked, ActorConfig=Config, AlgoConfig=type(None), DictConfig=type(None))
    scope.update(compute_is_metrics=nothing, compute_rs_metrics=nothing)
    return functions(
        sources,
        [
            "AdaptiveKLController",
            "agg_loss",
            "compute_grpo_outcome_advantage",
            "compute_policy_loss_cispo",
            "compute_policy_loss_dppo_tv",
            "compute_policy_loss_gspo",
            "compute_policy_loss_reinforce",
            "compute_policy_loss_vanilla",
            "compute_reinforce_plus_plus_baseline_outcome_advantage",
            "compute_reinforce_plus_plus_outcome_advantage",
            "compute_rloo_outcome_advantage",
            "compute_rollout_correction_weights",
            "compute_rollout_rejection_mask",
            "kl_penalty",
            "kl_penalty_forward",
            "_parse_rollout_is_threshold",
            "_parse_rollout_rs_thresholds",
        ],
        scope,
    )


VERL_LOSSES = [
    # Function, lower and upper bound, dual clip or largest ratio.
    ("vanilla", 0.2, 0.28, 3.0),
    ("vanilla", 0.1, 0.4, 1.5),
    ("gspo", 0.05, 0.08, None),
    ("cispo", 0.2, 0.28, None),
    ("cispo", 1.0, 0.28, None),
    ("dppo_tv", 0.05, 0.1, 20.0),
    ("reinforce", None, None, None),
]


def verl_losses(verl):
    generator = torch.Generator().manual_seed(10)
    rows, tokens = 6, 14
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.double)
    old = -torch.rand(rows, tokens, generator=generator, dtype=torch.double) * 3 - 0.05
    new = (old + normal(rows, tokens) * 0.5).clamp(max=-0.001)
    reference = (old + normal(rows, tokens) * 0.3).clamp(max=-0.001)
    sampler = (old + normal(rows, tokens) * 0.4).clamp(max=-0.001)
    advantages = normal(rows, tokens)
    lengths = torch.tensor([14, 2, 9, 1, 6, 11])
    mask = (torch.arange(tokens) < lengths[:, None]).double()
    modes = {"token_mean": "token-mean", "sequence_mean": "seq-mean-token-mean", "constant": "seq-mean-token-sum-norm"}
    weights, _ = verl.compute_rollout_correction_weights(old - sampler, mask, "token", 2.0)
    cases = []
    for name, low, high, bound in VERL_LOSSES:
        for aggregation, mode in modes.items():
            for corrected in [False, True]:
                logp = new.clone().requires_grad_()
                info = {"loss_scale_factor": 20} if aggregation == "constant" else {}
                config = Config(clip_ratio=low, clip_ratio_low=low, clip_ratio_high=high, global_batch_info=info)
                if bound:
                    config.clip_ratio_c = bound
                given = {"log_prob": logp, "advantages": advantages, "response_mask": mask, "loss_agg_mode": mode}
                given.update(config=config, rollout_is_weights=weights if corrected else None)
                given["rollout_log_prob" if name == "reinforce" else "old_log_prob"] = old
                function = getattr(verl, f"compute_policy_loss_{name}")
                loss, _ = function(**given)
                loss.backward()
                cases.append({
                    "name": name,
                    "low": low or 0.0,
                    "high": high or 0.0,
                    "bound": bound or 0.0,
                    "aggregation": aggregation,
                    "corrected": corrected,
                    "loss": loss.item(),
                    "gradient": logp.grad.flatten().tolist(),
                })
    divergences = {}
    for ours, theirs in [("k1", "k1"), ("k2", "k2"), ("k3", "low_var_kl"), ("straight_through", "k3+")]:
        logp = new.clone().requires_grad_()
        divergence = verl.kl_penalty(logp, reference, theirs)
        divergence.sum().backward()
        divergences[ours] = {"values": divergence.flatten().tolist(), "gradient": logp.grad.flatten().tolist()}
    corrections = {"tis": weights.flatten().tolist()}
    icepop, _ = verl.compute_rollout_correction_weights(old - sampler, mask, "token", "0.75_1.4")
    corrections["icepop"] = icepop.flatten().tolist()
    # The bounds of `seq_mean_k1` are those of the sampler's ratio to the policy.
    kept, _ = verl.compute_rollout_rejection_mask(old - sampler, mask, "seq_mean_k1", f"{1 / 1.1}_{1 / 0.95}")
    corrections["sequence_mask"] = kept.flatten().tolist()
    return {
        "tokens": tokens,
        "lengths": lengths.tolist(),
        "divisor": 20,
        "logp": new.flatten().tolist(),
        "old_logp": old.flatten().tolist(),
        "reference": reference.flatten().tolist(),
        "sampler": sampler.flatten().tolist(),
        "advantages": advantages.flatten().tolist(),
        "cases": cases,
        "divergences": divergences,
        "corrections": corrections,
    }


def verl_advantages(verl):
    generator = torch.Generator().manual_seed(11)
    lengths = torch.tensor([5, 3, 1, 4, 2, 6, 3, 5, 4, 2, 1, 6])
    rows, tokens = len(lengths), int(lengths.max())
    mask = (torch.arange(tokens) < lengths[:, None]).double()
    scores = torch.randint(0, 5, (rows,), generator=generator).double() / 4
    index = numpy.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2])
    rewards = torch.zeros(rows, tokens, dtype=torch.double)
    rewards[torch.arange(rows), lengths - 1] = scores
    penalties = torch.rand(rows, tokens, generator=generator, dtype=torch.double) * 0.2 * mask
    first = lambda result: result[0][:, 0].tolist()
    groups = {"token_level_rewards": rewards, "response_mask": mask, "index": index}
    whitened = verl.compute_reinforce_plus_plus_baseline_outcome_advantage(**groups)[0]
    plus_plus = lambda rewards: verl.compute_reinforce_plus_plus_outcome_advantage(
        token_level_rewards=rewards, response_mask=mask, config=Config(gamma=1.0)
    )[0]
    controller = verl.AdaptiveKLController(init_kl_coef=0.2, target_kl=0.1, horizon=1000)
    measured = [(0.5, 64), (0.105, 32), (0.02, 128), (0.1, 64)]
    coefficients = []
    for kl, completions in measured:
        controller.update(current_kl=kl, n_steps=completions)
        coefficients.append(float(controller.value))
    return {
        "lengths": lengths.tolist(),
        "groups": index.tolist(),
        "scores": scores.tolist(),
        "penalties": penalties.flatten().tolist(),
        "grpo": first(verl.compute_grpo_outcome_advantage(**groups)),
        "dr_grpo": first(verl.compute_grpo_outcome_advantage(**groups, norm_adv_by_std_in_grpo=False)),
        "rloo": first(verl.compute_rloo_outcome_advantage(**groups)),
        "batch": whitened.flatten().tolist(),
        "reinforce_pp": plus_plus(rewards).flatten().tolist(),
        "reinforce_pp_penalised": plus_plus(rewards - penalties).flatten().tolist(),
        "adaptive": {"start": 0.2, "target": 0.1, "horizon": 1000, "measured": measured, "coefficients": coefficients},
    }


def version(package, name):
    return next(package.glob(f"{name}-*.dist-info")).name.removeprefix(f"{name}-").removesuffix(".dist-info")


def write(name, result):
    target = HERE / "loss" / f"{name}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n")


def main():
    package = Path(sys.argv[1])
    source = (package / "trl" / "trainer" / "grpo_trainer.py").read_text()
    write("trl", {
        "trl": version(package, "trl"),
        "loss": losses(method(source, "_compute_loss")),
        "other_losses": other_losses(method(source, "_compute_loss")),
        "advantages": advantages(method(source, "_generate_and_score_completions")),
    })
    verl = verl_functions(package)
    write("verl", {
        "verl": version(package, "verl"),
        "losses": verl_losses(verl),
        "advantages": verl_advantages(verl),
    })


if __name__ == "__main__":
    main()
