"""Makes the data that the unpacking of GGUF's number formats is checked against: random blocks, and the values that
the `gguf` package unpacks them to.

    python3 tests/conformance/quants.py

Needs numpy, gguf, safetensors. Seeded: a second run writes the same file.
"""

from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize
from safetensors.numpy import save_file

OUT = Path(__file__).parent / "quants" / "blocks.safetensors"

# Offsets of the f16 scales (and minima) in a block.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}

# Largest, smallest normal, subnormal ones, zeros of both signs, one.
EXTREMES = np.array([0x7BFF, 0xFBFF, 0x0400, 0x8400, 0x03FF, 0x0001, 0x8001, 0x0000, 0x8000, 0x3C00], dtype=np.uint16)


def finite_halves(random: np.random.Generator, count: int) -> np.ndarray:
    """Random f16 bit patterns without infinities and NaNs."""
    bits = random.integers(0, 1 << 16, count, dtype=np.uint16)
    return np.where((bits & 0x7C00) == 0x7C00, bits & 0xBFFF, bits).astype(np.uint16)


def packed(name: str, random: np.random.Generator) -> np.ndarray:
    if name == "F32":
        return random.standard_normal(1024).astype(np.float32).view(np.uint8)
    if name == "F16":
        return np.concatenate([EXTREMES, finite_halves(random, 1024)]).view(np.uint8)
    if name == "BF16":
        bits = random.integers(0, 1 << 16, 1024, dtype=np.uint16)
        bits = np.where((bits & 0x7F80) == 0x7F80, bits & 0xBFFF, bits).astype(np.uint16)
        return np.concatenate([bits, np.array([0x0001, 0x8000, 0x7F7F], dtype=np.uint16)]).view(np.uint8)
    values, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    count = 32 if values == 32 else 12
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for place in SCALES[name]:
        halves = finite_halves(random, count)
        halves[: len(EXTREMES)] = random.permutation(EXTREMES)
        blocks[:, place : place + 2] = halves.view(np.uint8).reshape(count, 2)
    return blocks.reshape(-1)


def main() -> None:
    random = np.random.default_rng(1)
    out = {}
    for name in ["F32", "F16", "BF16", *SCALES]:
        data = packed(name, random)
        kind = GGMLQuantizationType[name]
        values = dequantize(data, kind).astype(np.float32).reshape(-1)
        assert np.isfinite(values).all(), name
        out[f"{name}.packed"] = data
        out[f"{name}.values"] = values
    OUT.parent.mkdir(exist_ok=True)
    save_file(out, OUT)


if __name__ == "__main__":
    main()
