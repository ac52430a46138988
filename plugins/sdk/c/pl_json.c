/* Conversion between JSON and structs, by the table of a struct's fields. */
#include "pl_yyjson.h"

const pl_type pl_bool = {PL_KIND_BOOL, sizeof(bool), NULL, 0};
const pl_type pl_int = {PL_KIND_INT, sizeof(int64_t), NULL, 0};
const pl_type pl_uint = {PL_KIND_UINT, sizeof(uint64_t), NULL, 0};
const pl_type pl_number = {PL_KIND_NUMBER, sizeof(double), NULL, 0};
const pl_type pl_string = {PL_KIND_TEXT, sizeof(pl_text), NULL, 0};
const pl_type pl_json = {PL_KIND_JSON, sizeof(pl_text), NULL, 0};

/* Allocator for yyjson, on the call's memory. */
static void *allocate(void *context, size_t size) {
  (void)context;
  return pl_alloc(size);
}

static void *reallocate(void *context, void *old, size_t old_size, size_t size) {
  void *made = allocate(context, size);
  memcpy(made, old, old_size < size ? old_size : size);
  return made;
}

static void leave(void *context, void *ptr) {
  (void)context;
  (void)ptr;
}

const yyjson_alc pl_call_memory = {allocate, reallocate, leave, NULL};

void *pl_new(const pl_type *type) { return pl_alloc(type ? type->size : 1); }

/* ---- Reading ---- */

/* State of reading: the path and the reason of a failure. */
typedef struct {
  bool closed;
  pl_text path;
  pl_text why;
} reader;

static bool read_value(reader *reader, yyjson_val *json, const pl_type *type, void *value);

static bool expected(reader *reader, const char *what, yyjson_val *json) {
  size_t len = 0;
  const char *shown = yyjson_val_write_opts(json, YYJSON_WRITE_NOFLAG, &pl_call_memory, &len, NULL);
  reader->why = pl_format("expected %s, found %.*s", what, (int)(len > 80 ? 80 : len), shown ? shown : "");
  return false;
}

static bool read_text(yyjson_val *json, pl_text *text) {
  *text = pl_copy(yyjson_get_str(json), yyjson_get_len(json));
  return true;
}

static bool read_list(reader *reader, yyjson_val *json, const pl_type *type, pl_list *list) {
  if (!yyjson_is_arr(json)) return expected(reader, "a list", json);
  size_t at, count;
  yyjson_val *item;
  yyjson_arr_foreach(json, at, count, item) {
    if (!read_value(reader, item, type, pl_push_sized(list, type->size))) {
      reader->path = pl_format("[%zu]%.*s", at, PL_ARG(reader->path));
      return false;
    }
  }
  return true;
}

static bool read_member(reader *reader, yyjson_val *json, const pl_field *field, void *member) {
  if (field->form == PL_LIST) return read_list(reader, json, field->type, member);
  if (field->form == PL_ONE) return read_value(reader, json, field->type, member);
  if (yyjson_is_null(json)) return true;
  if (field->type->kind == PL_KIND_TEXT) return read_value(reader, json, field->type, member);
  return read_value(reader, json, field->type, *(void **)member = pl_new(field->type));
}

static bool within_bounds(reader *reader, const pl_field *field, yyjson_val *json) {
  double number = yyjson_get_num(json);
  if (!reader->closed || !field->bounded || (number >= field->minimum && number <= field->maximum)) return true;
  reader->why = pl_format("%.17g is out of range, expected %.17g to %.17g", number, field->minimum, field->maximum);
  return false;
}

static yyjson_val *fallback_of(const char *fallback) {
  return yyjson_doc_get_root(yyjson_read_opts((char *)fallback, strlen(fallback), 0, &pl_call_memory, NULL));
}

static bool read_field(reader *reader, yyjson_val *object, const pl_field *field, char *start) {
  yyjson_val *json = yyjson_obj_get(object, field->name);
  if (!json && field->fallback) json = fallback_of(field->fallback);
  if (!json) {
    if (field->form == PL_MAYBE || field->form == PL_CASE) return true;
    reader->why = pl_format("`%s` is missing", field->name);
    return false;
  }
  if (read_member(reader, json, field, start + field->offset) && within_bounds(reader, field, json)) return true;
  reader->path = pl_format(".%s%.*s", field->name, PL_ARG(reader->path));
  return false;
}

