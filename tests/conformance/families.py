"""Makes the small random models that every supported family and kind of rotary scaling is checked on, with
transformers' logits: Hugging Face folders, and GGUF files of the same weights.

    python3 tests/conformance/families.py

Needs torch, transformers, gguf, safetensors. Seeded: a second run writes the same values.
"""

import json
import shutil
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models
from transformers import AutoConfig, AutoModelForCausalLM

OUT = Path(__file__).parent / "families"
VOCAB = 40
TOKENS = 96
# Every so many of the rows are kept.
STRIDE = 6

BASE = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    bos_token_id=None,
    eos_token_id=None,
)

LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 128}

# Name: type, settings beyond BASE, number format of the files, size of shards, the older form of rotary settings.
CASES = {
    "llama2": ("llama", dict(num_key_value_heads=4, rms_norm_eps=1e-5), torch.float16, None, None),
    "llama3": ("llama", dict(tie_word_embeddings=True, rope_parameters=LLAMA3), torch.bfloat16, None, None),
    "llama3-older": ("llama", dict(num_key_value_heads=1), torch.bfloat16, None,
                     (5e4, {k: v for k, v in LLAMA3.items() if k != "rope_theta"})),
    "llama-linear": ("llama", {}, torch.bfloat16, None, (1e4, {"type": "linear", "factor": 4.0})),
    "llama-yarn": ("llama", dict(rope_parameters={
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64,
        "mscale": 0.8, "mscale_all_dim": 0.4, "beta_fast": 16, "beta_slow": 2, "truncate": False}),
        torch.bfloat16, None, None),
    "llama-factors": ("llama", dict(rope_parameters={
        "rope_type": "longrope", "rope_theta": 1e4, "attention_factor": 1.0, "factor": 1.0,
        "original_max_position_embeddings": 256,
        "short_factor": [1.0, 1.5, 4.25, 8.0], "long_factor": [1.0, 1.5, 4.25, 8.0]}), torch.bfloat16, None, None),
    "qwen2-tied": ("qwen2", dict(tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
                   torch.float16, None, None),
    "qwen2-yarn": ("qwen2", dict(tie_word_embeddings=False, num_key_value_heads=1), torch.bfloat16, "12KB",
                   (1e6, {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64})),
    "qwen3-wide": ("qwen3", dict(tie_word_embeddings=True, head_dim=12), torch.bfloat16, None, None),
    "qwen3-untied": ("qwen3", dict(tie_word_embeddings=False, head_dim=4, num_key_value_heads=4,
                                   rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
                     torch.bfloat16, "12KB", None),
}

# GGUF files of some of them: the case, and the number formats of its matrices by turns.
FILES = {
    "llama3": ["BF16"],
    "llama-linear": ["BF16"],
    "qwen2-yarn": ["BF16", "F16"],
    "qwen2-tied": ["Q8_0", "Q5_1", "Q4_0", "Q4_1", "Q5_0", "F16"],
    "qwen3-wide": ["F32", "BF16"],
}


def randomize(model: torch.nn.Module, seed: int) -> None:
    """Weights from a seeded normal distribution, norms around one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.2 * noise if "norm" in name else 0.2 * noise)


def expected(model: torch.nn.Module, seed: int) -> dict:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, VOCAB, (TOKENS,), generator=generator)
    with torch.no_grad():
        logits = model(tokens[None]).logits[0]
    return {"tokens": tokens, "logits": logits[::STRIDE].contiguous()}


def folder(name: str, seed: int) -> torch.nn.Module:
    kind, extra, dtype, shard, older = CASES[name]
    path = OUT / name
    shutil.rmtree(path, ignore_errors=True)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**BASE, **extra}))
    randomize(model, seed)
    model.to(dtype).save_pretrained(path, max_shard_size=shard or "5GB")
    (path / "generation_config.json").unlink(missing_ok=True)
    if older is not None:
        config = json.loads((path / "config.json").read_text())
        config.pop("rope_parameters", None)
        config["rope_theta"], config["rope_scaling"] = older
        (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    small = Tokenizer(models.BPE(vocab={f"t{i}": i for i in range(VOCAB)}, merges=[]))
    small.save(str(path / "tokenizer.json"))
    # Read back: the reference is what transformers makes of the files.
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    save_file(expected(model, seed), path / "expected.safetensors")
    return model


NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
PARTS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}


def stored_name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    module, ending = rest.rsplit(".", 1)
    return f"blk.{layer}.{PARTS[module]}.{ending}"


def permuted(matrix: np.ndarray, heads: int) -> np.ndarray:
    """The row order of the llama architecture: a head's halves alternate."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def unpermuted(matrix: np.ndarray, heads: int) -> np.ndarray:
    rows, columns = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def gguf_file(name: str, model: torch.nn.Module, seed: int, formats: list[str]) -> None:
    """Writes the file, and the logits of a model that holds what its matrices unpack to."""
    config = model.config
    arch = CASES[name][0]
    path = OUT / f"{name}.gguf"
    writer = gguf.GGUFWriter(path, arch)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "llama3":
        # Divisors of the frequencies, from the frequencies themselves.
        plain = 1.0 / rope["rope_theta"] ** (torch.arange(0, head_dim, 2, dtype=torch.float) / head_dim)
        scaled = model.model.rotary_emb.inv_freq
        writer.add_tensor("rope_freqs.weight", (plain / scaled).numpy())
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(["a", "b", "ab", *(f"t{i}" for i in range(3, VOCAB))])
    writer.add_token_types([gguf.TokenType.NORMAL] * VOCAB)
    writer.add_token_merges(["a b"])

    turn = 0
    values = model.state_dict()
    for key in sorted(values):
        if key == "lm_head.weight" and config.tie_word_embeddings:
            continue
        array = values[key].numpy().astype(np.float32)
        if array.ndim == 1:
            writer.add_tensor(stored_name(key), array)
            continue
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(key.split(".")[-2])
        turned = arch == "llama" and heads is not None
        if turned:
            array = permuted(array, heads)
        kind = gguf.GGMLQuantizationType[formats[turn % len(formats)]]
        turn += 1
        packed = gguf.quantize(np.ascontiguousarray(array), kind)
        writer.add_tensor(stored_name(key), packed, raw_dtype=kind)
        back = gguf.dequantize(packed, kind).reshape(array.shape)
        back = unpermuted(back, heads) if turned else back
        values[key].copy_(torch.from_numpy(np.ascontiguousarray(back)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(expected(model, seed), OUT / f"{name}.gguf.expected.safetensors")


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    for seed, name in enumerate(CASES, start=50):
        model = folder(name, seed)
        if name in FILES:
            gguf_file(name, model, seed, FILES[name])


if __name__ == "__main__":
    main()
