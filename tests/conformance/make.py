"""Makes the data that `pl-model` and `pl-inference` are checked against, with transformers as the reference.

    python3 tests/conformance/make.py [PART ...]        parts: tiny, logits, adapter, tokens, greedy

Needs torch, transformers, peft, gguf (and for the last two parts SmolLM2's GGUF file in the model cache, where
`cargo xtask setup` puts it). Every part is seeded, so that a second run writes the same values.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

HERE = Path(__file__).parent
TINY = HERE.parent / "data" / "tiny"
CACHE = Path(os.environ.get("PL_HOST_CACHE", Path.home() / ".cache" / "pl-host"))
SMOLLM = CACHE / "models" / "smollm2-135m"

TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_tokenizer() -> Tokenizer:
    """Byte-level BPE of 299 tokens: three special ones, 256 bytes, and merges of what English is full of."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate(special + alphabet)}
    merges = []
    pairs = "Ġ t,Ġ a,h e,i n,r e,o n,Ġt he,e r,Ġ s,a t,o r,e n,Ġ w,Ġ c,i t,i s,a n,o u,Ġ b,e s,Ġ f,Ġ o,in g,e d,Ġ p,Ġ m,Ġa n,a l,Ġan d,Ġt o,Ġo f,a r,Ġ d,Ġi n,Ġ h,l l,Ġ l,a s,i c,Ġ i,m e"
    for pair in pairs.split(","):
        left, right = pair.split(" ")
        if left in vocab and right in vocab and left + right not in vocab:
            merges.append((left, right))
            vocab[left + right] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return tokenizer


