"""Runs the kit of `cargo xtask gpu-kit` on a machine with a GPU: checks, whole runs and benchmarks, one stage after another.

    python3 kit.py [--device cuda|cpu] [--seconds 540] [--out report] [--stages doctor,parity] [--torch FOLDER]

Needs Python 3.10 with torch 2.11 (or `--torch`, the folder of one) and nothing else. Every stage writes OUT/STAGE.json when it
ends, and OUT/report.json and OUT/report.md are written anew each time, so that whatever stops the kit leaves what was measured. A stage
that fails or takes too long does not stop the others.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import shapes

KIT = pathlib.Path(__file__).resolve().parent
PROGRAM = KIT / "pl_host/bin/pl-host"
# Last lines of a stage's output that its report keeps.
KEPT_LINES = 60
# Seconds that are left for the report.
RESERVE = 5
# Largest difference of a token's log-probability between two ways that compute it in bf16.
LARGEST_GAP = 0.1


class Kit:
    """Device, folders and environment of all stages."""

    def __init__(self, arguments, libtorch):
        self.device = arguments.device
        self.out = pathlib.Path(arguments.out).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.ends = time.monotonic() + arguments.seconds - RESERVE
        libraries = [str(libtorch / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        self.environment = os.environ | {
            "LD_LIBRARY_PATH": os.pathsep.join(libraries),
            "PL_HOST_CACHE": str(KIT / "cache"),
            "PL_HOST_BENCH_DEVICE": self.device,
            # A run names folders of the kit, which is not the user's own project.
            "PL_HOST_ALLOW_READ": str(KIT),
        }
        if self.device == "cuda":
            # A parity test that finds no device fails instead of being skipped.
            self.environment["PL_HOST_NEEDS_CUDA"] = "1"

    def run(self, command, limit, folder=KIT):
        """Runs a command with its children. Returns its exit code, or None if it took too long, and its output."""
        seconds = min(limit, self.ends - time.monotonic())
        log = self.out / "output.txt"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(part) for part in command], cwd=folder, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )
            try:
                code = process.wait(max(seconds, 1))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = None
        return code, log.read_text(errors="replace")


class Skipped(Exception):
    """A stage that this machine can't run, with the reason."""


class Failed(Exception):
    """A stage that failed, with what is known of it: the end of its output, or its figures."""

    def __init__(self, reason, output="", figures=None):
        super().__init__(reason)
        self.output, self.figures = output, figures


def check(code, output, figures=None):
    if code is None:
        raise Failed("took too long", output, figures)
    if code != 0:
        raise Failed(f"ended with {code}", output, figures)


def machine(kit):
    """The machine's name and its ceilings: products of matrices in bf16 and f32, and copies."""
    script = KIT / "ceilings.py"
    code, output = kit.run([sys.executable, script, kit.device], 120)
    if code != 0 and "No module named 'torch'" in output:
        raise Skipped("the Python that runs this has no torch")
    check(code, output)
    return json.loads(output.splitlines()[-1])


def doctor(kit):
    """What the program finds on the machine."""
    code, output = kit.run([PROGRAM, "doctor", "--json"], 60)
    start = output.find("[")
    checks = json.loads(output[start : output.rfind("]") + 1]) if start >= 0 else []
    figures = {check["name"]: f"{check['status']}: {check['found'].splitlines()[0]}" for check in checks if check["found"]}
    if not figures:
        check(code, output)
    if kit.device == "cuda" and not str(figures.get("cuda", "")).startswith("ready"):
        raise Failed("the program finds no CUDA", output, figures)
    return figures


def tests(expression):
    """The command that runs the tests of an expression of nextest."""
    return [
        KIT / "bin/cargo-nextest", "nextest", "run", "--archive-file", KIT / "tests.tar.zst",
        "--workspace-remap", KIT / "source", "--no-fail-fast", "--test-threads", "4", "--status-level", "fail",
        "-E", expression,
    ]


