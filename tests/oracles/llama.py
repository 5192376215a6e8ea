"""An independent llama in torch: the oracle for whole-model losses and gradients.

Reads the weights of a GGUF (dequantized by the `gguf` package), computes in any torch type (float64 for goldens) and lets
autograd differentiate. Written from the published descriptions (RMSNorm, SwiGLU, rotary positions, grouped heads,
LoRA, YaRN); shares no code with the engine. whole_model.py --llama-cpp compares it with llama.cpp.

    x = embd[token]
    x += Wo attention(rope(Wq n), rope(Wk n), Wv n),  n = rms_norm(x)*w
    x += Wdown (silu(Wgate n) * (Wup n)),             n = rms_norm(x)*w
    logits = Wout rms_norm(x)*w
    y = W x + (alpha/r) B (A x) wherever an adapter names W
    loss = sum(weight*nll) / sum(weight)

Rope turns adjacent pairs (2i, 2i+1) of each head: GGUF files of arch `llama` hold q and k already permuted for it.
Rows of a batch are packed documents: row r sees the keys first[r]..last[r] and has its own position.
"""
import math

import numpy as np
import torch

KINDS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def read_keys(reader):
    return {k: f.contents() for k, f in reader.fields.items()}


def read_tensors(reader, dtype=torch.float64):
    """name -> (tensor with numpy's axis order, i.e. linears are [n_out, n_in]; the GGUF type's name)"""
    from gguf.quants import dequantize
    out = {}
    for t in reader.tensors:
        value = dequantize(t.data, t.tensor_type).astype(np.float32)
        out[t.name] = torch.tensor(value.reshape([int(n) for n in reversed(t.shape)])).to(dtype)
    return out


