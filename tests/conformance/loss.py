"""Makes the losses and advantages that `pl-trainer` is checked against, by TRL's own formulas.

    pip install --no-deps --target /tmp/trl trl
    python3 tests/conformance/loss.py /tmp/trl          writes tests/conformance/loss/trl.json

TRL's formulas stand inside methods of its GRPO trainer. They are not copied here: this script finds the statements
in the source of the installed package and runs them on seeded tensors, in double precision. Needs torch.
"""

import ast
import json
import sys
from pathlib import Path
from types import SimpleNamespace

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


def main():
    package = Path(sys.argv[1])
    source = (package / "trl" / "trainer" / "grpo_trainer.py").read_text()
    result = {
        "trl": next(package.glob("trl-*.dist-info")).name.removeprefix("trl-").removesuffix(".dist-info"),
        "loss": losses(method(source, "_compute_loss")),
        "advantages": advantages(method(source, "_generate_and_score_completions")),
    }
    target = HERE / "loss" / "trl.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
