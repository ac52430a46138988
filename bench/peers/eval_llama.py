"""The peer of `pl-host evaluate --out`: llama.cpp answers the same prompts, token for token, from the same file.

    pl-host evaluate examples/code.mas --set … --out ours.jsonl
    python bench/peers/eval_llama.py ours.jsonl --tasks humaneval.jsonl --workflow examples/code.mas \
        --max-tokens 512 --out theirs.jsonl

Needs xllamacpp. Greedy, several prompts at a time. Answers are graded by `pl-host grade`, and so are those of the
file compared with, so that both went the same way. Prints one line of JSON: for each side the share that is right
with its 95 % interval (Wilson 1927), how many completions are the same text, on how many the sides disagree, and
llama.cpp's tokens and seconds, of the clock and of the CPU: the latter say more where others are at work.
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import subprocess
import threading
import time

import xllamacpp

# Over prompt and completion: what one sequence may need.
CONTEXT = 2048


def serve(path, threads, parallel):
    parameters = xllamacpp.CommonParams()
    parameters.model.path = path
    parameters.n_ctx = CONTEXT * parallel
    parameters.n_parallel = parallel
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = threads
    parameters.n_gpu_layers = 0
    parameters.verbosity = 0
    return xllamacpp.Server(parameters)


def complete(server, prompt, max_tokens):
    answer = server.handle_completions({"prompt": prompt, "max_tokens": max_tokens, "temperature": 0})
    if "choices" not in answer:
        raise SystemExit(f"llama.cpp refuses a prompt of {len(prompt)} tokens: {answer}")
    choice = answer["choices"][0]
    return {
        "text": choice["text"],
        "finish": choice["finish_reason"],
        "tokens": answer["usage"]["completion_tokens"],
    }


def grade(program, workflow, records, texts):
    """For each text, whether it is right."""
    lines = "".join(json.dumps({"task": r, "pred": t}) + "\n" for r, t in zip(records, texts))
    ran = subprocess.run(
        [program, "grade", workflow, "--json"], input=lines, capture_output=True, text=True, check=False
    )
    if ran.returncode != 0:
        raise SystemExit(f"pl-host grade failed:\n{ran.stderr}")
    return [json.loads(line)["correct"] for line in ran.stdout.splitlines()]


def wilson(right, total):
    z = 1.96
    share = right / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return [round(middle - half, 4), round(middle + half, 4)]


def side(right):
    count = sum(right)
    return {"right": count, "share": round(count / len(right), 4), "interval": wilson(count, len(right))}


def main():
    cache = os.environ.get("PL_HOST_CACHE", str(pathlib.Path.home() / ".cache/pl-host"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ours", help="what `pl-host evaluate --out` wrote")
    parser.add_argument("--tasks", required=True, help="the task file of that evaluation")
    parser.add_argument("--workflow", required=True, help="whose agent and grader judge")
    parser.add_argument("--out", required=True, help="llama.cpp's answers, a line of JSON each")
    parser.add_argument("--max-tokens", type=int, required=True)
    parser.add_argument("--model", default=f"{cache}/models/qwen2.5-coder-1.5b/model.gguf")
    parser.add_argument("--pl-host", default="target/release/pl-host")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--parallel", type=int, default=16)
    arguments = parser.parse_args()

    ours = [json.loads(line) for line in pathlib.Path(arguments.ours).read_text().splitlines()]
    tasks = pathlib.Path(arguments.tasks).read_text().splitlines()
    # A task of a file is called by the file's name and the number of its line.
    records = [json.loads(tasks[int(line["task"].rsplit(":", 1)[1]) - 1]) for line in ours]

    server = serve(arguments.model, arguments.threads, arguments.parallel)
    lock = threading.Lock()
    start, own = time.perf_counter(), time.process_time()
    with pathlib.Path(arguments.out).open("w") as out:

        def answer(line):
            completion = complete(server, line["prompt"], arguments.max_tokens)
            with lock:
                out.write(json.dumps({"task": line["task"], **completion}) + "\n")
                out.flush()
            return completion

        with concurrent.futures.ThreadPoolExecutor(arguments.parallel) as pool:
            theirs = list(pool.map(answer, ours))
    seconds, cpu = time.perf_counter() - start, time.process_time() - own

    texts = [completion["text"] for completion in theirs]
    right_ours = grade(arguments.pl_host, arguments.workflow, records, [line["text"] for line in ours])
    right_theirs = grade(arguments.pl_host, arguments.workflow, records, texts)
    result = {
        "completions": len(ours),
        "ours": side(right_ours),
        "theirs": side(right_theirs),
        "identical": sum(line["text"] == text for line, text in zip(ours, texts)),
        "verdicts_differ": sum(a != b for a, b in zip(right_ours, right_theirs)),
        "tokens": sum(completion["tokens"] for completion in theirs),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "tokens_per_second": round(sum(completion["tokens"] for completion in theirs) / seconds, 1),
    }
    print(json.dumps(result))


main()
