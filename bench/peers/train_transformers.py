"""The peer of `cargo bench -p pl-trainer`: the same update with transformers, torch eager and AdamW.

    python bench/peers/train_transformers.py [full|lora] [--model FILE.gguf|FOLDER] [--threads 2] [--runs 3] [--device cuda]

Needs torch, transformers, gguf for GGUF files and, for `lora`, peft. Eight sequences of 128 prompt and 128 completion tokens, f32,
the clipped policy loss over completion tokens, gradient clipping to norm 1, one optimiser step. `lora` is rank 16 on
all seven projections. On a GPU, bf16 with torch's flash attention, and eight sequences of 2,048 prompt and 2,048 completion
tokens in passes of `--rows` sequences, which have no padding. Prints one line of JSON: the fastest run's tokens per second, all runs' seconds (on
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

SEQUENCES = 8
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def matrix_rate(config, rows, device, dtype):
    """GFLOP/s of a product of the size of a feed-forward projection."""
    hidden, ffn = config.hidden_size, config.intermediate_size
    a, b = (torch.randn(size, hidden, device=device, dtype=dtype) for size in (rows, ffn))
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        torch.nn.functional.linear(a, b)[0, 0].item()
        best = min(best, time.perf_counter() - start)
    return 2 * rows * hidden * ffn / best / 1e9


def main():
    cache = os.environ.get("PL_HOST_CACHE", str(pathlib.Path.home() / ".cache/pl-host"))
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["full", "lora"], nargs="?", default="full")
    parser.add_argument("--model", default=f"{cache}/models/smollm2-135m/model.gguf")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rows", type=int, help="sequences of a pass (default: all; 4 on a GPU)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    device, on_gpu = arguments.device, arguments.device == "cuda"
    prompt, completion, dtype = (2048, 2048, torch.bfloat16) if on_gpu else (128, 128, torch.float32)
    rows = arguments.rows or (4 if on_gpu else SEQUENCES)
    path = pathlib.Path(arguments.model)
    folder, gguf = (path, {}) if path.is_dir() else (path.parent, {"gguf_file": path.name})
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa", **gguf).to(device)
    if arguments.kind == "lora":
        from peft import LoraConfig, get_peft_model

        config = LoraConfig(r=16, lora_alpha=32, target_modules=TARGETS, task_type="CAUSAL_LM")
        model = get_peft_model(model, config)
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, weight_decay=0.0)

    length = prompt + completion
    ids = torch.tensor(
        [[(n * 1000 + i) * 97 % 40_000 + 100 for i in range(length)] for n in range(SEQUENCES)], device=device
    )
    advantages = torch.tensor([1.0 if n % 2 == 0 else -1.0 for n in range(SEQUENCES)], device=device).unsqueeze(1)
    old = torch.full((SEQUENCES, completion), -3.0, device=device)

    def backward(ids, advantages, old):
        # Logits of the completions alone, as the last positions of the model.
        logits = model(ids[:, :-1], use_cache=False, logits_to_keep=completion).logits
        logp = torch.log_softmax(logits.float(), -1).gather(-1, ids[:, prompt:, None]).squeeze(-1)
        ratio = torch.exp(logp - old)
        loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.28))
        loss = torch.where(advantages < 0, torch.minimum(loss, -3.0 * advantages), loss).sum()
        (loss / (SEQUENCES * completion)).backward()

    def update():
        for some in torch.arange(SEQUENCES, device=device).split(rows):
            backward(ids[some], advantages[some], old[some])
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if on_gpu:
            torch.cuda.synchronize()

    seconds, cpu = [], []
    for _ in range(arguments.runs):
        start, started = time.perf_counter(), time.process_time()
        update()
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - started)
    peak = torch.cuda.max_memory_allocated() if on_gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    result = {
        "name": f"train/{arguments.kind}",
        "tokens_per_second": SEQUENCES * length / min(seconds),
        "seconds": seconds,
        "cpu_seconds": min(cpu),
        "peak_bytes": peak,
        "matrix_gflops": matrix_rate(model.config, rows * length, device, dtype),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
