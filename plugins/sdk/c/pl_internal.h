/* Declarations that the SDK's own files share. Plugins don't use them. */
#ifndef PL_INTERNAL_H
#define PL_INTERNAL_H

#include <stdarg.h>

#include "pl_sdk.h"

/* Frees all memory of the call. */
void pl_release(void);
pl_text pl_format_list(const char *format, va_list arguments);

/* Reads the JSON in `text` into a value of `type`. On failure `why` has the path and the reason. `closed`, for settings:
 * unknown fields are errors, defaults are filled in and bounds are checked. A null type ignores the JSON. */
bool pl_read_json(pl_text text, const pl_type *type, void *value, bool closed, pl_text *why);
/* Writes a value as JSON; false if it has no JSON form. A null type writes null. */
bool pl_write_json(const pl_type *type, const void *value, pl_text *json);
/* JSON Schema of a settings type. */
pl_text pl_settings_schema(const pl_type *settings);

/* Zeroed memory for a value of `type`, which may be null. */
void *pl_new(const pl_type *type);

/* The latest error, in the contract's form. */
typedef enum { PL_ABOUT_SETTINGS, PL_ABOUT_TASK, PL_ABOUT_ITEM } pl_about;
typedef struct {
  pl_about about;
  pl_text message;
} pl_error;
extern pl_error pl_refused;

/* The contract's functions over JSON. They return false on an error, see `pl_refused`. */
typedef struct {
  bool done;
  bool truncated;
  pl_text facts;
  pl_text evidence;
} pl_json_outcome;

typedef struct {
  pl_text agent;
  pl_text action;
} pl_json_action;

bool pl_call_start(pl_text item, pl_text settings, const pl_task *task, uint64_t seed, pl_text *state);
bool pl_call_restore(pl_text item, pl_text settings, pl_text snapshot, pl_text *state);
bool pl_call_view(pl_text item, pl_text settings, pl_text state, pl_text agent, pl_text *view);
bool pl_call_apply(pl_text item, pl_text settings, pl_text *state, const pl_json_action *actions, size_t count,
                   pl_json_outcome *outcome);
/* Set `known` to false if the item has no oracle, no drawing or no result. */
bool pl_call_oracle(pl_text item, pl_text settings, pl_text state, pl_text agent, pl_text *action, bool *known);
bool pl_call_draw(pl_text item, pl_text settings, pl_text state, pl_drawing_form form, pl_text *drawing, bool *known);
bool pl_call_tools(pl_text item, pl_text settings, pl_text view, const pl_tool_call *calls, size_t count,
                   pl_list *results, bool *known);
bool pl_call_tasks(pl_text item, pl_text settings, const pl_task_request *request, pl_task **tasks);
bool pl_call_prompt(pl_text item, pl_text settings, pl_text view, const pl_turn *turn, pl_request *request);
bool pl_call_parse(pl_text item, pl_text settings, pl_text view, const pl_completion *completion, pl_text *action);
bool pl_call_score(pl_text item, pl_text settings, const pl_task *task, const pl_json_action *actions, size_t count,
                   const pl_json_outcome *outcome, pl_scores *scores);

/* The parts of a request, as `pl_add_message` and similar functions store them. */
typedef struct {
  enum { PL_PART_TEXT, PL_PART_IMAGE, PL_PART_DATA } kind;
  pl_text text, mime;
  const void *bytes;
  size_t len;
} pl_part;

typedef struct {
  pl_role role;
  pl_list parts;
} pl_message;

typedef struct {
  pl_text name, description, parameters;
} pl_tool;

#endif
