#!/usr/bin/env python3
"""Golden rows of the block formats, from the Python package `gguf` (and numpy for F16).

Writes tests/kernels/data/<type>.bin for each type: u32 element count n, n float32 values given to the quantizer, the
quantized bytes, n float32 values dequantized from them; then u32 element count r, r elements of random (all bit patterns)
stored bytes, and r float32 values dequantized from those. Little-endian. Run: quant.py OUT_DIR"""
import sys
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize, quantize

N, R = 32 * 24, 32 * 24


def values(rng):
    x = rng.standard_normal(N).astype(np.float32)
    x[32:64] *= np.float32(1e-6)  # scales that are subnormal in F16
    x[64:96] = 0
    x[96:128] = np.abs(x[96:128])
    x[128:160] = -np.abs(x[128:160]) - 3
    x[160:192] = np.arange(-16, 16)  # ties
    x[192:224] = np.arange(32) * 0.5
    x[224:256] *= np.float32(3000)
    x[256:288] = 7
    return x


def f16_values(rng):
    x = values(rng)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.99, 65520, 1e6, 2.0**-24, 2.0**-25, 2.0**-25 * 1.0001,
               3 * 2.0**-25, 2.0**-14, 2.0**-14 - 2.0**-25, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 1e-30, 1e-40, -(2.0**-24)]
    x[288:288 + len(special)] = np.array(special, dtype=np.float32)
    return x


def back(t, raw):
    if t == T.F16:
        return raw.view(np.float16).astype(np.float32)
    if t == T.F32:
        return raw.view(np.float32)
    return dequantize(raw, t).reshape(-1)


def store(t, x):
    if t == T.F16:
        with np.errstate(over="ignore"):
            return x.astype(np.float16).view(np.uint8)
    if t == T.F32:
        return x.view(np.uint8)
    return quantize(x, t).reshape(-1)


def main(out):
    for t in (T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1):
        rng = np.random.default_rng(int(t) + 1)
        plain = t in (T.F32, T.F16, T.BF16)
        x = f16_values(rng) if plain else values(rng)
        q = np.ascontiguousarray(store(t, x))
        block, block_bytes = GGML_QUANT_SIZES[t]
        raw = rng.integers(0, 256, R // block * block_bytes, dtype=np.uint8)
        with np.errstate(all="ignore"):
            raw_back = back(t, raw)
        with open(Path(out) / f"{t.name}.bin", "wb") as f:
            f.write(np.uint32(N).tobytes() + x.tobytes() + q.tobytes() + back(t, q).astype(np.float32).tobytes())
            f.write(np.uint32(R).tobytes() + raw.tobytes() + raw_back.astype(np.float32).tobytes())
    with open(Path(out) / "types.txt", "w") as f:
        for t in T:
            f.write(f"{int(t)} {t.name} {GGML_QUANT_SIZES[t][0]} {GGML_QUANT_SIZES[t][1]}\n")


main(sys.argv[1])
