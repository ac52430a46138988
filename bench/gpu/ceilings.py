"""What a device allows at most: rates of matrix products and copies, as torch reaches them. Prints a line of JSON.

    python3 ceilings.py cuda|cpu
"""

import json
import subprocess
import sys
import time

import torch


def fastest(work, wait, runs=20):
    work()
    wait()
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        work()
        wait()
        best = min(best, time.perf_counter() - start)
    return best


def main():
    device = sys.argv[1]
    on_gpu = device == "cuda"
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    size, copied = (8192, 1 << 30) if on_gpu else (512, 1 << 24)
    figures = {"torch": torch.__version__}
    if on_gpu:
        figures["device"] = torch.cuda.get_device_name(0)
        query = ["nvidia-smi", "--query-gpu=driver_version,memory.total,clocks.max.sm", "--format=csv,noheader"]
        figures["driver"] = subprocess.run(query, capture_output=True, text=True).stdout.strip()
    for name, dtype in (("bf16", torch.bfloat16), ("f32", torch.float32)):
        a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        figures[f"{name}_tflops"] = round(2 * size**3 / fastest(lambda: a @ b, wait) / 1e12, 3)
    source = torch.ones(copied // 4, device=device)
    target = torch.empty_like(source)
    figures["copy_gb_per_second"] = round(2 * copied / fastest(lambda: target.copy_(source), wait) / 1e9, 1)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
