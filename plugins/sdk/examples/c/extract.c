/* See extract.h. */
#include "extract.h"

#include "slices.h"

/* Maximum text length in bytes; longer texts lose their front, because the answer is at the end. */
#define MAX_TEXT_BYTES ((size_t)1 << 16)

/* Maximum number of words in an answer without numbers. */
#define MAX_WORDS 4

static const slice NONE = {NULL, 0};

/* Announcements, in lower case. The last one in the text counts. */
static const char *const ANNOUNCEMENTS[] = {
    "final answer is", "final answer:", "answer is", "answer:", "answer =", "answers are", "\na:", "\nanswer ",
};

/* Characters that end an announced answer. */
static const char *const ENDS[] = {"i hope it is correct", "<|", "</s>", "\nq:", "\nquestion:"};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static bool reads_as_answer(slice text);

/* ---- Boxes ---- */

typedef struct {
  size_t start, end;
  slice content;
} box;

/* Content of the braces at `at` (or, without braces, the next word), and its end. */
static slice braced(slice text, size_t at, size_t *end) {
  size_t len = 0;
  while (at < text.len && is_space(character(text, at, &len))) at += len;
  if (at == text.len || text.ptr[at] != '{') {
    for (*end = at; *end < text.len; *end += len) {
      uint32_t c = character(text, *end, &len);
      if (is_space(c) || c == '$') break;
    }
    return part(text, at, *end);
  }
  size_t depth = 0;
  bool escaped = false;
  for (size_t here = at; here < text.len; here++) {
    char c = text.ptr[here];
    if (c == '{' && !escaped) depth++;
    if (c == '}' && !escaped) depth--;
    escaped = c == '\\' && !escaped;
    if (depth == 0) {
      *end = here + 1;
      return part(text, at + 1, here);
    }
  }
  /* Never closed: the completion was cut off here. */
  *end = text.len;
  return first_line(from(text, at + 1));
}

/* Returns true if the text between two boxes joins them to one answer. */
static bool joins(slice between) {
  if (between.len > 60 || has(between, "\n\n")) return false;
  bool plain = true;
  for (size_t at = 0, len = 0; at < between.len; at += len) {
    if (!is_letter(character(between, at, &len))) continue;
    plain = false;
    size_t end = at;
    while (end < between.len && is_letter(character(between, end, &len))) end += len;
    slice word = part(between, at, end);
    if (same(word, "and") || same(word, "or")) return true;
    len = end - at;
  }
  return plain;
}

static pl_list boxes(slice text) {
  pl_list found = {0};
  for (size_t at = 0; at < text.len;) {
    bool here = starts(text, at, "\\boxed") || starts(text, at, "\\fbox");
    if (!here) {
      at++;
      continue;
    }
    box *made = PL_PUSH(box, &found);
    made->start = at;
    made->content = trim(braced(text, at + (starts(text, at, "\\boxed") ? 6 : 5), &made->end));
    at = made->end;
  }
  return found;
}

/* The last `\boxed{...}`, or several with only `and`, `or` or signs between them. */
static slice boxed(slice text) {
  pl_list found = boxes(text), parts = {0};
  if (found.count == 0) return NONE;
  box *later = &PL_AT(box, found, found.count - 1);
  *PL_PUSH(slice, &parts) = later->content;
  for (size_t at = found.count - 1; at-- > 0;) {
    box *earlier = &PL_AT(box, found, at);
    if (!joins(part(text, earlier->end, later->start))) break;
    /* A repetition of the same box in a closing line is not a second answer. */
    bool again = false;
    for (size_t one = 0; one < parts.count; one++) again |= pl_equal(PL_AT(slice, parts, one), earlier->content);
    if (!again) *PL_PUSH(slice, &parts) = earlier->content;
    later = earlier;
  }
  slice joined = PL_AT(slice, parts, parts.count - 1);
  for (size_t at = parts.count - 1; at-- > 0;) {
    joined = pl_concat(3, joined, pl_str(", "), PL_AT(slice, parts, at));
  }
  return joined.len > 0 ? joined : NONE;
}

/* ---- Sentences ---- */

static slice after_hashes(slice text) {
  size_t at = find_last(text, "####");
  if (at == NOWHERE) return NONE;
  slice line = trim(first_line(trim_start_of(from(text, at + 4), "")));
  return line.len > 0 ? line : NONE;
}

