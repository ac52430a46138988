/* JSON Schema of settings for the host, made from the table of their fields. */
#include "pl_yyjson.h"

static yyjson_mut_val *schema_of(yyjson_mut_doc *document, const pl_type *type);

static const char *schema_type(const pl_type *type) {
  switch (type->kind) {
    case PL_KIND_BOOL:
      return "boolean";
    case PL_KIND_INT:
    case PL_KIND_UINT:
      return "integer";
    case PL_KIND_NUMBER:
      return "number";
    case PL_KIND_TEXT:
      return "string";
    case PL_KIND_OBJECT:
      return "object";
    case PL_KIND_JSON:
      break;
  }
  return NULL;
}

static void add_bound(yyjson_mut_doc *document, yyjson_mut_val *schema, const char *name, const pl_field *field,
                      double bound) {
  if (field->type->kind == PL_KIND_NUMBER) {
    yyjson_mut_obj_add_real(document, schema, name, bound);
  } else {
    yyjson_mut_obj_add_sint(document, schema, name, (int64_t)bound);
  }
}

static yyjson_mut_val *list_schema(yyjson_mut_doc *document, const pl_type *type) {
  yyjson_mut_val *made = yyjson_mut_obj(document);
  yyjson_mut_obj_add_str(document, made, "type", "array");
  yyjson_mut_obj_add_val(document, made, "items", schema_of(document, type));
  return made;
}

static yyjson_mut_val *schema_of_field(yyjson_mut_doc *document, const pl_field *field) {
  bool list = field->form == PL_LIST;
  yyjson_mut_val *made = list ? list_schema(document, field->type) : schema_of(document, field->type);
  const char *type = schema_type(field->type);
  if (field->form == PL_MAYBE && type) {
    yyjson_mut_val *either = yyjson_mut_arr_with_str(document, (const char *[]){type, "null"}, 2);
    yyjson_mut_obj_put(made, yyjson_mut_str(document, "type"), either);
  }
  if (field->doc) yyjson_mut_obj_add_str(document, made, "description", field->doc);
  if (field->type->kind == PL_KIND_UINT && !field->bounded && !list) add_bound(document, made, "minimum", field, 0);
  if (field->bounded) {
    add_bound(document, made, "minimum", field, field->minimum);
    add_bound(document, made, "maximum", field, field->maximum);
  }
  if (field->fallback) {
    yyjson_mut_val *fallback = yyjson_mut_raw(document, field->fallback);
    yyjson_mut_obj_add_val(document, made, "default", fallback);
  }
  return made;
}

static yyjson_mut_val *schema_of(yyjson_mut_doc *document, const pl_type *type) {
  yyjson_mut_val *made = yyjson_mut_obj(document);
  const char *name = schema_type(type);
  if (name) yyjson_mut_obj_add_str(document, made, "type", name);
  if (type->kind != PL_KIND_OBJECT) return made;
  yyjson_mut_val *properties = yyjson_mut_obj_add_obj(document, made, "properties");
  yyjson_mut_val *required = yyjson_mut_arr(document);
  for (size_t at = 0; at < type->count; at++) {
    const pl_field *field = &type->fields[at];
    yyjson_mut_obj_add_val(document, properties, field->name, schema_of_field(document, field));
    if (!field->fallback) yyjson_mut_arr_add_str(document, required, field->name);
  }
  yyjson_mut_obj_add_bool(document, made, "additionalProperties", false);
  if (yyjson_mut_arr_size(required)) yyjson_mut_obj_add_val(document, made, "required", required);
  return made;
}

pl_text pl_settings_schema(const pl_type *settings) {
  static const pl_type nothing = {PL_KIND_OBJECT, 0, NULL, 0};
  yyjson_mut_doc *document = yyjson_mut_doc_new(&pl_call_memory);
  yyjson_mut_val *schema = schema_of(document, settings ? settings : &nothing);
  yyjson_mut_doc_set_root(document, schema);
  size_t len = 0;
  char *made = yyjson_mut_write_opts(document, YYJSON_WRITE_NOFLAG, &pl_call_memory, &len, NULL);
  if (!made) __builtin_trap();
  pl_text text = {made, len};
  return text;
}
