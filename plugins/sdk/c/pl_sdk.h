/* The C and C++ SDK for plugins: agents, environments and rewards.
 *
 * An agent is two functions, an environment's state is a plain struct, a reward is one function. A struct becomes JSON,
 * and JSON the struct, by a table of its fields (`pl_type`): settings, states, views, actions, facts and evidence are
 * all described in this one way. README.md has a whole plugin and says how it is built.
 *
 * Memory: everything that the SDK hands to a function, and everything that `pl_alloc`, `pl_format` and `pl_push` make,
 * lives until the call of the host returns. Between calls an episode is nothing but its state's JSON, so nothing leaks,
 * and whatever is not in the state's fields is forgotten at once, not only when a snapshot is restored.
 */
#ifndef PL_SDK_H
#define PL_SDK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Texts and lists ---- */

/* UTF-8, with a zero behind it that does not count. `ptr` is null where there is no text. */
typedef struct {
  const char *ptr;
  size_t len;
} pl_text;

/* `count` values of one type in a row; `PL_AT` reads one. Starts as zeros, grows by `pl_push`. */
typedef struct {
  void *items;
  size_t count;
  size_t room;
} pl_list;

/* The text of a literal or of any zero-terminated string. */
static inline pl_text pl_str(const char *text) {
  pl_text made = {text, text ? strlen(text) : 0};
  return made;
}

static inline bool pl_equal(pl_text one, pl_text other) {
  return one.len == other.len && (one.len == 0 || memcmp(one.ptr, other.ptr, one.len) == 0);
}

/* For `%.*s`. */
#define PL_ARG(text) (int)(text).len, (text).ptr
/* The value at an index. */
#define PL_AT(type, list, at) (((type *)(list).items)[at])

/* Zeroed memory that lives until the call returns. */
void *pl_alloc(size_t size);
/* Texts behind one another, `count` of them: pl_concat(2, one, other). */
pl_text pl_concat(size_t count, ...);
/* printf into a new text. Of a text that holds a zero, `%.*s` writes what stands before it: `pl_concat` writes all. */
pl_text pl_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A copy of `len` bytes. */
pl_text pl_copy(const char *ptr, size_t len);
/* A new last value of `size` bytes, zeroed. */
void *pl_push_sized(pl_list *list, size_t size);
#define PL_PUSH(type, list) ((type *)pl_push_sized((list), sizeof(type)))

/* ---- Types: how structs and JSON become one another ---- */

typedef enum {
  PL_KIND_BOOL,   /* bool */
  PL_KIND_INT,    /* int64_t */
  PL_KIND_UINT,   /* uint64_t */
  PL_KIND_NUMBER, /* double */
  PL_KIND_TEXT,   /* pl_text */
  PL_KIND_JSON,   /* pl_text that holds any JSON */
  PL_KIND_OBJECT  /* a struct with fields */
} pl_kind;

typedef enum {
  PL_ONE,   /* the value itself */
  PL_MAYBE, /* null where there is none: a pl_text without ptr, else a pointer that is null */
  PL_CASE,  /* as PL_MAYBE, but the field is left out: for values of which one case holds */
  PL_LIST   /* a pl_list */
} pl_form;

typedef struct pl_type pl_type;

typedef struct {
  const char *name;
  const char *doc;
  size_t offset;
  const pl_type *type;
  pl_form form;
  /* Settings alone: the default as JSON, or null for a setting that must be given. */
  const char *fallback;
  /* Settings alone: whether the bounds count, which are both included. */
  bool bounded;
  double minimum, maximum;
} pl_field;

struct pl_type {
  pl_kind kind;
  size_t size;
  const pl_field *fields;
  size_t count;
};

extern const pl_type pl_bool, pl_int, pl_uint, pl_number, pl_string, pl_json;

