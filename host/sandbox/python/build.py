#!/usr/bin/env python3
"""Builds the Python worker: CPython, its standard library and sympy as one WebAssembly component.

    python3 build.py --out python.wasm --cache FOLDER

The tools (componentize-py, which contains CPython) and the packages come from PyPI in the versions and with the hashes
below. They stay in the cache folder together with the result, so a second call with the same inputs only copies it. Needs
Python 3.10 or newer with pip, on Linux on x86-64.
"""

import argparse
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

# Requirements with the hashes of their wheels.
TOOLS = [
    "componentize-py==0.25.1 --hash=sha256:8623cd8cab8453cb0cd8bf03f3c7103420d06f2f3d360186a280a70a1ca5e89f",
]
PACKAGES = [
    "sympy==1.14.0 --hash=sha256:e091cc3e99d2141a0ba2847328f5479b05d94a6635cb96148ccb3f34671bd8f5",
    "mpmath==1.3.0 --hash=sha256:a0b2b9fe80bbcd81a6647ff13108738cfb482d481d826cc0e02f5b35e5c88d2c",
]
HERE = pathlib.Path(__file__).resolve().parent
# build.py itself is an input, because it has the versions and the command lines.
SOURCES = ["build.py", "worker.wit", "app.py", "archive.py", "heap.py", "warm.py"]
# Number of results that stay in the cache, so that switching between two versions is quick.
KEPT = 2


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=pathlib.Path, required=True, help="path of the component")
    arguments.add_argument("--cache", type=pathlib.Path, required=True, help="folder for tools and results")
    options = arguments.parse_args()
    cache = options.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    key = inputs_key()
    built = cache / f"worker-{key}.wasm"
    # Of several set-ups at a time, one builds and the others wait.
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if built.exists():
            say("the Python worker is up to date")
        else:
            build(cache, built)
            remove_old(cache)
        place(built, options.out)


def inputs_key():
    """Returns a hash of all inputs."""
    digest = hashlib.sha256()
    for name in SOURCES:
        data = (HERE / name).read_bytes()
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return digest.hexdigest()[:16]


def build(cache, built):
    tools = fetch(cache, "tools", TOOLS)
    packages = fetch(cache, "packages", PACKAGES)
    say("building the Python worker: imports the standard library and sympy, takes half a minute")
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        scratch = pathlib.Path(scratch)
        app = scratch / "app"
        app.mkdir()
        for name in SOURCES[1:]:
            shutil.copy(HERE / name, app)
        # An empty site-packages folder: the tool adds the one that it finds to the component's path.
        (scratch / "empty/lib/site-packages").mkdir(parents=True)
        partial = scratch / "worker.wasm"
        run(
            [sys.executable, "-c", "import componentize_py, sys; sys.exit(componentize_py.script())"]
            + ["--wit-path", str(app), "--world", "worker", "componentize", "app"]
            + ["-p", str(app), "-p", str(packages), "-o", str(partial)],
            "the Python worker could not be built",
            # Python looks for modules in the working folder first: none of the folder that set-up was started in runs.
            folder=scratch,
            PYTHONPATH=str(tools),
            VIRTUAL_ENV=str(scratch / "empty"),
            PYTHONDONTWRITEBYTECODE="1",
        )
        publish(partial, built)
    say(f"built: {built.stat().st_size / 1e6:.0f} MB")


def fetch(cache, kind, requirements):
    """Returns a folder with the packages. Fetches them if it does not exist; a failure leaves no folder."""
    name = hashlib.sha256(" ".join(requirements).encode()).hexdigest()[:8]
    folder = cache / f"{kind}-{name}"
    if not folder.exists():
        say(f"fetching {', '.join(line.split()[0] for line in requirements)}")
        partial = pathlib.Path(tempfile.mkdtemp(dir=cache))
        lines = cache / f"{kind}.txt"
        lines.write_text("\n".join(requirements) + "\n")
        # Isolated: a `pip.py` in the folder that set-up was started in must not run.
        run(
            [sys.executable, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            + ["--no-compile", "--only-binary", ":all:", "--require-hashes", "--target", str(partial)]
            + ["--requirement", str(lines)],
            "pip failed: check the network, and that this Python has pip",
        )
        os.sync()
        os.replace(partial, folder)
    return folder


def place(built, out):
    """Copies the result unless it is there already. The replacement of `out` is atomic."""
    stamp = out.with_name(f".{out.name}.stamp")
    if out.exists() and stamp.exists() and stamp.read_text() == built.name:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.partial")
    shutil.copyfile(built, partial)
    os.replace(partial, out)
    stamp.write_text(built.name)


def publish(partial, path):
    """Renames a file that survives a power loss under its new name."""
    with open(partial, "rb") as file:
        os.fsync(file.fileno())
    os.replace(partial, path)


def remove_old(cache):
    results = sorted(cache.glob("worker-*.wasm"), key=lambda path: path.stat().st_mtime)
    for path in results[:-KEPT]:
        path.unlink()


def run(command, failure, folder=None, **environment):
    """Runs a command in a folder. If it fails, prints its output and exits."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        sys.exit(f"error: {failure}")


def say(message):
    print(message, flush=True)


if __name__ == "__main__":
    main()
