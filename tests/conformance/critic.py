"""Makes the generalised advantage estimates and value losses that `pl-trainer` is checked against, by verl's functions.

    python3 tests/conformance/critic.py /tmp/peers       writes tests/conformance/loss/verl-critic.json

`/tmp/peers` is that of `loss.py`. Rows of several turns have the observations between them masked, as in verl.
"""

import sys
from pathlib import Path

import torch

from loss import functions, verl_functions, version, write

WIDTH = 15
# 1 for tokens of the agent; a row's turns are separated by 0.
MASKS = [
    "111111111111111",
    "111100000000000",
    "111011110000000",
    "110010111101100",
    "100100100100111",
]


def estimates(compute, mask):
    generator = torch.Generator().manual_seed(11)
    random = lambda: torch.randn(mask.shape, generator=generator, dtype=torch.float64)
    cases = []
    for gamma, decay in [(1.0, 1.0), (0.99, 0.95), (0.9, 0.5), (0.8, 0.0)]:
        rewards, values = random() * mask, random().float().double()
        advantages, returns = compute(rewards, values, mask, gamma, decay)
        cases.append({
            "gamma": gamma,
            "lambda": decay,
            "rewards": rewards.flatten().tolist(),
            "values": values.flatten().tolist(),
            "whitened": advantages.flatten().tolist(),
            "returns": returns.flatten().tolist(),
        })
    return cases


def value_losses(compute, mask):
    generator = torch.Generator().manual_seed(12)
    random = lambda: torch.randn(mask.shape, generator=generator, dtype=torch.float64)
    cases = []
    for clip in [0.2, 0.5]:
        for aggregation, mode in [("token_mean", "token-mean"), ("sequence_mean", "seq-mean-token-mean")]:
            predicted, old, returns = random().requires_grad_(), random(), random()
            loss, clipped = compute(predicted, returns, old, mask, clip, mode)
            loss.backward()
            cases.append({
                "clip": clip,
                "aggregation": aggregation,
                "predicted": predicted.detach().flatten().tolist(),
                "old": old.flatten().tolist(),
                "returns": returns.flatten().tolist(),
                "loss": loss.item(),
                "clipped": clipped.item(),
                "gradient": predicted.grad.flatten().tolist(),
            })
    return cases


def main():
    package = Path(sys.argv[1])
    verl = verl_functions(package)
    source = (package / "verl" / "trainer" / "ppo" / "core_algos.py").read_text()
    scope = vars(verl)
    critic = functions([source], ["compute_gae_advantage_return", "compute_value_loss"], dict(scope))
    mask = torch.tensor([[float(token) for token in row] for row in MASKS], dtype=torch.float64)
    write("verl-critic", {
        "verl": version(package, "verl"),
        "width": WIDTH,
        "mask": mask.flatten().tolist(),
        "estimates": estimates(critic.compute_gae_advantage_return, mask),
        "value_losses": value_losses(critic.compute_value_loss, mask),
    })


if __name__ == "__main__":
    main()
