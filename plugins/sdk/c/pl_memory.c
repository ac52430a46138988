/* Memory of one call: an arena of blocks that are freed together. */
#include "pl_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Most calls need less, so that they use only the first block, which is kept. */
#define BLOCK_SIZE ((size_t)64 << 10)

typedef struct block {
  struct block *earlier;
  size_t size, used;
} block;

static block *newest;

static size_t rounded(size_t size) { return (size + 15) & ~(size_t)15; }

static block *add_block(size_t size) {
  size_t whole = size > BLOCK_SIZE ? size : BLOCK_SIZE;
  block *made = whole > SIZE_MAX - 64 ? NULL : malloc(rounded(sizeof(block)) + whole);
  /* The contract has no error for this: the trap ends only this episode and names this function. */
  if (!made) __builtin_trap();
  made->earlier = newest;
  made->size = whole;
  made->used = 0;
  newest = made;
  return made;
}

void *pl_alloc(size_t size) {
  if (size > SIZE_MAX - 64) __builtin_trap();
  size = rounded(size ? size : 1);
  block *from = newest && newest->size - newest->used >= size ? newest : add_block(size);
  char *start = (char *)from + rounded(sizeof(block)) + from->used;
  from->used += size;
  return memset(start, 0, size);
}

void pl_release(void) {
  while (newest && (newest->earlier || newest->size > BLOCK_SIZE)) {
    block *earlier = newest->earlier;
    free(newest);
    newest = earlier;
  }
  if (newest) newest->used = 0;
}

pl_text pl_copy(const char *ptr, size_t len) {
  char *made = pl_alloc(len + 1);
  if (len) memcpy(made, ptr, len);
  pl_text text = {made, len};
  return text;
}

pl_text pl_concat(size_t count, ...) {
  va_list parts, again;
  va_start(parts, count);
  va_copy(again, parts);
  size_t len = 0;
  for (size_t at = 0; at < count; at++) len += va_arg(parts, pl_text).len;
  char *made = pl_alloc(len + 1);
  char *next = made;
  for (size_t at = 0; at < count; at++) {
    pl_text one = va_arg(again, pl_text);
    if (one.len) memcpy(next, one.ptr, one.len);
    next += one.len;
  }
  va_end(parts);
  va_end(again);
  pl_text text = {made, len};
  return text;
}

pl_text pl_format_list(const char *format, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  int length = vsnprintf(NULL, 0, format, arguments);
  if (length < 0) __builtin_trap();
  char *made = pl_alloc((size_t)length + 1);
  vsnprintf(made, (size_t)length + 1, format, again);
  va_end(again);
  pl_text text = {made, (size_t)length};
  return text;
}

pl_text pl_format(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  pl_text text = pl_format_list(format, arguments);
  va_end(arguments);
  return text;
}

void *pl_push_sized(pl_list *list, size_t size) {
  if (list->count == list->room) {
    size_t room = list->room ? list->room * 2 : 8;
    void *items = pl_alloc(room * size);
    if (list->count) memcpy(items, list->items, list->count * size);
    list->items = items;
    list->room = room;
  }
  return memset((char *)list->items + size * list->count++, 0, size);
}
