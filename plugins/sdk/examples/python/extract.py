"""Which part of a text is its answer: the maths grader's rules.

In this order: what is boxed, what stands behind `####`, what is announced as the answer, a text that is nothing but an
answer, the last formula or number, a few words. The grader reads formulas in full to tell whether a text is one; here
`reads_as_answer` looks at their words, signs and brackets alone.
"""

import re

# Bytes of text beyond this are cut off at the front: an answer stands at the end.
LONGEST_TEXT = 1 << 16

# White space as Unicode has it (Python's own knows some control characters more).
SPACES = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
SPACE = f"[{SPACES}]"

# Announcements, in lower case. The last one in the text counts.
ANNOUNCEMENTS = [
    "final answer is",
    "final answer:",
    "answer is",
    "answer:",
    "answer =",
    "answers are",
    "\na:",
    "\nanswer ",
]

# Where an announced answer ends at the latest.
ENDS = ["i hope it is correct", "<|", "</s>", "\nq:", "\nquestion:"]

# Words that a short answer in words may have.
MOST_WORDS = 4


def answer(text):
    """The answer that a text gives, or None."""
    text = text.encode()[-LONGEST_TEXT:].decode(errors="ignore")
    # Thoughts are no answers, unless there is nothing else.
    spoken = text.rpartition("</think>")[2]
    if spoken.strip(SPACES):
        text = spoken
    ways = (boxed, after_hashes, announced, stated, last_formula, short)
    return next((found for found in (way(text) for way in ways) if found is not None), None)


def boxed(text):
    """The last `\\boxed{...}`; several, where nothing but `and`, `or` or signs stands between them."""
    found, at = [], 0
    while mark := re.compile(r"\\boxed|\\fbox").search(text, at):
        content, at = braced(text, mark.end())
        found.append((mark.start(), content.strip(SPACES), at))
    if not found:
        return None
    start, content, _ = found.pop()
    parts = [content]
    while found:
        earlier, content, end = found.pop()
        if not joins(text[end:start]):
            break
        # The same box again, in a closing line, is no second answer.
        if content not in parts:
            parts.insert(0, content)
        start = earlier
    return ", ".join(parts) or None


def braced(text, start):
    """What stands in the braces at `start` (or, without braces, in the next word), and where it ends."""
    start = re.compile(f"{SPACE}*").match(text, start).end()
    if not text.startswith("{", start):
        end = re.compile(f"[^{SPACES}$]*").match(text, start).end()
        return text[start:end], end
    depth, escaped, last = 0, False, start - 1
    for piece in re.compile(r"[{}\\]").finditer(text, start):
        at, sign = piece.start(), piece.group()
        escaped = escaped and at == last + 1
        if not escaped and sign != "\\":
            depth += 1 if sign == "{" else -1
            if depth == 0:
                return text[start + 1 : at], at + 1
        escaped = sign == "\\" and not escaped
        last = at
    # Never closed: what the model was about to say when it was cut off.
    return first_line(text[start + 1 :]), len(text)


def joins(between):
    """Whether the text between two boxes makes one answer of them."""
    if len(between.encode()) > 60 or "\n\n" in between:
        return False
    words = "".join(c if c.isalpha() else " " for c in between).split()
    return not words or "and" in words or "or" in words


def first_line(text):
    line, newline, _ = text.partition("\n")
    return line.removesuffix("\r") if newline else line


def after_hashes(text):
    _, mark, after = text.rpartition("####")
    return (first_line(after.lstrip(SPACES)).strip(SPACES) if mark else "") or None


def announced(text):
    lower = "\n" + lower_ascii(text)
    ends = [lower.rfind(mark) + len(mark) for mark in ANNOUNCEMENTS if mark in lower]
    return candidate(text[max(ends) - 1 :]) if ends else None


def candidate(after):
    """The answer that an announcement leads to."""
    lower = lower_ascii(after)
    end = min((lower.index(mark) for mark in ENDS if mark in lower), default=len(after))
    after = after[:end].lstrip(SPACES + ':*"=')
    paragraph = after.split("\n\n")[0]
    line = paragraph if "\\[" in paragraph or "$$" in paragraph else first_line(paragraph)
    if not line:
        return None
    sentence = line.split(". ")[0].rstrip(SPACES + '.*"')
    ways = ((stated, sentence), (last_formula, line), (short, sentence))
    return next((found for found in (way(part) for way, part in ways) if found is not None), None)


def stated(text):
    """A sentence that is an answer, or says that something is."""
    text = text.strip(SPACES)
    numeric = re.search(r"[0-9\\=$]", text)
    if (numeric or len(words_of(text)) <= 1) and not opens_with_words(text) and reads_as_answer(text):
        return text
    _, mark, after = text.rpartition(" is ")
    after = after.rstrip(SPACES + ".")
    return after if mark and re.search("[0-9]", after) and reads_as_answer(after) else None