/* Returns true if the text begins like a sentence (its letters would otherwise read as a product). */
static bool opens_with_words(slice text) {
  slice word;
  for (size_t at = 0; (word = next_word(text, &at)).ptr;) {
    size_t letters = 0, len = 0;
    for (size_t here = 0; here < word.len; here += len, letters++) {
      if (!is_letter(character(word, here, &len))) return false;
    }
    if (letters > 1) return has(text, " ");
  }
  return false;
}

static bool is_numeric(char c) { return is_digit(c) || c == '\\' || c == '=' || c == '$'; }

/* Extracts the answer from a sentence that is or announces one. */
static slice stated(slice text) {
  text = trim(text);
  bool numeric = false;
  for (size_t at = 0; at < text.len; at++) numeric |= is_numeric(text.ptr[at]);
  if ((numeric || count_words(text) <= 1) && !opens_with_words(text) && reads_as_answer(text)) return text;
  size_t at = find_last(text, " is ");
  if (at == NOWHERE) return NONE;
  slice after = trim_end_of(from(text, at + 4), ".");
  bool digit = false;
  for (size_t here = 0; here < after.len; here++) digit |= is_digit(after.ptr[here]);
  return digit && reads_as_answer(after) ? after : NONE;
}

/* Finds a mark without a backslash before it (except its own). */
static size_t find_unescaped(slice text, const char *mark, size_t at) {
  while ((at = find(text, mark, at)) != NOWHERE) {
    if (mark[0] == '\\' || at == 0 || text.ptr[at - 1] != '\\') return at;
    at += strlen(mark);
  }
  return NOWHERE;
}

/* The last formula and the position of its end. */
static slice last_math(slice text, size_t *end_of_last) {
  static const char *const MARKS[][2] = {{"\\[", "\\]"}, {"\\(", "\\)"}, {"$$", "$$"}, {"$", "$"}};
  slice last = NONE;
  for (size_t kind = 0; kind < COUNT(MARKS); kind++) {
    const char *open = MARKS[kind][0], *close = MARKS[kind][1];
    for (size_t at = 0;;) {
      size_t start = find_unescaped(text, open, at);
      if (start == NOWHERE) break;
      start += strlen(open);
      size_t end = find_unescaped(text, close, start);
      if (end == NOWHERE) break;
      at = end + strlen(close);
      slice inside = trim(part(text, start, end));
      if ((!last.ptr || end > *end_of_last) && inside.len > 0 && reads_as_answer(inside)) {
        last = inside;
        *end_of_last = end;
      }
    }
  }
  return last;
}

/* Start and end of the last separate number, including its sign, fraction and percent sign. */
static bool last_number(slice text, size_t *first, size_t *last) {
  bool found = false;
  for (size_t at = 0; at < text.len;) {
    /* `.5` begins with its point. */
    size_t digit = at + (text.ptr[at] == '.');
    if (digit >= text.len || !is_digit(text.ptr[digit])) {
      at++;
      continue;
    }
    size_t start = at, len = 0;
    while (at < text.len && (is_digit(text.ptr[at]) || (text.ptr[at] && strchr(",./", text.ptr[at]) && at + 1 < text.len &&
                                                        is_digit(text.ptr[at + 1])))) {
      at++;
    }
    uint32_t before = character_before(text, start, &len);
    if (is_alphanumeric(before) || before == '_') continue;
    bool sign = false;
    if (before == '-') {
      uint32_t two_before = character_before(text, start - 1, &len);
      sign = !is_alphanumeric(two_before) && two_before != ')' && two_before != '}';
    }
    *first = start - sign;
    *last = at + (at < text.len && text.ptr[at] == '%');
    found = true;
  }
  return found;
}

/* The last formula between dollars or brackets, or the last number, whichever comes later. */
static slice last_formula(slice text) {
  size_t end_of_formula = 0, start = 0, end = 0;
  slice formula = last_math(text, &end_of_formula);
  if (!last_number(text, &start, &end)) return formula;
  if (formula.ptr && (end_of_formula >= end || start < end_of_formula)) return formula;
  return part(text, start, end);
}

