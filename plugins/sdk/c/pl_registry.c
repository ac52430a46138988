/* Adapters from items (tables of functions) to the contract's functions over JSON. */
#include "pl_internal.h"

pl_error pl_refused;

static bool refuse(pl_about about, const char *format, va_list arguments) {
  pl_refused.about = about;
  pl_refused.message = pl_format_list(format, arguments);
  return false;
}

#define REFUSE(about)                              \
  va_list arguments;                               \
  va_start(arguments, format);                     \
  bool refused = refuse(about, format, arguments); \
  va_end(arguments);                               \
  return refused

bool pl_refuse_settings(const char *format, ...) { REFUSE(PL_ABOUT_SETTINGS); }
bool pl_refuse_task(const char *format, ...) { REFUSE(PL_ABOUT_TASK); }
bool pl_refuse(const char *format, ...) { REFUSE(PL_ABOUT_ITEM); }

/* Returns false; a function of an item that has refused without a message gets one. */
static bool refused_by(const char *item, const char *function) {
  if (pl_refused.message.len > 0) return false;
  return pl_refuse("%s.%s returned false without a message: call pl_refuse, pl_refuse_task or pl_refuse_settings", item,
                   function);
}

/* Calls a function of an item, without the message of an earlier call. */
#define CALL(item, function, ...) \
  (pl_refused.message = pl_str(""), (item)->function(__VA_ARGS__) || refused_by((item)->name, #function))

bool pl_read_task(const pl_task *task, const pl_type *type, void *value) {
  pl_text why;
  if (pl_read_json(task->data, type, value, false, &why)) return true;
  return pl_refuse_task("task %.*s: %.*s", PL_ARG(task->id), PL_ARG(why));
}

bool pl_read(pl_text json, const pl_type *type, void *value) {
  pl_text why;
  return pl_read_json(json, type, value, false, &why);
}

/* ---- Finding items ---- */

static bool unknown(const char *kind, pl_text name) {
  return pl_refuse("this plugin has no %s `%.*s`", kind, PL_ARG(name));
}

#define FIND(type, kind, list)                                              \
  static bool find_##kind(pl_text name, const type **found) {               \
    for (const type *const *at = pl_this_plugin.list; at && *at; at++) {    \
      if (pl_equal(name, pl_str((*at)->name))) return *found = *at, true;   \
    }                                                                       \
    return unknown(#kind, name);                                            \
  }

FIND(pl_environment, environment, environments)
FIND(pl_agent, agent, agents)
FIND(pl_reward, reward, rewards)

/* ---- Reading and writing JSON ---- */

static bool read_settings(const char *item, const pl_type *type, pl_text json, void **settings) {
  pl_text why;
  *settings = pl_new(type);
  if (pl_read_json(json, type, *settings, true, &why)) return true;
  return pl_refuse_settings("settings of %s: %.*s", item, PL_ARG(why));
}

static bool read_plain(const char *item, const char *what, const pl_type *type, pl_text json, void **value) {
  pl_text why;
  *value = pl_new(type);
  if (pl_read_json(json, type, *value, false, &why)) return true;
  return pl_refuse("%s cannot read %s: %.*s", item, what, PL_ARG(why));
}

static bool write_plain(const char *item, const char *what, const pl_type *type, const void *value, pl_text *json) {
  if (pl_write_json(type, value, json)) return true;
  return pl_refuse("%s: cannot write its %s as JSON (a number that is not finite, or text that is not UTF-8)", item, what);
}

static const char FOREIGN_VIEW[] = "the environment's view (is the agent made for this environment?)";

static bool read_actions(const char *item, const pl_type *type, const pl_json_action *given, size_t count,
                         pl_action **actions) {
  *actions = pl_alloc(count * sizeof(pl_action));
  for (size_t at = 0; at < count; at++) {
    pl_text agent = given[at].agent;
    const char *words = "the action of agent `%.*s` (is the agent made for this environment?)";
    pl_text what = pl_format(words, PL_ARG(agent));
    void *action;
    if (!read_plain(item, what.ptr, type, given[at].action, &action)) return false;
    (*actions)[at] = (pl_action){agent, action};
  }
  return true;
}

/* ---- Environments ---- */

bool pl_call_start(pl_text item, pl_text settings, const pl_task *task, uint64_t seed, pl_text *state) {
  const pl_environment *environment;
  void *read;
  if (!find_environment(item, &environment)) return false;
  if (!read_settings(environment->name, environment->settings, settings, &read)) return false;
  void *made = pl_new(environment->state);
  if (!CALL(environment, start, read, task, seed, made)) return false;
  return write_plain(environment->name, "state", environment->state, made, state);
}

bool pl_call_restore(pl_text item, pl_text settings, pl_text snapshot, pl_text *state) {
  const pl_environment *environment;
  void *read, *made;
  if (!find_environment(item, &environment)) return false;
  if (!read_settings(environment->name, environment->settings, settings, &read)) return false;
  if (!read_plain(environment->name, "its snapshot", environment->state, snapshot, &made)) return false;
  return write_plain(environment->name, "state", environment->state, made, state);
}

/* First step of every call into a running episode: reads its settings and its state. */
static bool resume(pl_text item, pl_text settings, pl_text state, const pl_environment **environment, void **read,
                   void **made) {
  if (!find_environment(item, environment)) return false;
  const pl_environment *found = *environment;
  if (!read_settings(found->name, found->settings, settings, read)) return false;
  return read_plain(found->name, "its state", found->state, state, made);
}

bool pl_call_view(pl_text item, pl_text settings, pl_text state, pl_text agent, pl_text *view) {
  const pl_environment *environment;
  void *read, *made;
  if (!resume(item, settings, state, &environment, &read, &made)) return false;
  void *seen = pl_new(environment->view);
  if (!CALL(environment, see, read, made, agent, seen)) return false;
  return write_plain(environment->name, "view", environment->view, seen, view);
}

bool pl_call_apply(pl_text item, pl_text settings, pl_text *state, const pl_json_action *given, size_t count,
                   pl_json_outcome *outcome) {
  const pl_environment *environment;
  void *read, *made;
  pl_action *actions;
  if (!resume(item, settings, *state, &environment, &read, &made)) return false;
  if (!read_actions(environment->name, environment->action, given, count, &actions)) return false;
  pl_outcome result = {false, false, pl_new(environment->facts), pl_new(environment->evidence)};
  if (!CALL(environment, apply, read, made, actions, count, &result)) return false;
  outcome->done = result.done;
  outcome->truncated = result.truncated;
  if (!environment->facts) {
    outcome->facts = pl_str("{}");
  } else if (!write_plain(environment->name, "facts", environment->facts, result.facts, &outcome->facts)) {
    return false;
  }
  if (!write_plain(environment->name, "evidence", environment->evidence, result.evidence, &outcome->evidence)) return false;
  return write_plain(environment->name, "state", environment->state, made, state);
}

bool pl_call_oracle(pl_text item, pl_text settings, pl_text state, pl_text agent, pl_text *action, bool *known) {
  const pl_environment *environment;
  void *read, *made;
  *known = false;
  if (!resume(item, settings, state, &environment, &read, &made)) return false;
  if (!environment->oracle) return true;
  void *advised = pl_new(environment->action);
  *known = true;
  if (!CALL(environment, oracle, read, made, agent, advised, known)) return false;
  return !*known || write_plain(environment->name, "oracle's action", environment->action, advised, action);
}

bool pl_call_draw(pl_text item, pl_text settings, pl_text state, pl_drawing_form form, pl_text *drawing, bool *known) {
  const pl_environment *environment;
  void *read, *made;
  *known = false;
  if (!resume(item, settings, state, &environment, &read, &made)) return false;
  if (!environment->draw) return true;
  *drawing = pl_str("");
  if (!CALL(environment, draw, read, made, form, drawing)) return false;
  *known = drawing->len > 0;
  return true;
}

bool pl_call_tasks(pl_text item, pl_text settings, const pl_task_request *request, pl_task **tasks) {
  const pl_environment *environment;
  void *read;
  if (!find_environment(item, &environment)) return false;
  if (!environment->tasks) {
    return pl_refuse_settings("%s makes no tasks of its own: set `tasks` to a file", environment->name);
  }
  if (!read_settings(environment->name, environment->settings, settings, &read)) return false;
  *tasks = pl_alloc(request->count * sizeof(pl_task));
  return CALL(environment, tasks, read, request, *tasks);
}

/* ---- Agents ---- */

bool pl_call_prompt(pl_text item, pl_text settings, pl_text view, const pl_turn *turn, pl_request *request) {
  const pl_agent *agent;
  void *read, *seen;
  if (!find_agent(item, &agent)) return false;
  if (!read_settings(agent->name, agent->settings, settings, &read)) return false;
  if (!read_plain(agent->name, FOREIGN_VIEW, agent->view, view, &seen)) return false;
  return CALL(agent, prompt, read, seen, turn, request);
}

bool pl_call_parse(pl_text item, pl_text settings, pl_text view, const pl_completion *completion, pl_text *action) {
  const pl_agent *agent;
  void *read, *seen;
  if (!find_agent(item, &agent)) return false;
  if (!read_settings(agent->name, agent->settings, settings, &read)) return false;
  if (!read_plain(agent->name, FOREIGN_VIEW, agent->view, view, &seen)) return false;
  void *meant = pl_new(agent->action);
  if (!CALL(agent, parse, read, seen, completion, meant)) return false;
  return write_plain(agent->name, "action", agent->action, meant, action);
}

bool pl_call_tools(pl_text item, pl_text settings, pl_text view, const pl_tool_call *calls, size_t count,
                   pl_list *results, bool *known) {
  const pl_agent *agent;
  void *read, *seen;
  *known = false;
  if (!find_agent(item, &agent)) return false;
  if (!agent->call_tools) return true;
  if (!read_settings(agent->name, agent->settings, settings, &read)) return false;
  if (!read_plain(agent->name, FOREIGN_VIEW, agent->view, view, &seen)) return false;
  if (!CALL(agent, call_tools, read, seen, calls, count, results)) return false;
  *known = results->count > 0;
  return true;
}

static pl_message *add_message(pl_request *request, pl_role role) {
  pl_message *message = PL_PUSH(pl_message, &request->messages);
  message->role = role;
  return message;
}

void pl_add_message(pl_request *request, pl_role role, pl_text text) {
  pl_part *part = PL_PUSH(pl_part, &add_message(request, role)->parts);
  part->kind = PL_PART_TEXT;
  part->text = text;
}

void pl_attach(pl_request *request, bool image, pl_text mime, const void *bytes, size_t len) {
  size_t count = request->messages.count;
  pl_message *last = count ? &PL_AT(pl_message, request->messages, count - 1) : add_message(request, PL_USER);
  pl_part *part = PL_PUSH(pl_part, &last->parts);
  part->kind = image ? PL_PART_IMAGE : PL_PART_DATA;
  part->mime = mime;
  part->bytes = bytes;
  part->len = len;
}

void pl_add_tool(pl_request *request, pl_text name, pl_text description, pl_text parameters) {
  *PL_PUSH(pl_tool, &request->tools) = (pl_tool){name, description, parameters};
}

void pl_add_stop(pl_request *request, pl_text stop) { *PL_PUSH(pl_text, &request->stop) = stop; }

/* ---- Rewards ---- */

bool pl_call_score(pl_text item, pl_text settings, const pl_task *task, const pl_json_action *given, size_t count,
                   const pl_json_outcome *outcome, pl_scores *scores) {
  const pl_reward *reward;
  void *read, *facts, *evidence;
  pl_action *actions;
  if (!find_reward(item, &reward)) return false;
  if (!read_settings(reward->name, reward->settings, settings, &read)) return false;
  if (!read_actions(reward->name, reward->action, given, count, &actions)) return false;
  if (!read_plain(reward->name, "the environment's facts", reward->facts, outcome->facts, &facts)) return false;
  if (!read_plain(reward->name, "the environment's evidence", reward->evidence, outcome->evidence, &evidence)) {
    return false;
  }
  pl_transition transition = {task, actions, count, outcome->done, outcome->truncated, facts, evidence};
  return CALL(reward, score, read, &transition, scores);
}

void pl_add_score(pl_scores *scores, pl_text agent, double reward, bool success) {
  *PL_PUSH(pl_agent_score, &scores->local) = (pl_agent_score){agent, reward, success};
}

/* ---- Randomness ---- */

uint64_t pl_random_below(uint64_t bound) {
  if (bound == 0) return 0;
  /* Lemire (2019): the high half of a product, redrawn if the low half would favour small numbers. */
  uint64_t threshold = -bound % bound;
  for (;;) {
    unsigned __int128 product = (unsigned __int128)pl_random() * bound;
    if ((uint64_t)product >= threshold) return (uint64_t)(product >> 64);
  }
}
