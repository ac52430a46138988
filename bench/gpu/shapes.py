"""Models of published shapes with random weights, and a workflow that trains each: speed and memory don't depend on the values.

PPO with a critic trains on every completion: other algorithms have no signal where all answers are equally wrong. The tokenizer is that of a tiny model, so prompts have about as many tokens as characters. Completions have a fixed length: no
random model ends them.
"""

import dataclasses
import json
import math
import pathlib
import random
import shutil
import struct

TINY = pathlib.Path(__file__).resolve().parent / "tiny"
# Deviation of the random weights: small enough for the activations of any depth.
DEVIATION = 0.02
# Number of random values, which are repeated. It is prime, so that no two rows of a matrix are equal.
VALUES = 65_537

WORKFLOW = """workflow shape

plugin maths = "math.wasm"

model base = "{model}" {{ dtype = {dtype} }}

policy reasoner {{ model = base; lora {{ rank = 16; alpha = 32 }} }}

environment problems = maths.problems {{ level = 1 }}

agent reason = maths.reasoner {{ policy = reasoner; temperature = 1.0; max_tokens = {tokens} }}

turns {{ start -> reason -> end }}

reward score = maths.score

train {{ algorithm = ppo; steps = 2; rollout = flat; samples = 8; tasks_per_step = {tasks} }}
"""


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes as in the model's config.json."""

    name: str
    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tokens: int
    tasks: int
    dtype: str

    def config(self):
        return {
            "model_type": "qwen3", "hidden_size": self.hidden, "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads, "head_dim": self.head_dim, "vocab_size": self.vocabulary,
            "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000, "hidden_act": "silu",
            "attention_bias": False, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
        }

    def tensors(self):
        """Names and sizes of all weights."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield "model.embed_tokens.weight", [self.vocabulary, self.hidden]
        yield "model.norm.weight", [self.hidden]
        for layer in range(self.layers):
            own = f"model.layers.{layer}."
            yield own + "input_layernorm.weight", [self.hidden]
            yield own + "post_attention_layernorm.weight", [self.hidden]
            yield own + "self_attn.q_proj.weight", [queries, self.hidden]
            yield own + "self_attn.k_proj.weight", [keys, self.hidden]
            yield own + "self_attn.v_proj.weight", [keys, self.hidden]
            yield own + "self_attn.o_proj.weight", [self.hidden, queries]
            yield own + "self_attn.q_norm.weight", [self.head_dim]
            yield own + "self_attn.k_norm.weight", [self.head_dim]
            yield own + "mlp.gate_proj.weight", [self.ffn, self.hidden]
            yield own + "mlp.up_proj.weight", [self.ffn, self.hidden]
            yield own + "mlp.down_proj.weight", [self.hidden, self.ffn]

    def write(self, folder):
        """Writes the model and its workflow into a folder, once. Returns the path of the workflow."""
        workflow = folder / "shape.mas"
        if workflow.is_file():
            return workflow
        model = folder / "model"
        model.mkdir(parents=True, exist_ok=True)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(TINY / name, model / name)
        (model / "config.json").write_text(json.dumps(self.config()))
        write_safetensors(model / "model.safetensors", list(self.tensors()))
        # Last: its presence means that the model is whole.
        text = WORKFLOW.format(model="./model", dtype=self.dtype, tokens=self.tokens, tasks=self.tasks)
        workflow.write_text(text)
        return workflow


SHAPES = [
    Shape("qwen3-0.6b", 1024, 3072, 28, 16, 8, 128, 151936, 256, 8, "bf16"),
    Shape("qwen3-1.7b", 2048, 6144, 28, 16, 8, 128, 151936, 256, 8, "bf16"),
    Shape("qwen3-4b", 2560, 9728, 36, 32, 8, 128, 151936, 256, 4, "bf16"),
]
# The same family, for a machine without a GPU.
SMALL = Shape("qwen3-small", 64, 128, 2, 4, 2, 16, 512, 16, 2, "f32")


def for_device(device):
    return SHAPES if device == "cuda" else [SMALL]


def measured(device):
    """The shape of benchmarks."""
    return SHAPES[1] if device == "cuda" else SMALL


def write_safetensors(path, tensors):
    """Writes bf16 weights: norms of 1, matrices of random values."""
    header, offset = {}, 0
    for name, shape in tensors:
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    values = random.Random(1)
    block = b"".join(bf16(values.gauss(0, DEVIATION)) for _ in range(VALUES))
    ones = bf16(1.0)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for name, shape in tensors:
            count = math.prod(shape)
            if name.endswith("norm.weight"):
                file.write(ones * count)
                continue
            shift = 2 * values.randrange(VALUES)
            repeated = (block[shift:] + block[:shift]) * (1 + 2 * count // len(block))
            file.write(repeated[: 2 * count])


def bf16(value):
    """Bytes of a number in bf16, cut off."""
    return struct.pack("<f", value)[2:]