def rope_table(keys, n_rot, factors=None):
    """Frequencies in radians a position (float64) and the magnitude of the rotated vector."""
    base = float(keys.get("llama.rope.freq_base", 10000.0))
    frequency = base ** (-2.0 * np.arange(n_rot // 2, dtype=np.float64) / n_rot)
    if factors is not None:
        frequency = frequency / factors
    kind = keys.get("llama.rope.scaling.type", "none")
    factor = float(keys.get("llama.rope.scaling.factor", 0.0)) or 1.0
    magnitude = float(keys.get("llama.rope.scaling.attn_factor", 1.0))
    if kind == "linear":
        frequency = frequency / factor
    elif kind == "yarn":
        # Peng et al. 2023: pairs that turn often within the original context keep their frequency, slow ones are
        # interpolated, with a ramp between the pairs that make beta_fast and beta_slow turns.
        context = float(keys.get("llama.rope.scaling.original_context_length", keys["llama.context_length"]))
        fast = float(keys.get("llama.rope.scaling.yarn_beta_fast", 32.0))
        slow = float(keys.get("llama.rope.scaling.yarn_beta_slow", 1.0))

        def pair_of(turns):
            return n_rot * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(base))

        low = max(0.0, math.floor(pair_of(fast)))
        high = min(n_rot - 1.0, math.ceil(pair_of(slow)))
        ramp = np.clip((np.arange(n_rot // 2) - low) / max(0.001, high - low), 0.0, 1.0)
        frequency = frequency / factor * ramp + frequency * (1.0 - ramp)
        magnitude *= 1.0 + 0.1 * math.log(factor)
    elif kind != "none":
        raise ValueError(kind)
    return frequency, magnitude


class Llama:
    def __init__(self, keys, tensors):
        self.keys, self.w = keys, tensors
        key = lambda name: keys["llama." + name]
        self.n_layers = int(key("block_count"))
        self.n_embd = int(key("embedding_length"))
        self.n_heads = int(key("attention.head_count"))
        self.n_kv = int(keys.get("llama.attention.head_count_kv", self.n_heads))
        self.head = int(keys.get("llama.attention.key_length", self.n_embd // self.n_heads))
        self.eps = float(key("attention.layer_norm_rms_epsilon"))
        self.tied = "output.weight" not in tensors
        factors = tensors.get("rope_freqs.weight")
        self.frequency, self.magnitude = rope_table(
            keys, int(keys.get("llama.rope.dimension_count", self.head)),
            None if factors is None else factors.detach().double().numpy())
        self.adapter, self.scale = {}, 0.0

    @classmethod
    def load(cls, path, dtype=torch.float64):
        import gguf
        reader = gguf.GGUFReader(path)
        return cls(read_keys(reader), read_tensors(reader, dtype))

    def set_adapter(self, adapter, alpha):
        """adapter: '<weight>.lora_a' [r, n_in] and '<weight>.lora_b' [n_out, r]"""
        self.adapter, self.alpha = adapter, alpha

    def load_adapter(self, path, dtype=torch.float64):
        import gguf
        reader = gguf.GGUFReader(path)
        self.set_adapter(read_tensors(reader, dtype), float(read_keys(reader)["adapter.lora.alpha"]))

    def linear(self, name, x, weight=None):
        y = x @ (self.w[name] if weight is None else weight).T
        a = self.adapter.get(name + ".lora_a")
        if a is not None:
            y = y + (self.alpha / a.shape[0]) * ((x @ a.T) @ self.adapter[name + ".lora_b"].T)
        return y

    def rms_norm(self, x, name):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.w[name]

    def rope(self, x, position):
        """x [..., rows, heads, head]"""
        n = 2 * len(self.frequency)
        angle = position.double()[..., None] * torch.tensor(self.frequency)
        cos = (self.magnitude * torch.cos(angle)).to(x.dtype)[..., None, :]
        sin = (self.magnitude * torch.sin(angle)).to(x.dtype)[..., None, :]
        even, odd = x[..., 0:n:2], x[..., 1:n:2]
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
        return torch.cat((turned, x[..., n:]), -1)

    def logits(self, token, position, seen):
        """token, position [..., rows]; seen bool [..., rows, keys] -> logits [..., rows, n_vocab]"""
        x = self.w["token_embd.weight"][token]
        lead = x.shape[:-1]
        for layer in range(self.n_layers):
            at = "blk.%d." % layer
            n = self.rms_norm(x, at + "attn_norm.weight")
            q = self.linear(at + "attn_q.weight", n).reshape(*lead, self.n_heads, self.head)
            k = self.linear(at + "attn_k.weight", n).reshape(*lead, self.n_kv, self.head)
            v = self.linear(at + "attn_v.weight", n).reshape(*lead, self.n_kv, self.head)
            q, k = self.rope(q, position), self.rope(k, position)
            group = self.n_heads // self.n_kv
            k, v = k.repeat_interleave(group, -2), v.repeat_interleave(group, -2)
            q, k, v = (t.transpose(-2, -3) for t in (q, k, v))  # [..., heads, rows, head]
            score = (q @ k.transpose(-1, -2)) / math.sqrt(self.head)
            p = torch.softmax(score.masked_fill(~seen[..., None, :, :], -math.inf), -1)
            o = (p @ v).transpose(-2, -3).reshape(*lead, self.n_heads * self.head)
            x = x + self.linear(at + "attn_output.weight", o)
            n = self.rms_norm(x, at + "ffn_norm.weight")
            gate = self.linear(at + "ffn_gate.weight", n)
            h = gate * torch.sigmoid(gate) * self.linear(at + "ffn_up.weight", n)
            x = x + self.linear(at + "ffn_down.weight", h)
        x = self.rms_norm(x, "output_norm.weight")
        if self.tied:
            return x @ self.w["token_embd.weight"].T
        return self.linear("output.weight", x)

    def nll(self, token, position, seen, target):
        z = self.logits(token, position, seen)
        return torch.logsumexp(z, -1) - z.gather(-1, target[..., None])[..., 0]


def seen_from_span(span):
    """span [2, rows]: first and last key of each row -> bool [rows, rows]"""
    first, last = torch.as_tensor(span[0]), torch.as_tensor(span[1])
    key = torch.arange(first.numel())
    return (key[None, :] >= first[:, None]) & (key[None, :] <= last[:, None])


def causal(rows):
    return torch.ones(rows, rows, dtype=torch.bool).tril()
