// Extracts the final answer from a text, by the maths grader's rules.
//
// In this order: a boxed answer, the text after `####`, an announced answer, a text that consists only of an
// answer, the last formula or number, a few words. The grader reads formulas in full to tell whether a text is one; here
// `readsAsAnswer` checks only their words, signs and brackets.

// Maximum text length in bytes; longer texts lose their front, because the answer is at the end.
const MAX_TEXT_BYTES = 1 << 16;

// White space according to Unicode (JavaScript's own definition lacks U+0085 and includes U+FEFF).
const SPACES = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";

// Letters of the scripts that models write in, and signs that are numbers. (The engine of a component has no Unicode tables,
// so that `\p{Alphabetic}` is an error there.)
const LETTERS =
  "A-Za-z\\xaa\\xb5\\xba\\xc0-\\xd6\\xd8-\\xf6\\xf8-\\u02c1\\u0370-\\u037d\\u037f-\\u0386\\u0388-\\u1fff" +
  "\\u3041-\\u3096\\u30a1-\\u30fa\\u3400-\\u9fff\\uac00-\\ud7a3";
const NUMERALS = "0-9\\xb2\\xb3\\xb9\\xbc-\\xbe\\u2070-\\u2089\\u2150-\\u2189";

// Announcements, in lower case. The last one in the text counts.
const ANNOUNCEMENTS = [
  "final answer is",
  "final answer:",
  "answer is",
  "answer:",
  "answer =",
  "answers are",
  "\na:",
  "\nanswer ",
];

// Characters that end an announced answer.
const ENDS = ["i hope it is correct", "<|", "</s>", "\nq:", "\nquestion:"];

// Maximum number of words in an answer without numbers.
const MAX_WORDS = 4;

/** Returns the answer in a text, or undefined. */
export function answer(text) {
  text = tail(text);
  // The reasoning part has no answer, unless there is no other text.
  const spoken = afterLast(text, "</think>");
  if (spoken !== undefined && trim(spoken) !== "") text = spoken;
  return first([boxed, afterHashes, announced, stated, lastFormula, short], (way) => way(text));
}

function tail(text) {
  const bytes = new TextEncoder().encode(text);
  let from = Math.max(bytes.length - MAX_TEXT_BYTES, 0);
  // Don't start within a character.
  while (from < bytes.length && (bytes[from] & 0xc0) === 0x80) from += 1;
  return from === 0 ? text : new TextDecoder().decode(bytes.subarray(from));
}

/** The last `\boxed{...}`, or several with only `and`, `or` or signs between them. */
function boxed(text) {
  const found = [];
  const mark = /\\boxed|\\fbox/g;
  for (let hit; (hit = mark.exec(text)); ) {
    const { content, end } = braced(text, mark.lastIndex);
    found.push({ start: hit.index, content: trim(content), end });
    mark.lastIndex = end;
  }
  if (found.length === 0) return undefined;
  let { start, content } = found.pop();
  const parts = [content];
  while (found.length > 0) {
    const earlier = found.pop();
    if (!joins(text.slice(earlier.end, start))) break;
    // A repetition of the same box in a closing line is not a second answer.
    if (!parts.includes(earlier.content)) parts.unshift(earlier.content);
    start = earlier.start;
  }
  return parts.join(", ") || undefined;
}

/** Content of the braces at `from` (or, without braces, the next word), and its end. */
function braced(text, from) {
  const start = skip(text, from, new RegExp(`[${SPACES}]*`, "y"));
  if (text[start] !== "{") {
    const end = skip(text, start, new RegExp(`[^${SPACES}$]*`, "y"));
    return { content: text.slice(start, end), end };
  }
  let depth = 0;
  let escaped = false;
  for (let at = start; at < text.length; at += 1) {
    const c = text[at];
    if (c === "{" && !escaped) depth += 1;
    if (c === "}" && !escaped) depth -= 1;
    escaped = c === "\\" && !escaped;
    if (depth === 0) return { content: text.slice(start + 1, at), end: at + 1 };
  }
  // Never closed: the completion was cut off here.
  return { content: firstLine(text.slice(start + 1)), end: text.length };
}

