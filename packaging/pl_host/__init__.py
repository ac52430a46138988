"""Builds and trains teams of language-model agents: the program pl-host with its plugins."""

import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "bin" / "pl-host"

# Release of torch whose libtorch the program was linked to.
TORCH = "2.11"


def libtorch() -> Path:
    """Returns the folder of libtorch in the package torch, without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"pl-host needs libtorch: pip install 'torch=={TORCH}.*'")
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        version = TORCH
    if version != TORCH and not version.startswith(f"{TORCH}."):
        sys.exit(f"pl-host needs torch {TORCH}, but {version} is installed: pip install 'torch=={TORCH}.*'")
    return Path(spec.submodule_search_locations[0]) / "lib"


def main() -> None:
    """Replaces this process by the program."""
    environment = dict(os.environ)
    folder = libtorch()
    # The program finds libtorch itself if both packages are in one folder.
    if folder.parent.parent.resolve() != PROGRAM.parents[2].resolve():
        folders = [str(folder), *filter(None, [environment.get("LD_LIBRARY_PATH")])]
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(folders)
    os.execve(PROGRAM, [str(PROGRAM), *sys.argv[1:]], environment)