def parity(kit):
    """The tests of the crates that compute on the device."""
    # Without the simulations of devices, which are compiled from sources.
    kernels = "(package(pl-kernels) - test(/^cuda::(elementwise|head|lora|paged|sampling)::tests::/) - binary(graphs))"
    others = "test(/^network::transformer::(attention|gpu_tests)::/) + test(batches_on_a_gpu)"
    code, output = kit.run(tests(f"{kernels} + {others}"), 240)
    summary = next((line.strip() for line in output.splitlines() if "Summary" in line), "no summary")
    figures = {"summary": summary, "failed": [line.strip() for line in output.splitlines() if " FAIL " in line]}
    check(code, output, figures)
    return figures


def train(kit, name, workflow, settings, limit):
    """Trains a workflow and returns the figures of its steps, also of a run that failed."""
    run = kit.out / "runs" / name
    shutil.rmtree(run, ignore_errors=True)
    command = [PROGRAM, "run", workflow, "--device", kit.device, "--seed", "1", "--out", run]
    for setting in settings:
        command += ["--set", setting]
    code, output = kit.run(command, limit, workflow.parent)
    figures = figures_of(run)
    check(code, output, figures)
    return figures


def figures_of(run):
    """Rates of a run's steps, and how far the log-probs of training and sampling differ before the first update."""

    def lines(name):
        path = run / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    times, metrics = lines("timings.jsonl"), lines("metrics.jsonl")
    steps = [line for line in metrics if line.get("kind") == "step"]
    figures = {"steps": len(steps)}
    if times:
        # The first step compiles and warms up.
        last = times[-1]
        figures |= {
            "play_seconds": round(last["seconds"]["play"], 2),
            "train_seconds": round(last["seconds"]["train"], 2),
            "sampled_tokens_per_second": round(last["sampled_tokens_per_second"]),
            "trained_tokens_per_second": round(last["trained_tokens_per_second"]),
        }
    if steps:
        policies = steps[0].get("policies", {})
        figures["kl_to_sampler_before_the_first_update"] = {name: own.get("kl") for name, own in policies.items()}
    return figures


def steps(kit):
    """The main job: two agents with adapters on SmolLM2."""
    settings = ["train.steps=3", "test.every=0"]
    return train(kit, "math", KIT / "examples/math.mas", settings, 120)


def same_bits(kit):
    """Two runs of one seed: whether their transitions are equal."""
    workflow = KIT / "examples/math.mas"
    settings = ["train.steps=2", "test.every=0", "train.samples=2", "train.tasks_per_step=2"]
    for name in ("first", "second"):
        train(kit, name, workflow, settings, 90)
    read = lambda name, step: (kit.out / f"runs/{name}/steps/{step:06}.parquet").read_bytes()
    equal = {f"step {step}": read("first", step) == read("second", step) for step in (1, 2)}
    if not all(equal.values()):
        raise Failed("runs of one seed differ", figures=equal)
    return equal


def model_of(shape):
    """The folder of a model of random weights."""
    return shape.write(KIT / "shapes" / shape.name).parent / "model"


def decode(kit):
    """Generation with CUDA graphs beside the same without, at 1, 64 and 256 completions at a time: speed and results."""
    bench = KIT / "benches/decode"
    if not bench.is_file():
        raise Skipped("the kit has no benchmarks")
    shape = shapes.measured(kit.device)
    random = model_of(shape)
    figures, output = {}, ""
    for name, model in (("smollm2-135m", KIT / "cache/models/smollm2-135m/model.gguf"), (shape.name, random)):
        code, output = kit.run([bench, "--bench", model], 150)
        lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        figures[name] = {line.pop("name"): line for line in lines}
        check(code, output, figures)
    for name, own in figures.items():
        for case, line in own.items():
            where = f"{name}, {case}"
            if line["largest_gap"] > LARGEST_GAP:
                raise Failed(f"{where}: log-probs differ by {line['largest_gap']:.3f}", output, figures)
            if kit.device == "cuda" and 2 * line["replayed_steps"] < line["steps"]:
                raise Failed(f"{where}: few steps were replayed", output, figures)
    return figures