static bool known(const pl_type *type, yyjson_val *key) {
  for (size_t at = 0; at < type->count; at++) {
    if (yyjson_equals_str(key, type->fields[at].name)) return true;
  }
  return false;
}

static bool read_object(reader *reader, yyjson_val *json, const pl_type *type, void *value) {
  if (!yyjson_is_obj(json)) return expected(reader, "an object", json);
  size_t at, count;
  yyjson_val *key, *item;
  if (reader->closed) {
    yyjson_obj_foreach(json, at, count, key, item) {
      if (known(type, key)) continue;
      reader->why = pl_format("unknown field `%s`, expected one of", yyjson_get_str(key));
      for (size_t field = 0; field < type->count; field++) {
        const char *comma = field ? "," : "";
        reader->why = pl_format("%.*s%s `%s`", PL_ARG(reader->why), comma, type->fields[field].name);
      }
      return false;
    }
  }
  for (at = 0; at < type->count; at++) {
    if (!read_field(reader, json, &type->fields[at], value)) return false;
  }
  return true;
}

/* Reads an integer of at most 64 bits. JSON Schema counts 3.0 as one too. */
static bool read_integer(yyjson_val *json, bool is_signed, void *value) {
  if (yyjson_is_real(json)) {
    double number = yyjson_get_real(json);
    if (is_signed ? !(number >= -0x1p63 && number < 0x1p63) : !(number >= 0 && number < 0x1p64)) return false;
    *(uint64_t *)value = is_signed ? (uint64_t)(int64_t)number : (uint64_t)number;
    return number == (is_signed ? (double)(int64_t)number : (double)(uint64_t)number);
  }
  /* yyjson's signed integers are the negative ones. */
  bool fits = yyjson_is_uint(json) ? !is_signed || yyjson_get_uint(json) <= INT64_MAX : is_signed && yyjson_is_sint(json);
  if (!fits) return false;
  *(uint64_t *)value = yyjson_get_uint(json);
  return true;
}

static bool read_value(reader *reader, yyjson_val *json, const pl_type *type, void *value) {
  switch (type->kind) {
    case PL_KIND_BOOL:
      if (!yyjson_is_bool(json)) return expected(reader, "true or false", json);
      *(bool *)value = yyjson_get_bool(json);
      return true;
    case PL_KIND_INT:
      return read_integer(json, true, value) || expected(reader, "an integer", json);
    case PL_KIND_UINT:
      return read_integer(json, false, value) || expected(reader, "a non-negative integer", json);
    case PL_KIND_NUMBER:
      if (!yyjson_is_num(json)) return expected(reader, "a number", json);
      *(double *)value = yyjson_get_num(json);
      return true;
    case PL_KIND_TEXT:
      if (!yyjson_is_str(json)) return expected(reader, "a string", json);
      return read_text(json, value);
    case PL_KIND_JSON: {
      size_t len = 0;
      const char *text = yyjson_val_write_opts(json, YYJSON_WRITE_NOFLAG, &pl_call_memory, &len, NULL);
      *(pl_text *)value = pl_copy(text, text ? len : 0);
      return text != NULL;
    }
    case PL_KIND_OBJECT:
      return read_object(reader, json, type, value);
  }
  return false;
}

bool pl_read_json(pl_text text, const pl_type *type, void *value, bool closed, pl_text *why) {
  static const pl_type nothing = {PL_KIND_OBJECT, 0, NULL, 0};
  reader reader = {closed, pl_str(""), pl_str("")};
  yyjson_read_err error;
  yyjson_doc *document = yyjson_read_opts((char *)text.ptr, text.len, YYJSON_READ_NOFLAG, &pl_call_memory, &error);
  if (!document) {
    *why = pl_format("%s at byte %zu", error.msg, error.pos);
    return false;
  }
  if (!type && !closed) return true;
  if (read_value(&reader, yyjson_doc_get_root(document), type ? type : &nothing, value)) return true;
  bool deep = reader.path.len > 0;
  const char *path = deep && reader.path.ptr[0] == '.' ? reader.path.ptr + 1 : reader.path.ptr;
  *why = pl_format("%s%s%.*s", path, deep ? ": " : "", PL_ARG(reader.why));
  return false;
}

