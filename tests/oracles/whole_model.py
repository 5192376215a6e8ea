"""Makes tests/engine/data: small random llamas and adapters as GGUF, and what a float64 torch says about them.

    python tests/oracles/whole_model.py [--llama-cpp]      (needs numpy, gguf, torch; deterministic)

--llama-cpp also compares each forward, adapter included, with llama.cpp (package llama-cpp-python).

For each model NAME four files:
    NAME.gguf           the model
    NAME.adapter.gguf   an adapter, A and B both random (B is not zero), alpha/r != 1
    NAME.golden.txt     index of the goldens: lines `name type n_dims ne0 ne1 byte_offset`, ne0 fastest (as in GGUF),
                        ne1 = 1 for vectors; type is f64 or i32; offsets are multiples of 8; lines in order of offset;
                        a line that starts with # is a comment
    NAME.golden.bin     the numbers, raw little-endian

Names in the index:
    batch/token, batch/target, batch/position  i32[rows]     rows = 2 windows of 24
    batch/span                                 i32[rows, 2]  row 0: first key seen, row 1: last key seen
    batch/weight                               f64[rows]     exact in float32; zeros and fractions among them
    base/loss base/nll                         without the adapter: sum(w*nll)/sum(w), and nll of each row (unweighted)
    lora/loss lora/nll lora/grad_norm          with the adapter
    lora/grad/<tensor>                         d loss / d A or B; <tensor> as in the adapter's file
    lora/adamw/<i> ...                         see below, of the adapter's tensors
    full/grad/<tensor>, full/grad_norm         d loss / d weight without any adapter (F32 models only)
    full/adamw/...                             likewise of the model's weights
AdamW: <region>/adamw/hyper f64[7] = lr beta1 beta2 eps decay clip steps. `steps` steps on the same batch, gradient scaled by
min(1, clip/norm), decay (decoupled) on every trained tensor; <region>/adamw/norm f64[steps] (before clipping) and
<region>/adamw/loss f64[steps] (before the step), <region>/adamw/<tensor> after the last step; `adamw_decay` in place of
`adamw`: the same with decay. The noise lines (# noise ...) say how far a float32 torch strays from the goldens.
"""
import math
import os
import sys

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as T
from gguf.quants import quantize

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import llama  # noqa: E402

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "engine", "data")
WINDOW, WINDOWS = 24, 2
F32 = {"": T.F32}
MIXED = {"token_embd": T.Q8_0, "output.weight": T.BF16, "blk.0.attn_q": T.Q4_0, "blk.0.attn_k": T.Q4_1,
         "blk.0.attn_v": T.F16, "blk.0.attn_output": T.Q8_0, "blk.0.ffn_gate": T.Q4_1, "blk.0.ffn_up": T.BF16,
         "blk.0.ffn_down": T.Q4_0, "blk.1.attn_q": T.BF16, "blk.1.attn_k": T.Q8_0, "blk.1.attn_v": T.Q4_0,
         "blk.1.attn_output": T.Q4_1, "blk.1.ffn_gate": T.Q8_0, "blk.1.ffn_up": T.Q4_0, "blk.1.ffn_down": T.F16}
ALL = llama.KINDS
# name: n_embd, layers, heads, kv heads, ffn, vocab, tied, types, keys of rope, frequency factors, rank, alpha, targets, full
MODELS = {
    "untied": dict(n=32, layers=2, heads=4, kv=2, ffn=48, vocab=67, tied=False, types=F32, rope={}, factors=False,
                   rank=4, alpha=6.0, targets=ALL + ("output",), full=True),
    "tied": dict(n=24, layers=1, heads=3, kv=1, ffn=40, vocab=67, tied=True, types=F32, rope={}, factors=False,
                 rank=3, alpha=2.0, targets=("attn_q", "attn_v", "ffn_down"), full=True),
    "mixed": dict(n=64, layers=2, heads=4, kv=2, ffn=96, vocab=67, tied=False, types=MIXED, rope={}, factors=False,
                  rank=4, alpha=10.0, targets=ALL, full=False),
    "linear": dict(n=32, layers=1, heads=2, kv=2, ffn=48, vocab=67, tied=True, types={"token_embd": T.Q4_0, "": T.F32},
                   rope={"scaling.type": "linear", "scaling.factor": 3.0, "freq_base": 5000.0}, factors=False,
                   rank=2, alpha=3.0, targets=ALL, full=False),
    "yarn": dict(n=32, layers=1, heads=2, kv=1, ffn=48, vocab=67, tied=False, types=F32,
                 rope={"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.original_context_length": 64,
                       "freq_base": 500.0}, factors=False,
                 rank=2, alpha=3.0, targets=ALL, full=False),
    "freqs": dict(n=32, layers=1, heads=2, kv=1, ffn=48, vocab=67, tied=False, types=F32, rope={"freq_base": 5000.0},
                  factors=True, rank=2, alpha=3.0, targets=ALL, full=False),
}


