#!/usr/bin/env python3
"""Fused attention as frameworks run it: PyTorch's FlashAttention-2 and cuDNN kernels, forward and
backward, causal, in the columns of calibration/points/attention.csv. What a framework's step takes,
where headway-measure-cuda measures this project's own kernel. A row is on disk when it is measured;
rows that are there are not measured again.

    attention.py OUT.csv [--for SECONDS] [--dry-run]
"""
import csv
import os
import statistics
import sys
import time

COLUMNS = ("gpu dtype kind batch heads kv_heads seq head_dim_qk head_dim_v causal impl time_us "
           "tflops_TFLOP/s flag source note").split()
KERNELS = ("FA2", "cuDNN")
SOURCE = "headway-gpu-day"
# Heads of one rank's share of common models; the longest where attention dominates.
SHAPES = [(batch, heads, kv_heads, sequence, dim)
          for sequence in (4096, 8192, 2048, 16384, 32768)
          for heads, kv_heads in ((16, 16), (32, 32), (32, 8), (8, 8), (64, 64))
          for dim in (128, 64)
          for batch in ((1, 4) if sequence <= 4096 else (1,))]
SAMPLES, CALLS, WARM_UP = 7, 5, 3


def points():
    for shape in SHAPES:
        for kind in ("bwd", "fwd"):
            for kernel in KERNELS:
                yield kernel, kind, shape


def key(row):
    return tuple(str(row[c]) for c in ("impl", "kind", "batch", "heads", "kv_heads", "seq",
                                       "head_dim_qk"))


def measure(torch, kernel, kind, shape):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    batch, heads, kv_heads, sequence, dim = shape
    backend = SDPBackend.FLASH_ATTENTION if kernel == "FA2" else SDPBackend.CUDNN_ATTENTION
    make = lambda n: torch.randn(batch, n, sequence, dim, device="cuda", dtype=torch.bfloat16,
                                 requires_grad=True)
    q, k, v = make(heads), make(kv_heads), make(kv_heads)
    attention = torch.nn.functional.scaled_dot_product_attention

    def forward():
        return attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)

    with sdpa_kernel(backend):
        out = forward()
        gradient = torch.randn_like(out)
        def call():
            if kind == "fwd":
                forward()
            else:
                torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)
        for _ in range(WARM_UP):
            call()
        samples = []
        for _ in range(SAMPLES):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(CALLS):
                call()
            end.record()
            end.synchronize()
            samples.append(begin.elapsed_time(end) / CALLS * 1e3)
    time_us = statistics.median(samples)
    # Halved for the causal mask; the backward pass is 2.5 of the forward (README of the points).
    flops = 2 * batch * heads * sequence * sequence * 2 * dim / 2 * (2.5 if kind == "bwd" else 1)
    return time_us, flops / time_us * 1e-6


def main():
    words = [w for w in sys.argv[1:] if w != "--dry-run"]
    if not words:
        sys.exit(__doc__)
    seconds = float(words[words.index("--for") + 1]) if "--for" in words else 1e9
    if "--dry-run" in sys.argv:
        print(f"{sum(1 for _ in points())} points into {words[0]}")
        return
    import torch
    done = set()
    if os.path.exists(words[0]):
        with open(words[0], newline="") as file:
            done = {key(row) for row in csv.DictReader(file)}
    deadline, left = time.monotonic() + seconds, 0
    with open(words[0], "a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if not done:
            writer.writeheader()
        for kernel, kind, shape in points():
            row = dict(zip(COLUMNS, [torch.cuda.get_device_name(0), "bf16", kind, *shape[:4],
                                     shape[4], shape[4], 1, kernel]))
            if key(row) in done:
                continue
            if time.monotonic() > deadline:
                left += 1
                continue
            row.update(source=SOURCE, note=f"torch {torch.__version__}", flag="")
            try:
                time_us, rate = measure(torch, kernel, kind, shape)
                row.update({"time_us": f"{time_us:.5g}", "tflops_TFLOP/s": f"{rate:.5g}"})
                writer.writerow(row)
            except (RuntimeError, torch.cuda.OutOfMemoryError) as refused:
                print(f"{kernel} {kind} {shape}: {str(refused).splitlines()[0]}", file=sys.stderr)
            file.flush()
            torch.cuda.empty_cache()
    print(f"{left} points left")
    sys.exit(3 if left else 0)


main()
