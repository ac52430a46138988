/* Copies between the call's memory and the bindings' memory, for the files that implement the contract's interfaces.
 *
 * The bindings free an export's results but not its arguments. Therefore results are copied out and arguments are freed
 * here; all other memory belongs to the call. */
#ifndef PL_WORLD_INC_H
#define PL_WORLD_INC_H

#include <stdlib.h>

#include "pl_internal.h"
#include "pl_world.h"

static inline void *out_bytes(const void *ptr, size_t len) {
  /* The pointer of an empty list is never dereferenced and never freed. */
  if (len == 0) return NULL;
  void *made = malloc(len);
  if (!made) __builtin_trap();
  return memcpy(made, ptr, len);
}

static inline void *out_room(size_t count, size_t size) {
  if (count == 0) return NULL;
  void *made = calloc(count, size);
  if (!made) __builtin_trap();
  return made;
}

static inline pl_world_string_t out(pl_text text) {
  return (pl_world_string_t){out_bytes(text.ptr, text.len), text.len};
}

static inline pl_text in(pl_world_string_t text) { return (pl_text){(const char *)text.ptr, text.len}; }

/* Writes the call's error in the contract's form. */
static inline bool out_error(pl_host_plugin_types_error_t *error) {
  error->kind = (pl_host_plugin_types_error_kind_t)pl_refused.about;
  error->message = out(pl_refused.message);
  return false;
}

#endif