def kind_of(types, name):
    for part, kind in types.items():
        if part and part in name:
            return kind
    return types.get("", T.F32)


def make_model(name, spec, seed):
    rng = np.random.default_rng(seed)
    n, head = spec["n"], spec["n"] // spec["heads"]
    path = os.path.join(OUT, name + ".gguf")
    w = gguf.GGUFWriter(path, "llama")
    w.add_name(name)
    w.add_context_length(256)
    w.add_embedding_length(n)
    w.add_block_count(spec["layers"])
    w.add_feed_forward_length(spec["ffn"])
    w.add_head_count(spec["heads"])
    w.add_head_count_kv(spec["kv"])
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(head)
    w.add_vocab_size(spec["vocab"])
    for key, value in spec["rope"].items():
        add = w.add_string if isinstance(value, str) else w.add_uint32 if isinstance(value, int) else w.add_float32
        add("llama.rope." + key, value)
    # The smallest SPM vocabulary that loaders take: three control tokens, one byte, then single characters.
    letters = "▁etaoinshrdlucmfwypvbgkqjxzETAOINSHRDLUCMFWYPVBGKQJXZ.,;:!?'-&$"
    tokens = ["<unk>", "<s>", "</s>", "<0x0A>"] + list(letters)
    tokens = tokens[:spec["vocab"]]
    assert len(tokens) == spec["vocab"]
    w.add_tokenizer_model("llama")
    w.add_token_list(tokens)
    w.add_token_scores([0.0] * 4 + [-float(i) for i in range(1, len(tokens) - 3)])
    w.add_token_types([2, 3, 3, 6] + [1] * (len(tokens) - 4))
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.add_add_bos_token(True)

    def add(tensor, rows, columns):
        values = rng.standard_normal((rows, columns)) / math.sqrt(columns) if columns else \
            1.0 + 0.2 * rng.standard_normal(rows)
        if tensor == "token_embd.weight":
            values *= math.sqrt(columns) * 0.5
        values = values.astype(np.float32)
        kind = kind_of(spec["types"], tensor) if columns else T.F32
        if kind == T.F32:
            w.add_tensor(tensor, values)
        else:
            w.add_tensor(tensor, quantize(values, kind), raw_dtype=kind)

    add("token_embd.weight", spec["vocab"], n)
    if spec["factors"]:
        w.add_tensor("rope_freqs.weight", np.array([1.0 + 0.75 * i for i in range(head // 2)], np.float32))
    for i in range(spec["layers"]):
        at, kv = "blk.%d." % i, spec["kv"] * head
        add(at + "attn_norm.weight", n, 0)
        add(at + "attn_q.weight", n, n)
        add(at + "attn_k.weight", kv, n)
        add(at + "attn_v.weight", kv, n)
        add(at + "attn_output.weight", n, n)
        add(at + "ffn_norm.weight", n, 0)
        add(at + "ffn_gate.weight", spec["ffn"], n)
        add(at + "ffn_up.weight", spec["ffn"], n)
        add(at + "ffn_down.weight", n, spec["ffn"])
    add("output_norm.weight", n, 0)
    if not spec["tied"]:
        add("output.weight", spec["vocab"], n)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()

    path_adapter = os.path.join(OUT, name + ".adapter.gguf")
    w = gguf.GGUFWriter(path_adapter, "llama")
    w.add_type("adapter")
    w.add_string("adapter.type", "lora")
    w.add_float32("adapter.lora.alpha", spec["alpha"])
    shapes = {t.name: [int(x) for x in t.shape] for t in gguf.GGUFReader(path).tensors}
    for tensor, shape in shapes.items():
        if tensor.split(".")[-2] in spec["targets"]:
            n_in, n_out, r = shape[0], shape[1], spec["rank"]
            w.add_tensor(tensor + ".lora_a", (rng.standard_normal((r, n_in)) / math.sqrt(n_in)).astype(np.float32))
            w.add_tensor(tensor + ".lora_b", (0.3 * rng.standard_normal((n_out, r))).astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path, path_adapter


def make_batch(spec, seed):
    """Two windows of packed documents: uneven lengths, one of a single row, padding at the end of the second."""
    rng = np.random.default_rng(seed)
    token, target, position, first, last, weight = [], [], [], [], [], []
    for window, lengths in enumerate(((7, 12, 1, 4), (15, 5))):
        at = window * WINDOW
        for document, length in enumerate(lengths):
            ids = [1] + [int(i) for i in rng.integers(3, spec["vocab"], length)]
            token += ids[:-1]
            target += ids[1:]
            position += range(length)
            first += [at] * length
            last += range(at, at + length)
            # Prompts (the first third of longer documents) are masked; some tokens count half, or one and a half.
            weight += [0.0 if length > 6 and i < length // 3 else (1.0, 0.5, 1.5)[(i + document) % 3]
                       for i in range(length)]
            at += length
        while at < (window + 1) * WINDOW:  # padding: sees itself, predicts nothing
            token, target, position = token + [0], target + [0], position + [0]
            first, last, weight = first + [at], last + [at], weight + [0.0]
            at += 1
    return dict(token=np.array(token, np.int32), target=np.array(target, np.int32),
                position=np.array(position, np.int32), span=np.array([first, last], np.int32),
                weight=np.array(weight, np.float64))


class Golden:
    def __init__(self):
        self.lines, self.bytes = ["# name type n_dims ne0 ne1 byte_offset"], b""

    def add(self, name, value):
        value = np.asarray(value.detach() if torch.is_tensor(value) else value)
        kind = "i32" if value.dtype == np.int32 else "f64"
        value = np.atleast_1d(value).astype("<i4" if kind == "i32" else "<f8")
        assert value.ndim <= 2 and np.isfinite(value).all()
        ne = list(reversed(value.shape)) + [1]
        self.lines.append("%s %s %d %d %d %d" % (name, kind, value.ndim, ne[0], ne[1], len(self.bytes)))
        self.bytes += value.tobytes()
        self.bytes += b"\0" * (-len(self.bytes) % 8)

    def note(self, text):
        self.lines.append("# " + text)

    def write(self, name):
        with open(os.path.join(OUT, name + ".golden.txt"), "w", encoding="ascii") as f:
            f.write("\n".join(self.lines) + "\n")
        with open(os.path.join(OUT, name + ".golden.bin"), "wb") as f:
            f.write(self.bytes)


class Problem:
    """A model, its batch and a set of trained tensors ('lora' or 'full'), in one torch type."""

    def __init__(self, path, path_adapter, batch, region, dtype=torch.float64):
        self.model = llama.Llama.load(path, dtype)
        if region == "lora":
            self.model.load_adapter(path_adapter, dtype)
            self.trained = self.model.adapter
        else:
            self.trained = {k: v for k, v in self.model.w.items() if k != "rope_freqs.weight"}
            self.model.w.update(self.trained)
        self.batch = {k: torch.tensor(v).long() if v.dtype == np.int32 else torch.tensor(v, dtype=dtype)
                      for k, v in batch.items()}
        self.seen = llama.seen_from_span(batch["span"])

    def nll(self):
        b = self.batch
        return self.model.nll(b["token"], b["position"], self.seen, b["target"])

    def loss(self):
        return (self.batch["weight"] * self.nll()).sum() / self.batch["weight"].sum()

    def gradients(self):
        for t in self.trained.values():
            t.requires_grad_(True)
            t.grad = None
        loss = self.loss()
        loss.backward()
        return loss.detach(), {k: t.grad.clone() for k, t in self.trained.items()}


def norm_of(gradients):
    return math.sqrt(sum(float((g.double() ** 2).sum()) for g in gradients.values()))


def check_by_differences(problem, gradients, seed):
    """Central differences of the loss: along a random direction in each tensor, and at its largest element."""
    rng = np.random.default_rng(seed)
    worst = 0.0
    with torch.no_grad():
        for name, t in problem.trained.items():
            single = torch.zeros_like(t)
            single.view(-1)[int(gradients[name].abs().argmax())] = 1.0
            for direction in (torch.tensor(rng.standard_normal(tuple(t.shape))), single):
                h, kept = 1e-4 / float(direction.norm()), t.clone()

                def at(k):
                    t.copy_(kept + k * h * direction)
                    return float(problem.loss())

                # fourth-order central difference: error about h^4, far below the bound
                measured = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * h)
                t.copy_(kept)
                said = float((gradients[name] * direction).sum())
                size = abs(measured) + abs(said) + 1e-3 * float(gradients[name].norm() * direction.norm())
                worst = max(worst, abs(measured - said) / size)
    assert worst < 1e-6, worst
    return worst


def adamw(problem, lr, decay, steps, clip):
    beta1, beta2, eps = 0.9, 0.999, 1e-8
    norms, losses = [], []
    for t in problem.trained.values():
        t.requires_grad_(True)
    optimizer = torch.optim.AdamW(problem.trained.values(), lr, (beta1, beta2), eps, decay, foreach=False)
    for _ in range(steps):
        loss, gradients = problem.gradients()
        norms.append(norm_of(gradients))
        losses.append(float(loss))
        for t in problem.trained.values():
            t.grad *= min(1.0, clip / norms[-1])
        optimizer.step()
    return [lr, beta1, beta2, eps, decay, clip, steps], norms, losses


def add_region(golden, paths, batch, region, seed):
    problem, single = Problem(*paths, batch, region), Problem(*paths, batch, region, torch.float32)
    nll = problem.nll()
    golden.add(region + "/loss" if region == "lora" else "base/loss", problem.loss())
    golden.add(region + "/nll" if region == "lora" else "base/nll", nll)
    loss, gradients = problem.gradients()
    worst = check_by_differences(problem, gradients, seed)
    _, noisy = single.gradients()
    noise = max(float((noisy[k].double() - g).norm() / g.norm()) for k, g in gradients.items())
    golden.note("noise %s/grad: float32 torch, largest |error|/|gradient| of a tensor %.1e" % (region, noise))
    golden.add(region + "/grad_norm", norm_of(gradients))
    for k, g in gradients.items():
        golden.add("%s/grad/%s" % (region, k), g)
    print("   %s loss %.6f norm %.3f, differences agree to %.1e, float32 noise %.1e" %
          (region, float(loss), norm_of(gradients), worst, noise))


def add_adamw(golden, paths, batch, region, title, lr, decay):
    problem, single = Problem(*paths, batch, region), Problem(*paths, batch, region, torch.float32)
    hyper, norms, losses = adamw(problem, lr, decay, 3, 1.0)
    adamw(single, lr, decay, 3, 1.0)
    noise = max(float((single.trained[k].double() - t).detach().abs().max()) for k, t in problem.trained.items())
    golden.note("noise %s/%s: float32 torch, largest |error| of a parameter %.1e (lr %g)" % (region, title, noise, lr))
    golden.add("%s/%s/hyper" % (region, title), np.array(hyper))
    golden.add("%s/%s/norm" % (region, title), np.array(norms))
    golden.add("%s/%s/loss" % (region, title), np.array(losses))
    for k, t in problem.trained.items():
        golden.add("%s/%s/%s" % (region, title, k), t)
    print("   %s %s losses %s norms %s, float32 strays by %.1e" %
          (region, title, " ".join("%.4f" % x for x in losses), " ".join("%.2f" % x for x in norms), noise))


def compare_with_llama_cpp(paths, batch, golden_nll):
    import llama_cpp
    for adapter in (None, paths[1]):
        m = llama_cpp.Llama(paths[0], n_ctx=64, logits_all=True, n_threads=1, n_threads_batch=1, verbose=False,
                            n_gpu_layers=0, lora_path=adapter, type_k=0, type_v=0)  # F32 key cache
        worst, r = 0.0, 0
        while r < len(batch["token"]):
            end = r + 1
            while end < len(batch["token"]) and batch["position"][end] == batch["position"][end - 1] + 1:
                end += 1
            m.reset()
            m.eval([int(i) for i in batch["token"][r:end]])
            z = np.array(m.scores[:end - r], np.float64)
            z -= z.max(1, keepdims=True)
            nll = np.log(np.exp(z).sum(1)) - z[np.arange(end - r), batch["target"][r:end]]
            worst = max(worst, float(np.abs(nll - golden_nll["base" if adapter is None else "lora"][r:end]).max()))
            r = end
        print("   llama.cpp%s: largest difference of a row's nll %.1e" % ("" if adapter is None else " + adapter", worst))


def main():
    torch.set_num_threads(1)
    os.makedirs(OUT, exist_ok=True)
    for index, (name, spec) in enumerate(MODELS.items()):
        print(name)
        paths = make_model(name, spec, 100 + index)
        batch = make_batch(spec, 200 + index)
        golden = Golden()
        for key, value in batch.items():
            golden.add("batch/" + key, value)
        nll = {}
        with torch.no_grad():
            problem = Problem(*paths, batch, "lora")
            nll["lora"] = problem.nll().numpy()
            problem.model.adapter = {}
            nll["base"] = problem.nll().numpy()
            if not spec["full"]:
                golden.add("base/loss", problem.loss())
                golden.add("base/nll", nll["base"])
        add_region(golden, paths, batch, "lora", 300 + index)
        if name in ("untied", "tied", "mixed"):
            add_adamw(golden, paths, batch, "lora", "adamw", 1e-2, 0.0)
            add_adamw(golden, paths, batch, "lora", "adamw_decay", 1e-2, 0.1)
        if spec["full"]:
            add_region(golden, paths, batch, "full", 400 + index)
            add_adamw(golden, paths, batch, "full", "adamw_decay", 1e-3, 0.1)
            if name == "tied":
                add_adamw(golden, paths, batch, "full", "adamw", 1e-3, 0.0)
        golden.write(name)
        if "--llama-cpp" in sys.argv:
            compare_with_llama_cpp(paths, batch, nll)


if __name__ == "__main__":
    main()
