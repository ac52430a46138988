"""The texts that tokenizers are compared on: what models read and write, and what breaks tokenizers.

A module for tokenizers.py; nothing to run. Hand-picked lines of every kind first, then seeded mixtures of them.
"""

import random

SPECIAL = [
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHi [/INST] Hello </s><s>",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
    "a<|endoftext|>b <|endoftext|> c<unk>d <unk>",
    "<think>\nhm\n</think>\n\n<tool_call>\n{\"name\": \"f\"}\n</tool_call>",
    "<|im_start |> <|im_end|<|im_end|>> <| im_end |>",
    "<tool> <tool>x<tool>\n<tool>  y",
    "<0x41><0x0A> is no byte",
]

PLAIN = [
    "",
    " ",
    "  ",
    "\n",
    "\t",
    " \n \n\n  \t\t x",
    "Hello, world!",
    "It's 12345 apples, they'LL cost $6.78 -- isn't that (roughly) 10%? I'm, we're, you've, he'd",
    "MiXeD CaSe'S don'T WE'RE O'Neill 'tis '\u017f '\u212a",
    "1st 2nd x2 3.14159 1,000,000 \u00bd \u00b2 \u0663\u0664\u0665 \u2167 \u4e94 1234567890123",
    "   leading, inner     and trailing    ",
    "a\n\nb\n\n\n\nc\r\nd\r\re \n  f\n\t\tg",
    " " * 37 + "x" + " " * 16 + "\n" + "\t" * 9 + "\n" * 12 + ".",
    "0" * 40 + " 00 000 0000",
    "!" * 30 + "?!?!...--==**__##",
    # Code.
    "def f(x: int) -> int:\n    return x ** 2  # square\n\n\nif __name__ == '__main__':\n    print(f(3))\n",
    "for (int i = 0; i < n; ++i) { a[i] = b[i] << 2; }\t// done\r\n",
    "fn main() {\n    let v: Vec<&'static str> = vec![\"a\"; 3];\n    println!(\"{v:?}\");\n}\n",
    "SELECT COUNT(*) FROM t WHERE a <> 'b' AND c IS NOT NULL;",
    "{\"a\": [1, 2.5e-7, null, true], \"b\\n\": \"\\u00e9\"}",
    "<div class=\"x\">&nbsp;&lt;</div><!-- y -->",
    "https://example.org/a_b?c=d&e=%20#f user@example.org C:\\temp\\x.txt ~/.config",
    # Mathematics.
    "\\boxed{\\frac{1}{2}} #### 42 $\\int_0^\\infty e^{-x^2}\\,dx = \\frac{\\sqrt{\\pi}}{2}$",
    "\u2200x\u2208\u211d: x\u00b2\u22650 \u2211\u1d62 a\u1d62 \u2192 \u221e, \u03b1\u03b2\u03b3 \u2260 \u00b1\u2153",
    # Scripts.
    "na\u00efve caf\u00e9 \u2014 \u6771\u4eac \u03a9mega stra\u00dfe \u0130stanbul \u01c5",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u4eca\u5929\u5929\u6c14\u600e\u4e48\u6837\uff1f\u6211\u67093\u4e2a\u82f9\u679c\u3002",
    "\u3053\u3093\u306b\u3061\u306f\u3001\u30ab\u30bf\u30ab\u30ca\u3068\u3072\u3089\u304c\u306a\u3002 \uc548\ub155\ud558\uc138\uc694 \u110b\u1161\u11ab",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u039a\u03cc\u03c3\u03bc\u03b5",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u060c \u0668\u0669 \u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd \u05d1\u05b0\u05bc\u05e8\u05b5\u05d0\u05e9\u05b4\u05c1\u05d9\u05ea",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 \u12a0\u121b\u122d\u129b",
    # Combining marks: composed, decomposed, stacked, singletons that NFC replaces.
    "e\u0301 \u00e9 n\u0303a \u1e69 s\u0323\u0307 s\u0307\u0323 o\u0302\u0301 Z\u0351\u036b\u0343a\u0328\u0301lgo",
    "\u212b \u2126 \uac00 \u1100\u1161 \u0344 \u0958 \ufb1d \ufb01 \uff21\uff22\uff23 \u2460",
    # Emoji: joined, toned, flags, keycaps.
    "\U0001f680\U0001f680 \U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f3f3\ufe0f\u200d\U0001f308 \U0001f1e9\U0001f1ea 1\ufe0f\u20e3 \u2764\ufe0f",
    # Spaces of other kinds, invisible and control characters, private use, the last code points.
    "a\u00a0b\u200bc\ufeffd\u2003e\u3000f\u2028g\u2029h\u0085i\u00adj",
    "nul\x00 bell\x07 esc\x1b[31mred\x1b[0m del\x7f \x0b\x0c\x01\x02",
    "\ufffd\ufffd \ue000 \U0010fffd \U000e0041 \ufdd0 \u0378 \U0001fae9 \U00031350",
    # Characters that become a space inside SentencePiece, written out.
    "\u2581a \u2581\u2581 b\u2581",
    "\u0120a\u010ab \u00c2\u00a0",
    # Wrongly decoded text.
    "caf\u00c3\u00a9 \u00e2\u20ac\u2122s \u00ef\u00bb\u00bfx",
]


def corpus() -> list[str]:
    """All texts: the lines above and sixty seeded mixtures of pieces of them."""
    rng = random.Random(7)
    pieces = [text for text in PLAIN if text]
    mixed = []
    for _ in range(60):
        parts = []
        for _ in range(rng.randint(2, 4)):
            text = rng.choice(pieces)
            start = rng.randrange(len(text))
            parts.append(text[start : start + rng.randint(1, 14)])
        mixed.append(rng.choice(["", " ", "\n", "'"]).join(parts))
    return PLAIN + SPECIAL + mixed
