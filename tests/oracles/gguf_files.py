"""Writes the GGUF files of tests/formats/data with the Python package `gguf`, an implementation that is not ours.

    python3 tests/oracles/gguf_files.py tests/formats/data

types.gguf: every type of key, arrays of them, alignment 64, tensors of four types.
lora.gguf: an adapter of two pairs (one of a stack of experts, F16) for the base that test_adapter.c builds.
Values are formulas of the index, repeated in the tests. Package gguf 0.19.0, numpy 2.4.
"""
import sys

import gguf
import numpy as np


def ramp(n, scale=1.0, dtype=np.float32):
    return ((np.arange(n) - n // 2) * scale).astype(dtype)


def types(path):
    w = gguf.GGUFWriter(path, "test")
    w.add_custom_alignment(64)
    w.add_uint8("k.u8", 200)
    w.add_int8("k.i8", -100)
    w.add_uint16("k.u16", 60000)
    w.add_int16("k.i16", -30000)
    w.add_uint32("k.u32", 4000000000)
    w.add_int32("k.i32", -2000000000)
    w.add_float32("k.f32", 0.1)
    w.add_bool("k.true", True)
    w.add_bool("k.false", False)
    w.add_string("k.text", "gr\u00fc\u00dfe, \u4e16\u754c")
    w.add_uint64("k.u64", 1 << 63)
    w.add_int64("k.i64", -(1 << 62))
    w.add_float64("k.f64", 0.1)
    w.add_array("a.ints", [3, -1, 4, -1, 5])
    w.add_array("a.floats", [0.5, -0.25, 1e30])
    w.add_array("a.texts", ["", "a", "\u2581the", "x" * 300])
    w.add_array("a.bools", [True, False, True])
    w.add_key_value("a.bytes", [0, 1, 255], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT8)
    w.add_tensor("plain.f32", ramp(15).reshape(3, 5))
    w.add_tensor("plain.f16", ramp(7, 0.5, np.float16))
    q = gguf.quants.quantize(ramp(128, 0.25).reshape(2, 64), gguf.GGMLQuantizationType.Q8_0)
    w.add_tensor("block.q8_0", q, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    w.add_tensor("plain.i32", np.arange(4, dtype=np.int32).reshape(1, 2, 1, 2))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def lora(path):
    w = gguf.GGUFWriter(path, "llama")
    w.add_string("general.type", "adapter")
    w.add_string("adapter.type", "lora")
    w.add_float32("adapter.lora.alpha", 6.0)
    w.add_tensor("blk.0.attn_q.weight.lora_a", ramp(16, 0.5).reshape(2, 8))
    w.add_tensor("blk.0.attn_q.weight.lora_b", ramp(16, 0.25).reshape(8, 2))
    w.add_tensor("blk.0.ffn_up_exps.weight.lora_a", ramp(96, 0.5, np.float16).reshape(3, 4, 8))
    w.add_tensor("blk.0.ffn_up_exps.weight.lora_b", ramp(144, 0.5, np.float16).reshape(3, 12, 4))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    types(sys.argv[1] + "/types.gguf")
    lora(sys.argv[1] + "/lora.gguf")