/** Returns true if the text between two boxes joins them to one answer. */
function joins(between) {
  if (new TextEncoder().encode(between).length > 60 || between.includes("\n\n")) return false;
  const words = between.match(new RegExp(`[${LETTERS}]+`, "g")) ?? [];
  return words.length === 0 || words.includes("and") || words.includes("or");
}

function afterHashes(text) {
  const after = afterLast(text, "####");
  return (after !== undefined && trim(firstLine(trimStart(after)))) || undefined;
}

function announced(text) {
  const lower = `\n${lowerAscii(text)}`;
  const ends = ANNOUNCEMENTS.filter((mark) => lower.includes(mark)).map((mark) => lower.lastIndexOf(mark) + mark.length);
  return ends.length > 0 ? candidate(text.slice(Math.max(...ends) - 1)) : undefined;
}

/** The answer after an announcement. */
function candidate(after) {
  const lower = lowerAscii(after);
  const ends = ENDS.map((mark) => lower.indexOf(mark)).filter((at) => at >= 0);
  after = after.slice(0, Math.min(...ends, after.length)).replace(new RegExp(`^[${SPACES}:*"=]+`), "");
  const [paragraph] = after.split("\n\n");
  const line = paragraph.includes("\\[") || paragraph.includes("$$") ? paragraph : firstLine(paragraph);
  if (line === "") return undefined;
  const sentence = trimEnd(line.split(". ")[0], `${SPACES}.*"`);
  return stated(sentence) ?? lastFormula(line) ?? short(sentence);
}

/** Extracts the answer from a sentence that is or announces one. */
function stated(text) {
  text = trim(text);
  const numeric = /[0-9\\=$]/.test(text);
  if ((numeric || wordsOf(text).length <= 1) && !opensWithWords(text) && readsAsAnswer(text)) return text;
  const after = trimEnd(afterLast(text, " is ") ?? "", `${SPACES}.`);
  return /[0-9]/.test(after) && readsAsAnswer(after) ? after : undefined;
}

/** Returns true if the text begins like a sentence (its letters would otherwise read as a product). */
function opensWithWords(text) {
  for (const word of wordsOf(text)) {
    if (!new RegExp(`^[${LETTERS}]+$`).test(word)) return false;
    if (word.length > 1) return text.includes(" ");
  }
  return false;
}

/** The last formula between dollars or brackets, or the last number, whichever comes later. */
function lastFormula(text) {
  const formula = lastMath(text);
  const number = lastNumber(text);
  if (!number) return formula?.inside;
  const wins = formula && (formula.end >= number.end || number.start < formula.end);
  return wins ? formula.inside : text.slice(number.start, number.end);
}

/** The last formula and the position of its end. */
function lastMath(text) {
  let last;
  for (const [open, close] of [["\\[", "\\]"], ["\\(", "\\)"], ["$$", "$$"], ["$", "$"]]) {
    for (let at = 0; ; ) {
      const start = findUnescaped(text, open, at);
      const end = start < 0 ? -1 : findUnescaped(text, close, start + open.length);
      if (end < 0) break;
      at = end + close.length;
      const inside = trim(text.slice(start + open.length, end));
      if (end > (last?.end ?? -1) && inside !== "" && readsAsAnswer(inside)) last = { end, inside };
    }
  }
  return last;
}

/** Position of a mark without a backslash before it (except its own); -1 if there is none. */
function findUnescaped(text, mark, from) {
  let at = text.indexOf(mark, from);
  while (at >= 0 && !mark.startsWith("\\") && text[at - 1] === "\\") at = text.indexOf(mark, at + mark.length);
  return at;
}

/** Start and end of the last separate number, including its sign, fraction and percent sign. */
function lastNumber(text) {
  let last;
  for (const found of text.matchAll(/(?:[0-9]|\.(?=[0-9]))(?:[0-9]|[,./](?=[0-9]))*/g)) {
    const start = found.index;
    const end = start + found[0].length;
    const front = text.slice(Math.max(start - 2, 0), start);
    if (new RegExp(`[${LETTERS}${NUMERALS}_]$`).test(front)) continue;
    const signed = front.endsWith("-") && !new RegExp(`[${LETTERS}${NUMERALS})}]-$`).test(front);
    last = { start: start - (signed ? 1 : 0), end: end + (text[end] === "%" ? 1 : 0) };
  }
  return last;
}