/* A field of a struct whose member has the field's name. */
#define PL_FIELD(struct_, member, type, doc) {#member, doc, offsetof(struct_, member), &(type), PL_ONE, NULL, false, 0, 0}
#define PL_FIELD_MAYBE(struct_, member, type, doc) {#member, doc, offsetof(struct_, member), &(type), PL_MAYBE, NULL, false, 0, 0}
#define PL_FIELD_CASE(struct_, member, type, doc) {#member, doc, offsetof(struct_, member), &(type), PL_CASE, NULL, false, 0, 0}
#define PL_FIELD_LIST(struct_, member, type, doc) {#member, doc, offsetof(struct_, member), &(type), PL_LIST, NULL, false, 0, 0}
/* A setting with its default (JSON in a string: "100", "\"words\"", "[]"). */
#define PL_SETTING(struct_, member, type, fallback, doc) {#member, doc, offsetof(struct_, member), &(type), PL_ONE, fallback, false, 0, 0}
#define PL_SETTING_MAYBE(struct_, member, type, doc) {#member, doc, offsetof(struct_, member), &(type), PL_MAYBE, "null", false, 0, 0}
#define PL_SETTING_IN(struct_, member, type, fallback, minimum, maximum, doc) \
  {#member, doc, offsetof(struct_, member), &(type), PL_ONE, fallback, true, minimum, maximum}
/* The type of a struct by its fields. */
#define PL_TYPE(name, struct_, fields) \
  static const pl_type name = {PL_KIND_OBJECT, sizeof(struct_), fields, sizeof(fields) / sizeof(*(fields))}

/* ---- Refusals: `return pl_refuse_task("…")` from a function that cannot give a result ---- */

/* The item's settings do not mean anything: the host points to the item's block in the workflow. */
bool pl_refuse_settings(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The task's record is not of a form that the environment reads: the host points to its line. */
bool pl_refuse_task(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The item cannot go on, and neither the settings nor the task are to blame. */
bool pl_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- Environments ---- */

/* One problem to solve. `data` is JSON: `pl_read_task` reads it, `pl_write` makes it. */
typedef struct {
  pl_text id;
  pl_text data;
} pl_task;

/* The record into `value`, a struct of `type`; else a refusal about the task. */
bool pl_read_task(const pl_task *task, const pl_type *type, void *value);
/* A value's JSON. Traps where it has none (a number that is not finite, text that is not UTF-8). */
pl_text pl_write(const pl_type *type, const void *value);

/* What one agent did: its name in the workflow, and a struct of the item's `action` type. */
typedef struct {
  pl_text agent;
  const void *action;
} pl_action;

/* What an environment says after a step. `facts` and `evidence` point to zeroed structs of their types. */
typedef struct {
  bool done;
  bool truncated;
  void *facts;
  void *evidence;
} pl_outcome;

/* Which generated tasks are wanted: `count` from index `start` on. */
typedef struct {
  pl_text split;
  uint64_t start;
  uint32_t count;
  uint32_t level;
} pl_task_request;

/* Types may be null where there is nothing to describe (no settings, no evidence). */
typedef struct {
  const char *name;
  const char *doc;
  const pl_type *settings;
  const pl_type *state;
  const pl_type *view;
  const pl_type *action;
  const pl_type *facts;
  const pl_type *evidence;
  /* Fills `state`, which is zeroed. */
  bool (*start)(const void *settings, const pl_task *task, uint64_t seed, void *state);
  /* Fills `view`, which is zeroed, with what `agent` may see. */
  bool (*see)(const void *settings, const void *state, pl_text agent, void *view);
  /* Applies the actions of one turn together. A bad action is no refusal: it is what a model did. */
  bool (*apply)(const void *settings, void *state, const pl_action *actions, size_t count, pl_outcome *outcome);
  /* Fills `tasks`, `count` of them. Null where the environment makes none. */
  bool (*tasks)(const void *settings, const pl_task_request *request, pl_task *tasks);
} pl_environment;

/* ---- Agents ---- */

typedef enum { PL_SYSTEM, PL_USER, PL_ASSISTANT, PL_TOOL } pl_role;
typedef enum { PL_STOPPED, PL_LENGTH, PL_TOOL_CALLS } pl_finish;

/* What to ask the model. Filled by the functions below; a request without messages skips the turn. */
typedef struct {
  pl_list messages;
  pl_list tools;
  pl_list stop;
} pl_request;

typedef struct {
  /* The agent's name in the workflow. */
  pl_text agent;
  /* The agent's earlier visits in this episode. */
  uint32_t visit;
} pl_turn;

typedef struct {
  pl_text name;
  /* A JSON object. */
  pl_text arguments;
} pl_tool_call;

typedef struct {
  pl_text text;
  const pl_tool_call *tool_calls;
  size_t tool_call_count;
  pl_finish finish;
} pl_completion;

/* A message of one text part. */
void pl_say(pl_request *request, pl_role role, pl_text text);
/* A picture (`image`) or other bytes behind the last message's parts. The bytes are not copied. */
void pl_attach(pl_request *request, bool image, pl_text mime, const void *bytes, size_t len);
/* A tool that the model may call. `parameters` is the JSON Schema of the arguments object. */
void pl_offer_tool(pl_request *request, pl_text name, pl_text description, pl_text parameters);
/* A string that ends the completion and is no part of its text. */
void pl_stop_at(pl_request *request, pl_text stop);

typedef struct {
  const char *name;
  const char *doc;
  const pl_type *settings;
  const pl_type *view;
  const pl_type *action;
  /* What to ask the model. */
  bool (*prompt)(const void *settings, const void *view, const pl_turn *turn, pl_request *request);
  /* Fills `action`, which is zeroed. Text that means nothing is an action too, never a refusal. */
  bool (*parse)(const void *settings, const void *view, const pl_completion *completion, void *action);
} pl_agent;

/* ---- Rewards ---- */

/* One step: who did what, and what came of it. */
typedef struct {
  const pl_task *task;
  const pl_action *actions;
  size_t count;
  bool done;
  bool truncated;
  const void *facts;
  const void *evidence;
} pl_transition;

typedef struct {
  pl_text agent;
  double reward;
  bool success;
} pl_agent_score;

/* What a step earned: the part that all agents share, and one part for each agent that acted (`pl_earn`). */
typedef struct {
  double team;
  bool success;
  pl_list local;
} pl_scores;

void pl_earn(pl_scores *scores, pl_text agent, double reward, bool success);

typedef struct {
  const char *name;
  const char *doc;
  const pl_type *settings;
  const pl_type *action;
  const pl_type *facts;
  const pl_type *evidence;
  bool (*score)(const void *settings, const pl_transition *transition, pl_scores *scores);
} pl_reward;

/* ---- The plugin ---- */

/* Lists that end with a null pointer. */
typedef struct {
  const pl_environment *const *environments;
  const pl_agent *const *agents;
  const pl_reward *const *rewards;
} pl_plugin;

/* The main file defines it. */
extern const pl_plugin pl_this_plugin;

/* ---- What the host does for plugins ---- */

/* The next number of the episode's random stream. Its position travels with the snapshot. */
uint64_t pl_random(void);
/* A number below `bound`, every one as likely as the others. 0 for a bound of 0. */
uint64_t pl_random_below(uint64_t bound);

typedef enum { PL_DEBUG, PL_INFO, PL_WARN } pl_level;
/* A line for the run's trace. */
void pl_log(pl_level level, pl_text message);

typedef struct {
  pl_text path;
  const void *bytes;
  size_t len;
} pl_file;

/* A program to run. The language `python` is always there. */
typedef struct {
  pl_text language;
  pl_text source;
  pl_text stdin_;
  const pl_file *files;
  size_t file_count;
} pl_job;

typedef enum {
  PL_ENDED_OK,
  PL_ENDED_ERROR,
  PL_ENDED_TIMEOUT,
  PL_ENDED_MEMORY,
  PL_ENDED_OUTPUT_LIMIT,
  PL_ENDED_PROCESS_LIMIT,
  PL_ENDED_LOST_WORKER
} pl_ending;

typedef struct {
  pl_ending ending;
  bool has_exit;
  int32_t exit;
  pl_text stdout_;
  pl_text stderr_;
} pl_verdict;

/* Runs untrusted code, each job on a fresh worker; `verdicts` has room for `count`. Only environments may call it:
 * elsewhere the call traps. */
void pl_execute(const pl_job *jobs, size_t count, pl_verdict *verdicts);

typedef struct {
  pl_text id;
  pl_text text;
  double score;
} pl_passage;

/* The `k` passages that fit `query` best as a list of pl_passage; else, where the workflow has no corpus, a refusal. */
bool pl_retrieve(pl_text query, uint32_t k, pl_list *passages);

#ifdef __cplusplus
}
#endif
#endif