/* Accepts an answer of one or a few words. */
static slice short_answer(slice text) {
  text = trim(text);
  while (text.len > 0 && text.ptr[text.len - 1] == '.') text.len--;
  text = trim(text);
  size_t words = count_words(text);
  return words >= 1 && words <= MAX_WORDS ? text : NONE;
}

/* A copy with ASCII letters in lower case; byte positions stay the same. */
static slice lower(slice text) {
  pl_text made = pl_copy(text.ptr, text.len);
  for (char *c = (char *)made.ptr; c < made.ptr + made.len; c++) {
    if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
  }
  return made;
}

/* The answer after an announcement. */
static slice candidate(slice after) {
  slice small = lower(after);
  size_t end = after.len;
  for (size_t at = 0; at < COUNT(ENDS); at++) {
    size_t mark = find(small, ENDS[at], 0);
    if (mark < end) end = mark;
  }
  after = trim_start_of(part(after, 0, end), ":*\"=");
  size_t gap = find(after, "\n\n", 0);
  slice line = gap == NOWHERE ? after : part(after, 0, gap);
  if (!has(line, "\\[") && !has(line, "$$")) line = first_line(line);
  if (line.len == 0) return NONE;
  size_t stop = find(line, ". ", 0);
  slice sentence = trim_end_of(stop == NOWHERE ? line : part(line, 0, stop), ".*\"");
  slice found = stated(sentence);
  if (!found.ptr) found = last_formula(line);
  return found.ptr ? found : short_answer(sentence);
}

static slice announced(slice text) {
  /* The line feed at the front allows an announcement at the very start. */
  slice small = lower(pl_concat(2, pl_str("\n"), text));
  size_t start = 0;
  for (size_t at = 0; at < COUNT(ANNOUNCEMENTS); at++) {
    size_t mark = find_last(small, ANNOUNCEMENTS[at]);
    if (mark != NOWHERE && mark + strlen(ANNOUNCEMENTS[at]) > start) start = mark + strlen(ANNOUNCEMENTS[at]);
  }
  return start > 0 ? candidate(from(text, start - 1)) : NONE;
}

/* ---- Texts that are only an answer ---- */

typedef enum { SKIPPED, NUMBER, TEXT, JOIN, VALUE, WORD, OPEN, CLOSE, SIGN, OPERATOR, COMMA, AFTER, FOREIGN } piece;

static bool one_of(uint32_t c, const uint32_t *list) {
  while (*list && *list != c) list++;
  return *list != 0;
}

/* Kind and end of the command at `at`, which is a backslash. */
static piece command(slice text, size_t at, size_t *end) {
  static const char *const JOINS[] = {"cdot", "times", "div", "pm", "le", "leq", "ge", "geq", "ne", "neq", "approx"};
  size_t stop = at + 1;
  while (stop < text.len && text.ptr[stop] > 0 && is_letter((uint32_t)text.ptr[stop])) stop++;
  slice name = part(text, at + 1, stop);
  *end = stop;
  if (name.len == 0) {
    if (stop == text.len || !text.ptr[stop]) return FOREIGN;
    *end = stop + 1;
    return strchr("({[", text.ptr[stop]) ? OPEN : strchr(")}]", text.ptr[stop]) ? CLOSE : FOREIGN;
  }
  if ((same(name, "text") || same(name, "mathrm") || same(name, "mbox")) && starts(text, stop, "{")) {
    size_t close = stop + 1;
    while (close < text.len && text.ptr[close] != '{' && text.ptr[close] != '}') close++;
    if (starts(text, close, "}")) {
      *end = close + 1;
      return TEXT;
    }
  }
  for (size_t join = 0; join < COUNT(JOINS); join++) {
    if (same(name, JOINS[join])) return JOIN;
  }
  return VALUE;
}

