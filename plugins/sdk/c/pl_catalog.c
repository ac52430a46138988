/* The contract's `catalog`. */
#include "pl_world.inc.h"

typedef exports_pl_host_plugin_catalog_item_t wire_item;
typedef exports_pl_host_plugin_catalog_fact_t wire_fact;

static uint8_t fact_kind(const pl_type *type) {
  switch (type->kind) {
    case PL_KIND_BOOL:
      return EXPORTS_PL_HOST_PLUGIN_CATALOG_FACT_KIND_BOOLEAN;
    case PL_KIND_INT:
    case PL_KIND_UINT:
    case PL_KIND_NUMBER:
      return EXPORTS_PL_HOST_PLUGIN_CATALOG_FACT_KIND_NUMBER;
    default:
      return EXPORTS_PL_HOST_PLUGIN_CATALOG_FACT_KIND_TEXT;
  }
}

static wire_item describe(uint8_t kind, const char *name, const char *doc, const pl_type *settings) {
  wire_item item = {0};
  item.kind = kind;
  item.name = out(pl_str(name));
  item.doc = out(pl_str(doc));
  item.settings_schema = out(pl_settings_schema(settings));
  return item;
}

static void describe_facts(const pl_type *facts, wire_item *item) {
  if (!facts) return;
  item->facts.len = facts->count;
  item->facts.ptr = out_room(facts->count, sizeof(wire_fact));
  for (size_t at = 0; at < facts->count; at++) {
    const pl_field *field = &facts->fields[at];
    item->facts.ptr[at] = (wire_fact){out(pl_str(field->name)), fact_kind(field->type), out(pl_str(field->doc))};
  }
}

void exports_pl_host_plugin_catalog_describe(exports_pl_host_plugin_catalog_list_item_t *ret) {
  pl_list items = {0};
  for (const pl_environment *const *at = pl_this_plugin.environments; at && *at; at++) {
    uint8_t kind = EXPORTS_PL_HOST_PLUGIN_CATALOG_ITEM_KIND_ENVIRONMENT;
    wire_item *item = PL_PUSH(wire_item, &items);
    *item = describe(kind, (*at)->name, (*at)->doc, (*at)->settings);
    describe_facts((*at)->facts, item);
  }
  for (const pl_agent *const *at = pl_this_plugin.agents; at && *at; at++) {
    uint8_t kind = EXPORTS_PL_HOST_PLUGIN_CATALOG_ITEM_KIND_AGENT;
    *PL_PUSH(wire_item, &items) = describe(kind, (*at)->name, (*at)->doc, (*at)->settings);
  }
  for (const pl_reward *const *at = pl_this_plugin.rewards; at && *at; at++) {
    uint8_t kind = EXPORTS_PL_HOST_PLUGIN_CATALOG_ITEM_KIND_REWARD;
    *PL_PUSH(wire_item, &items) = describe(kind, (*at)->name, (*at)->doc, (*at)->settings);
  }
  ret->ptr = out_bytes(items.items, items.count * sizeof(wire_item));
  ret->len = items.count;
  pl_release();
}
