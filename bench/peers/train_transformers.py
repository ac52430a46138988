"""The peer of `cargo bench -p pl-trainer`: the same update with transformers, torch eager and AdamW.

    python bench/peers/train_transformers.py [full|lora] [--model FILE.gguf] [--threads 2] [--runs 3]

Needs torch, transformers, gguf and, for `lora`, peft. Eight sequences of 128 prompt and 128 completion tokens, f32,
the clipped policy loss over completion tokens, gradient clipping to norm 1, one optimiser step. `lora` is rank 16 on
all seven projections. Prints one line of JSON: the fastest run's tokens per second, all runs' seconds (on
the wall, and on all cores together, which others on the machine stretch less), the peak
memory of the process, and the machine's own matrix product rate, measured in the same run.
"""

import argparse
import json
import os
import pathlib
import resource
import time

import torch
from transformers import AutoModelForCausalLM

PROMPT, COMPLETION, SEQUENCES = 128, 128, 8
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def matrix_rate():
    """GFLOP/s of an f32 product of the size of a feed-forward projection."""
    a, b = torch.randn(2048, 576), torch.randn(1536, 576)
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        torch.nn.functional.linear(a, b)
        best = min(best, time.perf_counter() - start)
    return 2 * 2048 * 576 * 1536 / best / 1e9


def main():
    cache = os.environ.get("PL_HOST_CACHE", str(pathlib.Path.home() / ".cache/pl-host"))
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["full", "lora"], nargs="?", default="full")
    parser.add_argument("--model", default=f"{cache}/models/smollm2-135m/model.gguf")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    path = pathlib.Path(arguments.model)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    if arguments.kind == "lora":
        from peft import LoraConfig, get_peft_model

        config = LoraConfig(r=16, lora_alpha=32, target_modules=TARGETS, task_type="CAUSAL_LM")
        model = get_peft_model(model, config)
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, weight_decay=0.0)

    length = PROMPT + COMPLETION
    ids = torch.tensor(
        [[(n * 1000 + i) * 97 % 40_000 + 100 for i in range(length)] for n in range(SEQUENCES)]
    )
    advantages = torch.tensor([1.0 if n % 2 == 0 else -1.0 for n in range(SEQUENCES)]).unsqueeze(1)
    old = torch.full((SEQUENCES, COMPLETION), -3.0)

    def update():
        logits = model(ids[:, :-1], use_cache=False).logits[:, PROMPT - 1 :]
        logp = torch.log_softmax(logits, -1).gather(-1, ids[:, PROMPT:, None]).squeeze(-1)
        ratio = torch.exp(logp - old)
        loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.28))
        loss = torch.where(advantages < 0, torch.minimum(loss, -3.0 * advantages), loss).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    seconds, cpu = [], []
    for _ in range(arguments.runs):
        start, started = time.perf_counter(), time.process_time()
        update()
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - started)
    result = {
        "name": f"train/{arguments.kind}",
        "tokens_per_second": SEQUENCES * length / min(seconds),
        "seconds": seconds,
        "cpu_seconds": min(cpu),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "matrix_gflops": matrix_rate(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
