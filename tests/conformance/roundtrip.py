"""Checks that transformers and peft load what the project saved and give the same logits.

    python3 tests/conformance/roundtrip.py [--base FOLDER] [--again FOLDER] FOLDER EXPECTED [FOLDER EXPECTED ...]

FOLDER is a saved model, or a saved adapter (then --base names the model under it). EXPECTED is a safetensors file
with `tokens` ([T], int64) and `logits` ([T, V]), the project's own. With --again, each is saved once more by
transformers or peft into a folder of that name (numbered 0, 1, ...) under the one given, for the way back. Prints the
largest difference of each; ends with 1 where one is not below 1e-4, or where weights were missing or left over.

Needs torch, transformers, peft, safetensors.
"""

import argparse
import sys
from pathlib import Path

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

LIMIT = 1e-4


def load(folder: Path, base: Path | None) -> tuple[torch.nn.Module, list[str]]:
    """The model in f32, and what was wrong while it was loaded."""
    adapter = (folder / "adapter_config.json").exists()
    if adapter and base is None:
        sys.exit(f"{folder} is an adapter: --base must name its model")
    model, report = AutoModelForCausalLM.from_pretrained(
        base if adapter else folder, dtype=torch.float32, output_loading_info=True
    )
    faults = [f"{kind}: {names}" for kind, names in report.items() if names]
    if adapter:
        model = PeftModel.from_pretrained(model, folder)
    return model.eval(), faults


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", type=Path)
    parser.add_argument("--again", type=Path)
    parser.add_argument("pairs", nargs="+", type=Path)
    arguments = parser.parse_args()
    if len(arguments.pairs) % 2:
        sys.exit("an EXPECTED file belongs to each FOLDER")
    bad = False
    for number, (folder, file) in enumerate(zip(arguments.pairs[::2], arguments.pairs[1::2])):
        model, faults = load(folder, arguments.base)
        expected = load_file(file)
        with torch.no_grad():
            logits = model(expected["tokens"][None]).logits[0]
        gap = (logits - expected["logits"]).abs().max().item()
        bad |= not gap < LIMIT or bool(faults)
        print(f"{folder}: {gap:.2e}", *faults)
        if arguments.again:
            model.save_pretrained(arguments.again / str(number))
    sys.exit(bad)


if __name__ == "__main__":
    main()