/* ---- Writing ---- */

static yyjson_mut_val *write_value(yyjson_mut_doc *document, const pl_type *type, const void *value);

static yyjson_mut_val *write_list(yyjson_mut_doc *document, const pl_type *type, const pl_list *list) {
  yyjson_mut_val *made = yyjson_mut_arr(document);
  for (size_t at = 0; at < list->count; at++) {
    yyjson_mut_arr_append(made, write_value(document, type, (char *)list->items + at * type->size));
  }
  return made;
}

/* Null if an optional member is absent. */
static const void *present(const pl_field *field, const void *member) {
  if (field->form == PL_ONE || field->form == PL_LIST) return member;
  if (field->type->kind == PL_KIND_TEXT) return ((const pl_text *)member)->ptr ? member : NULL;
  return *(void *const *)member;
}

static yyjson_mut_val *write_object(yyjson_mut_doc *document, const pl_type *type, const char *value) {
  yyjson_mut_val *made = yyjson_mut_obj(document);
  for (size_t at = 0; at < type->count; at++) {
    const pl_field *field = &type->fields[at];
    const void *member = present(field, value + field->offset);
    if (!member && field->form == PL_CASE) continue;
    yyjson_mut_val *json = !member                 ? yyjson_mut_null(document)
                           : field->form == PL_LIST ? write_list(document, field->type, member)
                                                    : write_value(document, field->type, member);
    yyjson_mut_obj_add(made, yyjson_mut_str(document, field->name), json);
  }
  return made;
}

static yyjson_mut_val *write_value(yyjson_mut_doc *document, const pl_type *type, const void *value) {
  switch (type->kind) {
    case PL_KIND_BOOL:
      return yyjson_mut_bool(document, *(const bool *)value);
    case PL_KIND_INT:
      return yyjson_mut_sint(document, *(const int64_t *)value);
    case PL_KIND_UINT:
      return yyjson_mut_uint(document, *(const uint64_t *)value);
    case PL_KIND_NUMBER:
      return yyjson_mut_real(document, *(const double *)value);
    case PL_KIND_TEXT: {
      const pl_text *text = value;
      return text->ptr ? yyjson_mut_strn(document, text->ptr, text->len) : yyjson_mut_null(document);
    }
    case PL_KIND_JSON: {
      const pl_text *text = value;
      return text->ptr ? yyjson_mut_rawn(document, text->ptr, text->len) : yyjson_mut_null(document);
    }
    case PL_KIND_OBJECT:
      return write_object(document, type, value);
  }
  return NULL;
}

/* yyjson writes control characters as \u001F; the other languages' writers, and so their snapshots, as \u001f. */
static void lower_escapes(char *json, size_t len) {
  for (size_t at = 0; at + 1 < len; at++) {
    if (json[at] != '\\') continue;
    at++;
    if (json[at] != 'u') continue;
    for (size_t digit = 1; digit <= 4 && at + digit < len; digit++) {
      char *c = &json[at + digit];
      if (*c >= 'A' && *c <= 'F') *c = (char)(*c - 'A' + 'a');
    }
  }
}

bool pl_write_json(const pl_type *type, const void *value, pl_text *json) {
  *json = pl_str("null");
  if (!type) return true;
  yyjson_mut_doc *document = yyjson_mut_doc_new(&pl_call_memory);
  yyjson_mut_doc_set_root(document, write_value(document, type, value));
  size_t len = 0;
  char *made = yyjson_mut_write_opts(document, YYJSON_WRITE_NOFLAG, &pl_call_memory, &len, NULL);
  if (!made) return false;
  lower_escapes(made, len);
  json->ptr = made;
  json->len = len;
  return true;
}

pl_text pl_write(const pl_type *type, const void *value) {
  pl_text json;
  if (!pl_write_json(type, value, &json)) __builtin_trap();
  return json;
}
