"""Mean loss of a GGUF model, with or without an adapter, as llama.cpp computes it: the oracle for exported adapters.

    python tests/oracles/llama_cpp_loss.py MODEL TEXT [--adapter F] [--scale X] [--ctx 256] [--last N | --first N]
                                             [--windows N]

The text is one document: tokenized whole, with BOS in front where the model's metadata says so. Windows hold ctx predictions,
that is ctx + 1 tokens of which neighbours share one, so every token but the first is predicted once; each window
is a fresh context with positions from 0. --last/--first take that many characters of the text. Printed: nats a
token over the whole windows, and over all predictions (the last, partial window too). One thread, F32 key cache.
Needs llama-cpp-python.
"""
import argparse

import llama_cpp
import numpy as np


def cut(tokens, ctx):
    return [tokens[i:i + ctx + 1] for i in range(0, len(tokens) - 1, ctx)]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("text")
    p.add_argument("--adapter")
    p.add_argument("--scale", type=float, default=1.0)
    p.add_argument("--ctx", type=int, default=256)
    p.add_argument("--last", type=int)
    p.add_argument("--first", type=int)
    p.add_argument("--windows", type=int)
    a = p.parse_args()
    with open(a.text, encoding="utf-8", newline="") as f:
        text = f.read()
    text = text[-a.last:] if a.last else text[:a.first] if a.first else text
    m = llama_cpp.Llama(a.model, n_ctx=a.ctx, n_batch=a.ctx, n_ubatch=a.ctx, logits_all=True, n_threads=1,
                        n_threads_batch=1, verbose=False, n_gpu_layers=0, lora_path=a.adapter, lora_scale=a.scale,
                        type_k=0, type_v=0)
    bos = m.metadata.get("tokenizer.ggml.add_bos_token",
                         "true" if m.metadata.get("tokenizer.ggml.model") == "llama" else "false") == "true"
    tokens = m.tokenize(text.encode(), add_bos=bos, special=False)
    windows = cut(tokens, a.ctx)[:a.windows]
    whole, every, n_whole, n_every = 0.0, 0.0, 0, 0
    for w in windows:
        m.reset()
        m.eval(w[:-1])
        z = np.array(m.scores[:len(w) - 1], np.float64)
        z -= z.max(1, keepdims=True)
        nll = float((np.log(np.exp(z).sum(1)) - z[np.arange(len(w) - 1), w[1:]]).sum())
        every, n_every = every + nll, n_every + len(w) - 1
        if len(w) == a.ctx + 1:
            whole, n_whole = whole + nll, n_whole + len(w) - 1
    print("%d characters, %d tokens, bos %s" % (len(text), len(tokens), bos))
    if n_whole:
        print("whole windows  %4d  predictions %7d  nats/token %.6f" % (n_whole // a.ctx, n_whole, whole / n_whole))
    print("all windows    %4d  predictions %7d  nats/token %.6f" % (len(windows), n_every, every / n_every))


if __name__ == "__main__":
    main()