/** Accepts an answer of one or a few words. */
function short(text) {
  const words = trim(trimEnd(trim(text), "."));
  const count = wordsOf(words).length;
  return count >= 1 && count <= MAX_WORDS ? words : undefined;
}

const PIECES = new RegExp(
  [
    `(?<skip>[${SPACES}$~£€¥°])`,
    String.raw`(?<number>[0-9]+(?:\.[0-9]+)?\.?|\.[0-9]+)`,
    String.raw`(?<text>\\(?:text|mathrm|mbox)\{[^{}]*\})`,
    String.raw`(?<join>\\(?:cdot|times|div|pm|leq?|geq?|neq?|approx)(?![a-zA-Z]))`,
    String.raw`(?<value>\\[a-zA-Z]+)`,
    `(?<word>[${LETTERS}]+)`,
    String.raw`(?<open>\\?[({\[])`,
    String.raw`(?<close>\\?[)}\]])`,
    String.raw`(?<sign>[-+−±])`,
    String.raw`(?<operator>\*\*|[<>=!]=|[*\/^=<>≤≥≈×·÷])`,
    String.raw`(?<comma>[,;:])`,
    String.raw`(?<after>[%!|])`,
  ].join("|"),
  "y",
);

/** Returns true if the text is only an answer: values joined by signs, in matching brackets, with a unit at the end. */
function readsAsAnswer(text) {
  if (new TextEncoder().encode(text).length > 4096) return false;
  let [depth, values, units, waiting] = [0, 0, false, true];
  for (let at = 0; at < text.length; at = PIECES.lastIndex) {
    PIECES.lastIndex = at;
    const piece = PIECES.exec(text);
    // A full stop at the end is ignored.
    if (!piece) return trim(text.slice(at)) === "." && values > 0;
    let [kind] = Object.entries(piece.groups).find(([, found]) => found !== undefined);
    const [word] = piece;
    if (kind === "word" && (word === "and" || word === "or")) kind = "comma";
    if (kind === "text" || (kind === "word" && isUnit(word, values > 0 && !waiting))) {
      units = true;
    } else if (kind === "number" || kind === "value" || kind === "word") {
      if (units) return false;
      values += 1;
      waiting = false;
    } else if (kind === "open") {
      depth += 1;
      waiting = true;
    } else if (kind === "close") {
      depth -= 1;
      waiting = false;
      if (depth < 0) return false;
    } else if (kind === "operator" || kind === "join") {
      if (waiting) return false;
      waiting = true;
    } else if (kind === "sign") {
      waiting = true;
    } else if (kind === "comma") {
      units = false;
      waiting = false;
    }
  }
  return values > 0 && depth === 0 && !waiting;
}

/** Returns true if letters are a unit or a word: four or more are, two or three only after a value; else they are a product. */
function isUnit(word, afterValue) {
  return word.length > 3 || (word.length > 1 && afterValue);
}

function first(ways, find) {
  for (const way of ways) {
    const found = find(way);
    if (found !== undefined) return found;
  }
  return undefined;
}

function afterLast(text, mark) {
  const at = text.lastIndexOf(mark);
  return at < 0 ? undefined : text.slice(at + mark.length);
}

function firstLine(text) {
  const end = text.indexOf("\n");
  return end < 0 ? text : text.slice(0, end).replace(/\r$/, "");
}

function skip(text, from, pattern) {
  pattern.lastIndex = from;
  pattern.exec(text);
  return pattern.lastIndex;
}

function trimStart(text) {
  return text.replace(new RegExp(`^[${SPACES}]+`), "");
}

// Scans backwards: a regular expression anchored only at the end would try every position in the text.
function trimEnd(text, of = SPACES) {
  const one = new RegExp(`[${of}]`);
  let end = text.length;
  while (end > 0 && one.test(text[end - 1])) end -= 1;
  return text.slice(0, end);
}

function trim(text) {
  return trimStart(trimEnd(text));
}

function wordsOf(text) {
  return text.split(new RegExp(`[${SPACES}]+`)).filter((word) => word !== "");
}

function lowerAscii(text) {
  return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}