def randomize(model: torch.nn.Module, seed: int, scale: float) -> None:
    """Weights from a seeded normal distribution, norms around one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.1 * noise if "norm" in name else scale * noise)


def tiny() -> None:
    """The tiny random chat model that the project's tests run on."""
    tokenizer = byte_tokenizer()
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        dtype="float32",
    )
    model = LlamaForCausalLM(config)
    randomize(model, 1, 0.15)
    shutil.rmtree(TINY, ignore_errors=True)
    TINY.mkdir(parents=True)
    model.save_pretrained(TINY)
    (TINY / "generation_config.json").unlink(missing_ok=True)
    tokenizer.save(str(TINY / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    (TINY / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def random_ids(seed: int, vocab: int, count: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocab, (count,), generator=generator).tolist()


def save_model(folder: Path, config: LlamaConfig, seed: int, dtype: torch.dtype, shard: str) -> LlamaForCausalLM:
    """A random model as a folder with the tiny model's tokenizer; what is returned holds the stored values."""
    model = LlamaForCausalLM(config)
    randomize(model, seed, 0.2)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    (folder / "generation_config.json").unlink(missing_ok=True)
    # A vocabulary this small needs no merges to load; the text side is not what these models are for.
    small = Tokenizer(models.BPE(vocab={f"t{i}": i for i in range(config.vocab_size)}, merges=[]))
    small.save(str(folder / "tokenizer.json"))
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def logits() -> None:
    """Small Llama configurations and transformers' logits: grouped heads, tied and untied, wide heads, bf16."""
    base = dict(
        vocab_size=48,
        intermediate_size=40,
        num_hidden_layers=2,
        max_position_embeddings=256,
        bos_token_id=None,
        eos_token_id=None,
    )
    cases = {
        "grouped-untied": (
            dict(hidden_size=24, num_attention_heads=6, num_key_value_heads=2, tie_word_embeddings=False),
            torch.float32,
            "5GB",
        ),
        "multi-tied-sharded": (
            dict(hidden_size=16, num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=True,
                 rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
            torch.float32,
            "8KB",
        ),
        "single-kv-wide-head-bf16": (
            dict(hidden_size=20, num_attention_heads=5, num_key_value_heads=1, head_dim=8,
                 tie_word_embeddings=False, rms_norm_eps=1e-3),
            torch.bfloat16,
            "5GB",
        ),
    }
    for seed, (name, (extra, dtype, shard)) in enumerate(cases.items(), start=10):
        folder = HERE / "logits" / name
        model = save_model(folder, LlamaConfig(**base, **extra), seed, dtype, shard)
        tokens = random_ids(seed, 48, 64)
        with torch.no_grad():
            out = model(torch.tensor([tokens])).logits[0]
        save_file({"tokens": torch.tensor(tokens), "logits": out.contiguous()}, folder / "expected.safetensors")


def adapter() -> None:
    """A PEFT adapter on the tiny model, as PEFT writes it, and the logits with it."""
    from peft import LoraConfig, get_peft_model

    folder = HERE / "adapter"
    shutil.rmtree(folder, ignore_errors=True)
    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    settings = LoraConfig(
        r=4, lora_alpha=6, target_modules=["q_proj", "v_proj", "o_proj", "down_proj"], task_type="CAUSAL_LM"
    )
    model = get_peft_model(model, settings).eval()
    generator = torch.Generator().manual_seed(20)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if "lora_" in name:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    model.peft_config["default"].base_model_name_or_path = "tests/data/tiny"
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    tokens = random_ids(21, 299, 48)
    with torch.no_grad():
        out = model(torch.tensor([tokens])).logits[0]
    # Every sixth row, to keep the file small.
    save_file({"tokens": torch.tensor(tokens), "logits": out[::6].contiguous()}, folder / "expected.safetensors")


TEXTS = [
    "Hello, world!",
    "It's 12345 apples, they'll cost $6.78 -- isn't that (roughly) 10%?",
    "two  spaces   three\n\n\nnewlines\ttab \r\n end ",
    "digits after spaces:  1   22    333",
    "naïve café — 東京 🚀🚀 Ωmega",
    "<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n",
    "def f(x):\n    return x ** 2  # square\n\nprint(f(3))\n",
    "\\boxed{\\frac{1}{2}} #### 42",
    "",
    " ",
    "   leading and trailing   ",
    "MiXeD CaSe'S don'T WE'RE",
    "a\u00a0b\u200bc\ufeffd",
    "1st 2nd x2 3.14159 1,000,000 ½ ² ٣",
]


def tokens() -> None:
    """SmolLM2's token ids. transformers' reader of GGUF leaves out the digit splitter that SmolLM2's own
    tokenizer has in front of the byte-level pattern; it is put back here."""
    tokenizer = AutoTokenizer.from_pretrained(SMOLLM, gguf_file="model.gguf").backend_tokenizer
    plain = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    for text, a, b in zip(TEXTS, plain, ids):
        if a != b:
            print(f"differs from the reader without digits: {text!r}", file=sys.stderr)
    rows = [{"text": text, "ids": row} for text, row in zip(TEXTS, ids)]
    write_rows(HERE / "smollm2-tokens.json", rows)


QUESTIONS = [
    "What is the capital of France?",
    "Natalia sold 48 clips in April and half as many in May. How many did she sell in all?",
    "Write a Python function that reverses a string.",
    "Name three primary colours.",
    "Explain why the sky is blue in one sentence.",
    "What is 17 times 23?",
    "Translate 'good morning' into Spanish.",
    "List the planets of the solar system.",
    "A train travels 60 km in 45 minutes. What is its speed in km/h?",
    "Write a haiku about autumn.",
    "What is the derivative of x^2?",
    "Who wrote Romeo and Juliet?",
    "Give me a recipe for pancakes.",
    "Solve for x: 2x + 6 = 20.",
    "What does HTTP stand for?",
    "Summarise the story of Cinderella in two sentences.",
    "How many days are there in a leap year?",
    "Write SQL that counts the rows of a table named users.",
    "What is the opposite of 'ancient'?",
    "If I have 3 boxes with 12 eggs each and break 5 eggs, how many are left?",
]


def greedy() -> None:
    """SmolLM2's greedy answers: 64 tokens (or up to the end of the turn) for 20 prompts."""
    tokenizer = AutoTokenizer.from_pretrained(SMOLLM, gguf_file="model.gguf")
    model = AutoModelForCausalLM.from_pretrained(SMOLLM, gguf_file="model.gguf", dtype=torch.float32).eval()
    rows = []
    for question in QUESTIONS:
        messages = [{"role": "user", "content": question}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        prompt = tokenizer.encode(text, add_special_tokens=False)
        with torch.no_grad():
            out = model.generate(
                torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                max_new_tokens=64, do_sample=False, repetition_penalty=1.0, eos_token_id=2, pad_token_id=2,
            )[0].tolist()
            scores = model(torch.tensor([out])).logits[0, len(prompt) - 1 : -1]
        top = scores.topk(2, dim=-1).values
        gap = (top[:, 0] - top[:, 1]).min().item()
        rows.append({"question": question, "rendered": text, "prompt": prompt, "completion": out[len(prompt):],
                     "gap": round(gap, 6)})
        print(f"{len(rows):2} gap {gap:.5f} {tokenizer.decode(out[len(prompt):])[:60]!r}", file=sys.stderr)
    write_rows(HERE / "smollm2-greedy.json", rows)


def write_rows(path: Path, rows: list) -> None:
    """One row per line."""
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text(f"[\n{lines}\n]\n")


PARTS = {"tiny": tiny, "logits": logits, "adapter": adapter, "tokens": tokens, "greedy": greedy}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