def opens_with_words(text):
    """Whether the text begins as a sentence does: letters side by side would read as a product."""
    for word in words_of(text):
        if not word.isalpha():
            return False
        if len(word) > 1:
            return " " in text
    return False


def last_formula(text):
    """The last formula between dollars or brackets, or the last number, whichever stands further back."""
    formula, number = last_math(text), last_number(text)
    if number is None:
        return formula[1] if formula else None
    start, end = number
    if formula and (formula[0] >= end or start < formula[0]):
        return formula[1]
    return text[start:end]


def last_math(text):
    """The last stretch of mathematics and the position of its end."""
    last = None
    for open, close in (("\\[", "\\]"), ("\\(", "\\)"), ("$$", "$$"), ("$", "$")):
        at = 0
        while (start := find_unescaped(text, open, at)) is not None:
            start += len(open)
            end = find_unescaped(text, close, start)
            if end is None:
                break
            at = end + len(close)
            inside = text[start:end].strip(SPACES)
            if (last is None or end > last[0]) and inside and reads_as_answer(inside):
                last = (end, inside)
    return last


def find_unescaped(text, mark, at):
    """A mark that no backslash stands in front of (but for its own)."""
    while (at := text.find(mark, at)) >= 0:
        if mark.startswith("\\") or not text.endswith("\\", 0, at):
            return at
        at += len(mark)
    return None


NUMBER = re.compile(r"(?:[0-9]|\.(?=[0-9]))(?:[0-9]|[,./](?=[0-9]))*")


def last_number(text):
    """Where the last number that stands by itself begins and ends, with its sign, fraction and percent sign."""
    last = None
    for found in NUMBER.finditer(text):
        start, end = found.span()
        before = text[start - 1] if start else ""
        if is_alphanumeric(before) or before == "_":
            continue
        two_before = text[start - 2] if start > 1 else ""
        signed = before == "-" and not is_alphanumeric(two_before) and two_before not in tuple(")}")
        last = (start - signed, end + text.startswith("%", end))
    return last


def short(text):
    """A few words, or one."""
    text = text.strip(SPACES).rstrip(".").strip(SPACES)
    return text if 1 <= len(words_of(text)) <= MOST_WORDS else None


PIECES = re.compile(
    rf"(?P<skip>[{SPACES}$~£€¥°])|(?P<number>[0-9]+(?:\.[0-9]+)?\.?|\.[0-9]+)|(?P<text>\\(?:text|mathrm|mbox)\{{[^{{}}]*\}})"
    r"|(?P<join>\\(?:cdot|times|div|pm|leq?|geq?|neq?|approx)(?![a-zA-Z]))|(?P<value>\\[a-zA-Z]+)|(?P<word>[^\W\d_]+)"
    r"|(?P<open>\\?[({\[])|(?P<close>\\?[)}\]])|(?P<sign>[-+−±])|(?P<operator>\*\*|[<>=!]=|[*/^=<>≤≥≈×·÷])|(?P<comma>[,;:])|(?P<after>[%!|])"
)


def reads_as_answer(text):
    """Whether the text is nothing but an answer: values, joined by signs, in brackets that match, with a unit behind."""
    if len(text.encode()) > 4096:
        return False
    at, depth, values, units, waiting = 0, 0, 0, False, True
    while at < len(text):
        piece = PIECES.match(text, at)
        if piece is None:
            # A full stop that ends the text says nothing.
            return text[at:].strip(SPACES) == "." and values > 0
        kind, at = piece.lastgroup, piece.end()
        if kind == "word" and piece.group() in ("and", "or"):
            kind = "comma"
        if kind == "text" or kind == "word" and is_unit(piece.group(), behind=values > 0 and not waiting):
            units = True
        elif kind in ("number", "value", "word"):
            if units:
                return False
            values, waiting = values + 1, False
        elif kind == "open":
            depth, waiting = depth + 1, True
        elif kind == "close":
            depth, waiting = depth - 1, False
            if depth < 0:
                return False
        elif kind in ("operator", "join"):
            if waiting:
                return False
            waiting = True
        elif kind == "sign":
            waiting = True
        elif kind == "comma":
            units, waiting = False, False
    return values > 0 and depth == 0 and not waiting


def is_unit(word, behind):
    """Whether letters are a unit or a word: long ones are, two or three are behind a value, else they are a product."""
    return len(word) > 3 or (len(word) > 1 and behind)


def words_of(text):
    return [word for word in re.split(f"{SPACE}+", text) if word]


def lower_ascii(text):
    return re.sub("[A-Z]+", lambda found: found.group().lower(), text)


def is_alphanumeric(c):
    return c.isalpha() or c.isnumeric()
