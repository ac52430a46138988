/* Slices of texts: searching, trimming and classes of characters. */
#ifndef SLICES_H
#define SLICES_H

#include "extract.h"

#define NOWHERE ((size_t)-1)

static inline slice part(slice text, size_t from, size_t to) { return (slice){text.ptr + from, to - from}; }
static inline slice from(slice text, size_t at) { return part(text, at, text.len); }
static inline bool same(slice text, const char *other) { return pl_equal(text, pl_str(other)); }

static inline bool starts(slice text, size_t at, const char *mark) {
  size_t len = strlen(mark);
  return at <= text.len && text.len - at >= len && memcmp(text.ptr + at, mark, len) == 0;
}

static inline size_t find(slice text, const char *mark, size_t at) {
  for (; at < text.len; at++) {
    if (starts(text, at, mark)) return at;
  }
  return NOWHERE;
}

static inline size_t find_last(slice text, const char *mark) {
  for (size_t at = text.len; at-- > 0;) {
    if (starts(text, at, mark)) return at;
  }
  return NOWHERE;
}

static inline bool has(slice text, const char *mark) { return find(text, mark, 0) != NOWHERE; }
static inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* The character at `at` of UTF-8 text, and its bytes in `len`. */
static inline uint32_t character(slice text, size_t at, size_t *len) {
  const uint8_t *bytes = (const uint8_t *)text.ptr + at;
  size_t left = text.len - at;
  *len = bytes[0] < 0x80 ? 1 : bytes[0] < 0xe0 ? 2 : bytes[0] < 0xf0 ? 3 : 4;
  if (*len > left) *len = left;
  if (*len == 1) return bytes[0];
  uint32_t made = bytes[0] & (0xffu >> (*len + 1));
  for (size_t more = 1; more < *len; more++) made = made << 6 | (bytes[more] & 0x3f);
  return made;
}

/* The character that ends at `at`; 0 at the start. */
static inline uint32_t character_before(slice text, size_t at, size_t *len) {
  *len = 0;
  if (at == 0) return 0;
  size_t start = at - 1;
  while (start > 0 && ((uint8_t)text.ptr[start] & 0xc0) == 0x80) start--;
  return character(text, start, len);
}

/* White space according to Unicode. */
static inline bool is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Letters of the scripts that models write in; Unicode's own table is longer. */
static inline bool is_letter(uint32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return c == 0xaa || c == 0xb5 || c == 0xba || (c >= 0xc0 && c <= 0x2c1 && c != 0xd7 && c != 0xf7) ||
         (c >= 0x370 && c <= 0x1fff && c != 0x37e && c != 0x387) || (c >= 0x3041 && c <= 0x3096) ||
         (c >= 0x30a1 && c <= 0x30fa) || (c >= 0x3400 && c <= 0x9fff) || (c >= 0xac00 && c <= 0xd7a3);
}

static inline bool is_alphanumeric(uint32_t c) {
  return (c < 0x80 && is_digit((char)c)) || is_letter(c) || c == 0xb2 || c == 0xb3 || c == 0xb9 ||
         (c >= 0xbc && c <= 0xbe) || (c >= 0x2070 && c <= 0x2089) || (c >= 0x2150 && c <= 0x2189);
}

/* Trims spaces and the ASCII characters of `also` at the start or at the end. */
static inline slice trim_start_of(slice text, const char *also) {
  size_t at = 0, len = 0;
  for (; at < text.len; at += len) {
    uint32_t c = character(text, at, &len);
    if (!is_space(c) && !(c && c < 0x80 && strchr(also, (int)c))) break;
  }
  return from(text, at);
}

static inline slice trim_end_of(slice text, const char *also) {
  for (size_t len = 0; text.len > 0; text.len -= len) {
    uint32_t c = character_before(text, text.len, &len);
    if (!is_space(c) && !(c && c < 0x80 && strchr(also, (int)c))) break;
  }
  return text;
}

static inline slice trim(slice text) { return trim_start_of(trim_end_of(text, ""), ""); }

static inline slice first_line(slice text) {
  size_t end = find(text, "\n", 0);
  if (end == NOWHERE) return text;
  return part(text, 0, end > 0 && text.ptr[end - 1] == '\r' ? end - 1 : end);
}

/* The next word from `*at` on; moves `*at` past it. `ptr` is null at the end. */
static inline slice next_word(slice text, size_t *at) {
  size_t len = 0;
  while (*at < text.len && is_space(character(text, *at, &len))) *at += len;
  size_t start = *at;
  while (*at < text.len && !is_space(character(text, *at, &len))) *at += len;
  return start == *at ? (slice){NULL, 0} : part(text, start, *at);
}

static inline size_t count_words(slice text) {
  size_t at = 0, count = 0;
  while (next_word(text, &at).ptr) count++;
  return count;
}

#endif
