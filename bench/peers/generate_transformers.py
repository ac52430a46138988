"""The peer of `cargo bench -p pl-inference --bench throughput`: the same completions with transformers.

    python bench/peers/generate_transformers.py [--model FILE.gguf] [--threads 2] [--runs 2]

Needs torch, transformers, gguf. Prompts of 32 tokens, 128 new tokens each, sampled at temperature 1, f32: one alone,
then 16 in one batch. Prints a line of JSON for each: tokens per second of the fastest run, over the whole call, and
the seconds of CPU time that it took.
"""

import argparse
import json
import os
import pathlib
import time

import torch
from transformers import AutoModelForCausalLM

PROMPT, NEW = 32, 128


def main():
    cache = os.environ.get("PL_HOST_CACHE", str(pathlib.Path.home() / ".cache/pl-host"))
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default=f"{cache}/models/smollm2-135m/model.gguf")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    path = pathlib.Path(arguments.model)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    for count in (1, 16):
        prompts = torch.tensor([[1000 + (row * PROMPT + i) * 7 % 20_000 for i in range(PROMPT)] for row in range(count)])
        best, cpu = float("inf"), 0.0
        for _ in range(arguments.runs):
            start, own = time.perf_counter(), time.process_time()
            with torch.no_grad():
                out = model.generate(
                    prompts,
                    attention_mask=torch.ones_like(prompts),
                    do_sample=True,
                    temperature=1.0,
                    top_k=0,
                    top_p=1.0,
                    min_new_tokens=NEW,
                    max_new_tokens=NEW,
                    pad_token_id=2,
                )
            seconds = time.perf_counter() - start
            if seconds < best:
                best, cpu = seconds, time.process_time() - own
        assert out.shape == (count, PROMPT + NEW)
        result = {"name": f"generate/{count}/f32", "tokens_per_second": count * NEW / best, "cpu_seconds": cpu}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