def benches(kit):
    """The project's benchmark of kernels beside plain libtorch."""
    code, output = kit.run([KIT / "benches/cuda", "--bench"], 120)
    lines = [line for line in output.splitlines() if line.strip()]
    check(code, output, lines[-KEPT_LINES:])
    return lines[-KEPT_LINES:]


def updates(kit):
    """Whole updates: all weights, an adapter, four adapters, four siblings of a prompt."""
    # On a CPU, one case with SmolLM2 shows that it runs.
    cases = ["lora, 4 siblings"]
    if kit.device == "cuda":
        kit.environment["PL_HOST_BENCH_MODEL"] = str(model_of(shapes.measured(kit.device)))
        cases = ["lora", "full", "lora, 4 siblings", "lora, 4 adapters"]
    figures, failed = {}, []
    for case in cases:
        # Each in a process of its own, whose lack of memory costs the others nothing.
        code, output = kit.run([KIT / "benches/update", "--bench", "--exact", f"train/{case}"], 60)
        lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        figures[case] = lines[0] if code == 0 and lines else {"code": code, "output": tail(output)}
        failed += [] if code == 0 and lines else [case]
    if failed:
        raise Failed(f"{', '.join(failed)} failed", figures=figures)
    return figures


def models(kit):
    """Whole steps of models of real shapes, with random weights."""
    figures = {}
    for shape in shapes.for_device(kit.device):
        try:
            workflow = shape.write(KIT / "shapes" / shape.name)
            figures[shape.name] = train(kit, shape.name, workflow, [], 150)
        except Failed as failure:
            figures[shape.name] = {"failed": str(failure), "figures": failure.figures, "output": tail(failure.output)}
    failed = [name for name, own in figures.items() if "failed" in own]
    if failed:
        raise Failed(f"{', '.join(failed)} failed", figures=figures)
    return figures


def sanitizer(kit):
    """The tests of the kernels under compute-sanitizer: accesses outside of their memory, and races within a block."""
    if kit.device == "cpu":
        raise Skipped("it watches GPUs")
    packed = KIT / "sanitizer/compute-sanitizer"
    program = packed if packed.is_file() else shutil.which("compute-sanitizer")
    if program is None:
        raise Skipped("compute-sanitizer is not installed")
    figures, failed = {}, []
    for tool in ("memcheck", "racecheck"):
        command = [program, "--tool", tool, "--target-processes", "all", "--error-exitcode", "9"]
        code, output = kit.run([*command, *tests("package(pl-kernels) & binary(cuda)")], 150)
        summaries = {line.strip("= ") for line in output.splitlines() if "SUMMARY: " in line}
        # A program that the tool could not watch ends without one.
        is_clean = code == 0 and summaries and all("SUMMARY: 0 " in line for line in summaries)
        figures[tool] = {"code": code, "summaries": sorted(summaries), "output": [] if is_clean else tail(output)}
        failed += [] if is_clean else [tool]
    if failed:
        raise Failed(f"{', '.join(failed)} failed", figures=figures)
    return figures


def peers(kit):
    """The update of transformers beside the project's, where transformers is installed."""
    if importlib.util.find_spec("transformers") is None:
        raise Skipped("transformers is not installed")
    model = KIT / "cache/models/smollm2-135m/model.gguf" if kit.device == "cpu" else model_of(shapes.measured(kit.device))
    kinds = ["full"] if kit.device == "cpu" or importlib.util.find_spec("peft") is None else ["lora", "full"]
    figures = {}
    for kind in kinds:
        command = [sys.executable, KIT / "peers/train_transformers.py", kind, "--model", model, "--device", kit.device]
        code, output = kit.run(command, 120)
        check(code, output, figures)
        figures[kind] = json.loads(output.splitlines()[-1])
    return figures


def profile(kit):
    """A profile of one step by Nsight Systems, where it is installed."""
    if shutil.which("nsys") is None:
        raise Skipped("nsys is not installed")
    run = kit.out / "runs/profile"
    shutil.rmtree(run, ignore_errors=True)
    command = ["nsys", "profile", "--stats=true", "--force-overwrite=true", "-o", kit.out / "profile"]
    command += [PROGRAM, "run", KIT / "examples/math.mas", "--device", kit.device, "--out", run]
    command += ["--set", "train.steps=1", "--set", "test.every=0"]
    code, output = kit.run(command, 180)
    check(code, output)
    return {"kernels": output.splitlines()[-KEPT_LINES:]}


