"""The peer of `cargo bench -p pl-inference --bench throughput`: the same completions with llama.cpp.

    python bench/peers/generate_llama.py [--model FILE.gguf] [--threads 2] [--runs 2]

Needs xllamacpp (llama.cpp's server in a Python module). The file's own quantised weights; prompts of 32 tokens,
128 new tokens each, sampled at temperature 1: one alone, then 16 in parallel. Prints a line of JSON for each.
"""

import argparse
import json
import os
import pathlib
import time
from concurrent.futures import ThreadPoolExecutor

import xllamacpp

PROMPT, NEW = 32, 128


def server(model, parallel, threads):
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_parallel = parallel
    params.n_ctx = parallel * 512
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.n_gpu_layers = 0
    params.cont_batching = True
    params.verbosity = 0
    return xllamacpp.Server(params)


def complete(running, tokens):
    request = {
        "prompt": tokens,
        "n_predict": NEW,
        "ignore_eos": True,
        "cache_prompt": False,
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "samplers": ["temperature"],
    }
    answer = running.handle_completions(request)
    if isinstance(answer, (str, bytes)):
        answer = json.loads(answer)
    if isinstance(answer, list):
        answer = answer[0]
    usage = answer.get("usage") or {}
    return answer.get("tokens_predicted") or usage.get("completion_tokens") or 0


def main():
    cache = os.environ.get("PL_HOST_CACHE", str(pathlib.Path.home() / ".cache/pl-host"))
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default=f"{cache}/models/smollm2-135m/model.gguf")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=2)
    arguments = parser.parse_args()
    for count in (1, 16):
        running = server(arguments.model, count, arguments.threads)
        prompts = [[1000 + (row * PROMPT + i) * 7 % 20_000 for i in range(PROMPT)] for row in range(count)]
        best, cpu = 0.0, 0.0
        with ThreadPoolExecutor(count) as pool:
            for _ in range(arguments.runs + 1):
                start, own = time.perf_counter(), time.process_time()
                tokens = sum(pool.map(lambda prompt: complete(running, prompt), prompts))
                assert tokens == count * NEW, f"{tokens} tokens instead of {count * NEW}"
                rate = tokens / (time.perf_counter() - start)
                if rate > best:
                    best, cpu = rate, time.process_time() - own
        result = {"name": f"generate/{count}/q4_1", "tokens_per_second": best, "cpu_seconds": cpu}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