static piece next_piece(slice text, size_t at, size_t *end) {
  static const uint32_t SKIPS[] = {'$', '~', 0xa3, 0x20ac, 0xa5, 0xb0, 0};
  static const uint32_t SIGNS[] = {'-', '+', 0x2212, 0xb1, 0};
  static const uint32_t OPERATORS[] = {'*', '/', '^', '=', '<', '>', 0x2264, 0x2265, 0x2248, 0xd7, 0xb7, 0xf7, 0};
  size_t len = 0;
  uint32_t c = character(text, at, &len);
  *end = at + len;
  if (is_space(c) || one_of(c, SKIPS)) return SKIPPED;
  if (c == '\\') return command(text, at, end);
  bool point = c == '.' && *end < text.len && is_digit(text.ptr[*end]);
  if (c < 0x80 && (is_digit((char)c) || point)) {
    while (*end < text.len && is_digit(text.ptr[*end])) ++*end;
    if (!point && starts(text, *end, ".")) {
      /* The full stop of a sentence, or `5.` */
      ++*end;
      while (*end < text.len && is_digit(text.ptr[*end])) ++*end;
    }
    return NUMBER;
  }
  if (is_letter(c)) {
    while (*end < text.len && is_letter(character(text, *end, &len))) *end += len;
    return WORD;
  }
  for (const char *const *pair = (const char *const[]){"**", "<=", ">=", "==", "!=", NULL}; *pair; pair++) {
    if (starts(text, at, *pair)) {
      *end = at + 2;
      return OPERATOR;
    }
  }
  if (one_of(c, OPERATORS)) return OPERATOR;
  if (one_of(c, SIGNS)) return SIGN;
  if (c == 0 || c >= 0x80) return FOREIGN;
  if (strchr("({[", (int)c)) return OPEN;
  if (strchr(")}]", (int)c)) return CLOSE;
  if (strchr(",;:", (int)c)) return COMMA;
  return strchr("%!|", (int)c) ? AFTER : FOREIGN;
}

/* Returns true if letters are a unit or a word: four or more are, two or three only after a value; else they are a product. */
static bool is_unit(slice word, bool after_value) {
  size_t letters = 0, len = 0;
  for (size_t at = 0; at < word.len; at += len, letters++) character(word, at, &len);
  return letters > 3 || (letters > 1 && after_value);
}

/* Returns true if the text is only an answer: values joined by signs, in matching brackets, with a unit at the end. */
static bool reads_as_answer(slice text) {
  if (text.len > 4096) return false;
  size_t depth = 0, values = 0, end = 0;
  bool units = false, waiting = true;
  for (size_t at = 0; at < text.len; at = end) {
    piece kind = next_piece(text, at, &end);
    slice said = part(text, at, end);
    if (kind == WORD && (same(said, "and") || same(said, "or"))) kind = COMMA;
    if (kind == WORD && is_unit(said, values > 0 && !waiting)) kind = TEXT;
    switch (kind) {
      case FOREIGN:
        /* A full stop at the end is ignored. */
        return same(trim(from(text, at)), ".") && values > 0;
      case TEXT:
        units = true;
        break;
      case NUMBER:
      case VALUE:
      case WORD:
        if (units) return false;
        values++;
        waiting = false;
        break;
      case OPEN:
        depth++;
        waiting = true;
        break;
      case CLOSE:
        if (depth-- == 0) return false;
        waiting = false;
        break;
      case JOIN:
      case OPERATOR:
        if (waiting) return false;
        waiting = true;
        break;
      case SIGN:
        waiting = true;
        break;
      case COMMA:
        units = waiting = false;
        break;
      case SKIPPED:
      case AFTER:
        break;
    }
  }
  return values > 0 && depth == 0 && !waiting;
}

/* ---- The whole extraction ---- */

static slice tail(slice text) {
  size_t at = text.len > MAX_TEXT_BYTES ? text.len - MAX_TEXT_BYTES : 0;
  /* Don't start within a character. */
  while (at < text.len && ((uint8_t)text.ptr[at] & 0xc0) == 0x80) at++;
  return from(text, at);
}

slice extract_answer(slice text) {
  static slice (*const WAYS[])(slice) = {boxed, after_hashes, announced, stated, last_formula, short_answer};
  if (text.len == 0) return NONE;
  text = tail(text);
  /* The reasoning part has no answer, unless there is no other text. */
  size_t thought = find_last(text, "</think>");
  if (thought != NOWHERE && trim(from(text, thought + 8)).len > 0) text = from(text, thought + 8);
  slice found = NONE;
  for (size_t way = 0; way < COUNT(WAYS) && !found.ptr; way++) found = WAYS[way](text);
  return found;
}
