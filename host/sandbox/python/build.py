#!/usr/bin/env python3
"""Builds the Python worker: CPython, its standard library and sympy as one WebAssembly component.

    python3 build.py --out python.wasm --cache FOLDER

The tools (componentize-py, which brings CPython) and the packages come from PyPI in the versions below and stay in
the cache folder, as does what was built; a second call with the same inputs copies at most. Needs Python 3.10 or
newer with pip.
"""

import argparse
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TOOLS = ["componentize-py==0.25.1"]
PACKAGES = ["sympy==1.14.0", "mpmath==1.3.0"]
HERE = pathlib.Path(__file__).resolve().parent
# build.py itself counts as an input, since it says with what and how.
SOURCES = ["build.py", "worker.wit", "app.py", "archive.py", "warm.py"]
# What is built stays for this many sets of inputs, so that switching between two is quick.
KEPT = 2


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=pathlib.Path, required=True, help="where the component goes")
    arguments.add_argument("--cache", type=pathlib.Path, required=True, help="folder for tools and results")
    options = arguments.parse_args()
    cache = options.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    key = inputs_key()
    built = cache / f"worker-{key}.wasm"
    if built.exists():
        say("the Python worker is built already")
    else:
        build(cache, built)
        forget_old(cache)
    place(built, options.out)


def inputs_key():
    """Names everything that the result depends on."""
    digest = hashlib.sha256()
    for name in SOURCES:
        data = (HERE / name).read_bytes()
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return digest.hexdigest()[:16]


def build(cache, built):
    tools = fetched(cache, "tools", TOOLS)
    packages = fetched(cache, "packages", PACKAGES)
    say("building the Python worker: imports the standard library and sympy, takes half a minute")
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        scratch = pathlib.Path(scratch)
        app = scratch / "app"
        app.mkdir()
        for name in SOURCES[1:]:
            shutil.copy(HERE / name, app)
        # The tool adds the site-packages that it finds to the component's path; it shall find none.
        (scratch / "empty/lib/site-packages").mkdir(parents=True)
        partial = scratch / "worker.wasm"
        run(
            [sys.executable, "-c", "import componentize_py, sys; sys.exit(componentize_py.script())"]
            + ["--wit-path", str(app), "--world", "worker", "componentize", "app"]
            + ["-p", str(app), "-p", str(packages), "-o", str(partial)],
            "the Python worker could not be built",
            PYTHONPATH=str(tools),
            VIRTUAL_ENV=str(scratch / "empty"),
            PYTHONDONTWRITEBYTECODE="1",
        )
        os.replace(partial, built)
    say(f"built: {built.stat().st_size / 1e6:.0f} MB")


def fetched(cache, kind, requirements):
    """A folder with the packages, fetched if it isn't there. Appears whole or not at all."""
    name = hashlib.sha256(" ".join(requirements).encode()).hexdigest()[:8]
    folder = cache / f"{kind}-{name}"
    if not folder.exists():
        say(f"fetching {', '.join(requirements)}")
        partial = pathlib.Path(tempfile.mkdtemp(dir=cache))
        run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            + ["--no-compile", "--only-binary", ":all:", "--target", str(partial)]
            + requirements,
            "pip could not fetch it: is there a network, and pip for this Python?",
        )
        os.replace(partial, folder)
    return folder


def place(built, out):
    """Copies the result unless it is there; whoever reads `out` sees the old or the new one, whole."""
    stamp = out.with_name(f".{out.name}.stamp")
    if out.exists() and stamp.exists() and stamp.read_text() == built.name:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.partial")
    shutil.copyfile(built, partial)
    os.replace(partial, out)
    stamp.write_text(built.name)


def forget_old(cache):
    results = sorted(cache.glob("worker-*.wasm"), key=lambda path: path.stat().st_mtime)
    for path in results[:-KEPT]:
        path.unlink()


def run(command, failure, **environment):
    """Runs a command; on failure, shows what it said and leaves."""
    done = subprocess.run(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        sys.exit(f"error: {failure}")


def say(words):
    print(words, flush=True)


if __name__ == "__main__":
    main()
