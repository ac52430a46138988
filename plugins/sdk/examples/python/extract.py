"""Extracts the final answer from a text, by the maths grader's rules.

In this order: a boxed answer, the text after `####`, an announced answer, a text that consists only of an
answer, the last formula or number, a few words. The grader reads formulas in full to tell whether a text is one; here
`reads_as_answer` checks only their words, signs and brackets.
"""

import re

# Maximum text length in bytes; longer texts lose their front, because the answer is at the end.
MAX_TEXT_BYTES = 1 << 16

# White space according to Unicode (Python's own definition has more control characters).
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

# Characters that end an announced answer.
ENDS = ["i hope it is correct", "<|", "</s>", "\nq:", "\nquestion:"]

# Maximum number of words in an answer without numbers.
MAX_WORDS = 4


def answer(text):
    """Returns the answer in a text, or None."""
    text = text.encode()[-MAX_TEXT_BYTES:].decode(errors="ignore")
    # The reasoning part has no answer, unless there is no other text.
    spoken = text.rpartition("</think>")[2]
    if spoken.strip(SPACES):
        text = spoken
    ways = (boxed, after_hashes, announced, stated, last_formula, short)
    return next((found for found in (way(text) for way in ways) if found is not None), None)


def boxed(text):
    """The last `\\boxed{...}`; several, if only `and`, `or` or signs are between them."""
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
        # A repetition of the same box in a closing line is not a second answer.
        if content not in parts:
            parts.insert(0, content)
        start = earlier
    return ", ".join(parts) or None


def braced(text, start):
    """Content of the braces at `start` (or, without braces, the next word), and its end."""
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
    # Never closed: the completion was cut off here.
    return first_line(text[start + 1 :]), len(text)


def joins(between):
    """Returns true if the text between two boxes joins them to one answer."""
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
    """The answer after an announcement."""
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
    """Extracts the answer from a sentence that is or announces one."""
    text = text.strip(SPACES)
    numeric = re.search(r"[0-9\\=$]", text)
    if (numeric or len(words_of(text)) <= 1) and not opens_with_words(text) and reads_as_answer(text):
        return text
    _, mark, after = text.rpartition(" is ")
    after = after.rstrip(SPACES + ".")
    return after if mark and re.search("[0-9]", after) and reads_as_answer(after) else None


def opens_with_words(text):
    """Returns true if the text begins like a sentence (its letters would otherwise read as a product)."""
    for word in words_of(text):
        if not word.isalpha():
            return False
        if len(word) > 1:
            return " " in text
    return False


def last_formula(text):
    """The last formula between dollars or brackets, or the last number, whichever comes later."""
    formula, number = last_math(text), last_number(text)
    if number is None:
        return formula[1] if formula else None
    start, end = number
    if formula and (formula[0] >= end or start < formula[0]):
        return formula[1]
    return text[start:end]


def last_math(text):
    """The last formula and the position of its end."""
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
    """Finds a mark without a backslash before it (except its own)."""
    while (at := text.find(mark, at)) >= 0:
        if mark.startswith("\\") or not text.endswith("\\", 0, at):
            return at
        at += len(mark)
    return None


NUMBER = re.compile(r"(?:[0-9]|\.(?=[0-9]))(?:[0-9]|[,./](?=[0-9]))*")


def last_number(text):
    """Start and end of the last separate number, including its sign, fraction and percent sign."""
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
    """Accepts an answer of one or a few words."""
    text = text.strip(SPACES).rstrip(".").strip(SPACES)
    return text if 1 <= len(words_of(text)) <= MAX_WORDS else None


PIECES = re.compile(
    rf"(?P<skip>[{SPACES}$~£€¥°])|(?P<number>[0-9]+(?:\.[0-9]+)?\.?|\.[0-9]+)|(?P<text>\\(?:text|mathrm|mbox)\{{[^{{}}]*\}})"
    r"|(?P<join>\\(?:cdot|times|div|pm|leq?|geq?|neq?|approx)(?![a-zA-Z]))|(?P<value>\\[a-zA-Z]+)|(?P<word>[^\W\d_]+)"
    r"|(?P<open>\\?[({\[])|(?P<close>\\?[)}\]])|(?P<sign>[-+−±])|(?P<operator>\*\*|[<>=!]=|[*/^=<>≤≥≈×·÷])|(?P<comma>[,;:])|(?P<after>[%!|])"
)


def reads_as_answer(text):
    """Returns true if the text is only an answer: values joined by signs, in matching brackets, with a unit at the end."""
    if len(text.encode()) > 4096:
        return False
    at, depth, values, units, waiting = 0, 0, 0, False, True
    while at < len(text):
        piece = PIECES.match(text, at)
        if piece is None:
            # A full stop at the end is ignored.
            return text[at:].strip(SPACES) == "." and values > 0
        kind, at = piece.lastgroup, piece.end()
        if kind == "word" and piece.group() in ("and", "or"):
            kind = "comma"
        if kind == "text" or kind == "word" and is_unit(piece.group(), after_value=values > 0 and not waiting):
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


def is_unit(word, after_value):
    """Returns true if letters are a unit or a word: four or more are, two or three only after a value; else they are a product."""
    return len(word) > 3 or (len(word) > 1 and after_value)


def words_of(text):
    return [word for word in re.split(f"{SPACE}+", text) if word]


def lower_ascii(text):
    return re.sub("[A-Z]+", lambda found: found.group().lower(), text)


def is_alphanumeric(c):
    return c.isalpha() or c.isnumeric()
