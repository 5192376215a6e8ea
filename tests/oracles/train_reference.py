"""An independent LoRA trainer in torch float32: how far a run of the same size gets, and how fast torch is.

    python tests/oracles/train_reference.py MODEL TEXT [--steps 400] [--threads 1] [--seed 1] [--starts rows|anywhere]
                                              [--save ADAPTER] [--time]

Trains on the first 400,000 characters of TEXT, measures on the last 60,000 (one document each, windows of 256 predictions,
whole windows only). Rank 8, alpha 16, the seven linear kinds; AdamW without decay (0.9, 0.999, 1e-8), peak rate 5e-3,
20 steps of warm-up, cosine to a tenth, clip 1, 8 x 256 tokens a step. Deterministic for a thread count.
--starts: the rows of a step are a permutation of fixed windows (rows), or windows that start at any token (anywhere).
--time runs ten steps on 1 and on 2 threads and prints tokens/s only. Tokens come from llama-cpp-python.
"""
import argparse
import math
import os
import sys
import time

import numpy as np
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import llama  # noqa: E402

CTX, ROWS, RANK, ALPHA, PEAK, WARM_UP, CLIP = 256, 8, 8, 16.0, 5e-3, 20, 1.0


def windows_of(tokens):
    n = (len(tokens) - 1) // CTX
    return torch.stack([torch.tensor(tokens[i * CTX:i * CTX + CTX + 1]) for i in range(n)])


def mean_loss(model, windows):
    with torch.no_grad():
        total = sum(float(batch_nll(model, w).double().sum()) for w in windows.split(ROWS))
    return total / (windows.shape[0] * CTX)


def batch_nll(model, w):
    return model.nll(w[:, :-1], torch.arange(CTX).expand(w.shape[0], CTX), llama.causal(CTX), w[:, 1:])


def fresh_adapter(model, seed):
    g = torch.Generator().manual_seed(seed)
    adapter = {}
    for name, w in model.w.items():
        if name.split(".")[-2] in llama.KINDS:
            n_out, n_in = w.shape
            adapter[name + ".lora_a"] = (torch.rand(RANK, n_in, generator=g) * 2 - 1) / math.sqrt(n_in)
            adapter[name + ".lora_b"] = torch.zeros(n_out, RANK)
    return adapter


def save(path, adapter):
    import gguf
    w = gguf.GGUFWriter(path, "llama")
    w.add_type("adapter")
    w.add_string("adapter.type", "lora")
    w.add_float32("adapter.lora.alpha", ALPHA)
    for name, t in adapter.items():
        w.add_tensor(name, t.detach().numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("text")
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--starts", choices=("rows", "anywhere"), default="rows")
    p.add_argument("--save")
    p.add_argument("--time", action="store_true")
    a = p.parse_args()
    import llama_cpp
    vocabulary = llama_cpp.Llama(a.model, vocab_only=True, verbose=False)
    with open(a.text, encoding="utf-8", newline="") as f:
        text = f.read()
    stream = vocabulary.tokenize(text[:400000].encode(), add_bos=True, special=False)
    train = windows_of(stream)
    held = windows_of(vocabulary.tokenize(text[-60000:].encode(), add_bos=True, special=False))

    torch.set_num_threads(a.threads)
    model = llama.Llama.load(a.model, torch.float32)
    adapter = fresh_adapter(model, a.seed)
    model.set_adapter(adapter, ALPHA)
    for t in adapter.values():
        t.requires_grad_(True)
    optimizer = torch.optim.AdamW(adapter.values(), PEAK, (0.9, 0.999), 1e-8, 0.0)
    print("train %d windows, held out %d, trained parameters %d" %
          (len(train), len(held), sum(t.numel() for t in adapter.values())))
    rng = np.random.default_rng(a.seed)
    order = []

    def step(index):
        nonlocal order
        if len(order) < ROWS:
            order += [int(i) for i in rng.permutation(len(train))]
        rows, order = order[:ROWS], order[ROWS:]
        batch = train[rows]
        if a.starts == "anywhere":
            batch = torch.tensor([stream[s:s + CTX + 1] for s in rng.integers(0, len(stream) - CTX, ROWS)])
        progress = max(0.0, (index - WARM_UP) / max(1, a.steps - WARM_UP))
        rate = PEAK * ((index + 1) / WARM_UP if index < WARM_UP else 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = batch_nll(model, batch).mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(adapter.values(), CLIP)
        optimizer.step()
        return float(loss.detach()), float(norm)

    if a.time:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            step(0)
            wall, cpu = time.perf_counter(), time.process_time()
            for i in range(10):
                step(i)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            print("threads %d  tokens/s %.0f  (cpu/wall %.2f)" % (threads, 10 * ROWS * CTX / wall, cpu / wall))
        return
    print("step 0 held-out nats/token %.4f" % mean_loss(model, held), flush=True)
    started, spent = time.perf_counter(), 0.0
    for i in range(a.steps):
        loss, norm = step(i)
        if i + 1 in (50, 100, 200, a.steps):
            spent = time.perf_counter() - started
            print("step %d loss %.4f norm %.3f held-out nats/token %.4f" % (i + 1, loss, norm, mean_loss(model, held)),
                  flush=True)
            started += time.perf_counter() - started - spent  # evaluation is not counted
    print("tokens/s %.0f on %d thread(s)" % (a.steps * ROWS * CTX / spent, a.threads))
    if a.save:
        save(a.save, adapter)


if __name__ == "__main__":
    main()