# In the order of their worth, should the time end.
STAGES = [machine, doctor, parity, steps, same_bits, decode, updates, peers, benches, models, sanitizer, profile]


def tail(output):
    return output.splitlines()[-KEPT_LINES:]


def run_stage(kit, stage):
    """Runs a stage. Its result has no exception: it is written whatever happens."""
    started = time.monotonic()
    result = {"stage": stage.__name__, "what": stage.__doc__.splitlines()[0]}
    try:
        result |= {"verdict": "passed", "figures": stage(kit)}
    except Skipped as reason:
        result |= {"verdict": "skipped", "reason": str(reason)}
    except Failed as failure:
        result |= {"verdict": "failed", "reason": str(failure), "figures": failure.figures, "output": tail(failure.output)}
    except Exception as error:  # A mistake of the kit must not cost the other stages.
        result |= {"verdict": "failed", "reason": f"{type(error).__name__}: {error}"}
    return result | {"seconds": round(time.monotonic() - started, 1)}


def report(kit, results, left):
    """Writes what is known so far as JSON and Markdown."""
    manifest = json.loads((KIT / "manifest.json").read_text())
    whole = {"kit": manifest, "device": kit.device, "stages": results, "not_reached": left}
    (kit.out / "report.json").write_text(json.dumps(whole, indent=1))
    lines = [f"# pl-host {manifest['version']} on {kit.device}", "", "| stage | verdict | seconds | what |", "|---|---|---|---|"]
    for result in results:
        verdict = " ".join(filter(None, [result["verdict"], result.get("reason")])).replace("|", "/")
        lines.append(f"| {result['stage']} | {verdict} | {result['seconds']} | {result['what']} |")
    lines += [f"| {name} | not reached | | |" for name in left]
    for result in results:
        if result.get("figures") or result.get("output"):
            lines += ["", f"## {result['stage']}", "", "```json", json.dumps(result.get("figures"), indent=1), "```"]
        if result.get("output"):
            lines += ["", "```text", *result["output"], "```"]
    (kit.out / "report.md").write_text("\n".join(lines) + "\n")


def libtorch(named):
    """Returns the folder of the package torch."""
    if named:
        return pathlib.Path(named).resolve()
    found = importlib.util.find_spec("torch")
    if found is None or not found.submodule_search_locations:
        sys.exit("error: this Python has no torch; name the folder of one with --torch")
    return pathlib.Path(found.submodule_search_locations[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--seconds", type=float, default=540, help="time for all stages (default: 540)")
    parser.add_argument("--out", default="report", help="folder of the results (default: report)")
    parser.add_argument("--stages", help="names of stages, with commas between (default: all)")
    parser.add_argument("--torch", help="folder of the package torch (default: that of this Python)")
    arguments = parser.parse_args()
    names = {stage.__name__: stage for stage in STAGES}
    chosen = arguments.stages.split(",") if arguments.stages else list(names)
    unknown = [name for name in chosen if name not in names]
    if unknown:
        sys.exit(f"error: there is no stage {unknown[0]}; there are {', '.join(names)}")
    kit = Kit(arguments, libtorch(arguments.torch))
    results, left = [], list(chosen)
    report(kit, results, left)
    while left and time.monotonic() < kit.ends:
        result = run_stage(kit, names[left.pop(0)])
        results.append(result)
        (kit.out / f"{result['stage']}.json").write_text(json.dumps(result, indent=1))
        report(kit, results, left)
        print(f"{result['stage']}: {result['verdict']} after {result['seconds']} s {result.get('reason', '')}".rstrip(), flush=True)
    print(kit.out / "report.md")
    failed = [result["stage"] for result in results if result["verdict"] == "failed"]
    sys.exit(1 if failed or left else 0)


if __name__ == "__main__":
    main()
