/* The C and C++ SDK for plugins: agents, environments and rewards.
 *
 * An agent is two functions, an environment's state is a plain struct, a reward is one function. A struct becomes JSON,
 * and JSON the struct, by a table of its fields (`pl_type`): settings, states, views, actions, facts and evidence are
 * all described in this one way. README.md shows a complete plugin and how to build it.
 *
 * Memory: all memory that the SDK passes to a function, and all that `pl_alloc`, `pl_format` and `PL_PUSH` allocate,
 * lives until the host's call returns. Between calls an episode is only its state's JSON, so nothing leaks, and anything
 * outside the state's fields is lost after each call, not only when a snapshot is restored.
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

/* UTF-8, followed by a zero that `len` doesn't count. `ptr` is null if there is no text. */
typedef struct {
  const char *ptr;
  size_t len;
} pl_text;

/* An array of `count` values of one type; `PL_AT` reads one, `PL_PUSH` appends one. A zeroed list is empty. */
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

/* Arguments for `%.*s`. */
#define PL_ARG(text) (int)(text).len, (text).ptr
/* The value at an index. */
#define PL_AT(type, list, at) (((type *)(list).items)[at])

/* Zeroed memory that lives until the call returns. */
void *pl_alloc(size_t size);
/* Joins `count` texts: pl_concat(2, one, other). */
pl_text pl_concat(size_t count, ...);
/* printf into a new text. `%.*s` stops at the first zero of a text; `pl_concat` copies all of it. */
pl_text pl_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A copy of `len` bytes. */
pl_text pl_copy(const char *ptr, size_t len);
/* Appends a zeroed value of `size` bytes. */
void *pl_push_sized(pl_list *list, size_t size);
#define PL_PUSH(type, list) ((type *)pl_push_sized((list), sizeof(type)))

/* ---- Types: conversion between structs and JSON ---- */

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
  PL_MAYBE, /* optional: a pl_text with a null ptr, otherwise a null pointer */
  PL_CASE,  /* like PL_MAYBE, but absent from the JSON if null: for tagged unions */
  PL_LIST   /* a pl_list */
} pl_form;

typedef struct pl_type pl_type;

typedef struct {
  const char *name;
  const char *doc;
  size_t offset;
  const pl_type *type;
  pl_form form;
  /* Only for settings: the default as JSON, or null for a required setting. */
  const char *fallback;
  /* Only for settings: true if the (inclusive) bounds apply. */
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

/* A field with the name of its struct member. */
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

/* ---- Errors: `return pl_refuse_task("…")` from a function that has no result ---- */

/* The item's settings are invalid: the host points to the item's block in the workflow. */
bool pl_refuse_settings(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The environment can't read the task's record: the host points to its line. */
bool pl_refuse_task(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The item cannot continue for a reason other than its settings or the task. */
bool pl_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- Environments ---- */

/* One problem to solve. `data` is JSON: read it with `pl_read_task`, write it with `pl_write`. */
typedef struct {
  pl_text id;
  pl_text data;
} pl_task;

/* Reads the record into `value`, a struct of `type`; on failure calls `pl_refuse_task`. */
bool pl_read_task(const pl_task *task, const pl_type *type, void *value);
/* Reads JSON into `value`, a zeroed struct of `type`. False if it has another form. */
bool pl_read(pl_text json, const pl_type *type, void *value);
/* Writes a value as JSON. Traps if it has none (a number that is not finite, text that is not UTF-8). */
pl_text pl_write(const pl_type *type, const void *value);

/* The action of one agent: the agent's name in the workflow, and a struct of the item's `action` type. */
typedef struct {
  pl_text agent;
  const void *action;
} pl_action;

/* Result of a step in the environment. `facts` and `evidence` point to zeroed structs of their types. */
typedef struct {
  bool done;
  bool truncated;
  void *facts;
  void *evidence;
} pl_outcome;

/* A request for generated tasks: `count` tasks from index `start` on. */
typedef struct {
  pl_text split;
  uint64_t start;
  uint32_t count;
  uint32_t level;
} pl_task_request;

/* Form of a drawing: an SVG document without scripts, or lines of text. */
typedef enum { PL_SVG, PL_TEXT } pl_drawing_form;

/* A type may be null if the item has no such value (no settings, no evidence). */
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
  /* Fills `view`, which is zeroed, with the parts of the state that `agent` may see. */
  bool (*see)(const void *settings, const void *state, pl_text agent, void *view);
  /* Applies the actions of one turn together. An invalid action is not an error: it is the model's answer. */
  bool (*apply)(const void *settings, void *state, const pl_action *actions, size_t count, pl_outcome *outcome);
  /* Fills `count` tasks. Null if the environment generates none. */
  bool (*tasks)(const void *settings, const pl_task_request *request, pl_task *tasks);
  /* Fills `action`, which is zeroed, with an action of `agent` that leads to success, or sets `known` to false. Audits and
   * tests play it; no agent sees it. Null if there is no solver. */
  bool (*oracle)(const void *settings, const void *state, pl_text agent, void *action, bool *known);
  /* Sets `drawing` to a drawing of the state for people. An empty one stands for none. Null if there are no drawings. */
  bool (*draw)(const void *settings, const void *state, pl_drawing_form form, pl_text *drawing);
} pl_environment;

/* ---- Agents ---- */

typedef enum { PL_SYSTEM, PL_USER, PL_ASSISTANT, PL_TOOL } pl_role;
typedef enum { PL_STOPPED, PL_LENGTH, PL_TOOL_CALLS } pl_finish;

/* A request to the model. The functions below fill it; a request without messages skips the turn. */
typedef struct {
  pl_list messages;
  pl_list tools;
  pl_list stop;
} pl_request;

typedef struct {
  /* The agent's name in the workflow. */
  pl_text agent;
  /* Number of the agent's earlier visits in this episode. */
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

/* Adds a message with one text part. */
void pl_add_message(pl_request *request, pl_role role, pl_text text);
/* Appends an image (`image`) or other bytes to the last message's parts. The bytes are not copied. */
void pl_attach(pl_request *request, bool image, pl_text mime, const void *bytes, size_t len);
/* Adds a tool that the model may call. `parameters` is the JSON Schema of the arguments object. */
void pl_add_tool(pl_request *request, pl_text name, pl_text description, pl_text parameters);
/* Adds a string that ends the completion and is not part of its text. */
void pl_add_stop(pl_request *request, pl_text stop);

typedef struct {
  const char *name;
  const char *doc;
  const pl_type *settings;
  const pl_type *view;
  const pl_type *action;
  /* Fills `request`, which is empty. */
  bool (*prompt)(const void *settings, const void *view, const pl_turn *turn, pl_request *request);
  /* Fills `action`, which is zeroed. Invalid text is an action too, never an error. */
  bool (*parse)(const void *settings, const void *view, const pl_completion *completion, void *action);
  /* Fills `results` with a pl_text for each call; the model is then asked again, in the same turn. Leaves it empty if the
   * completion is the turn's last. Null if the agent has no tools. `pl_execute` and `pl_retrieve` are available here. */
  bool (*call_tools)(const void *settings, const void *view, const pl_tool_call *calls, size_t count, pl_list *results);
} pl_agent;

/* ---- Rewards ---- */

/* One step of an episode: the actions and their result. */
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

/* Scores of a step: one shared by the team, and one for each agent that acted (`pl_add_score`). */
typedef struct {
  double team;
  bool success;
  pl_list local;
} pl_scores;

void pl_add_score(pl_scores *scores, pl_text agent, double reward, bool success);

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

/* ---- Services of the host ---- */

/* The next number of the episode's random stream. Its position is part of the snapshot. */
uint64_t pl_random(void);
/* A number below `bound`, all equally likely. Returns 0 if `bound` is 0. */
uint64_t pl_random_below(uint64_t bound);

typedef enum { PL_DEBUG, PL_INFO, PL_WARN } pl_level;
/* Writes a log line to the run's trace. */
void pl_log(pl_level level, pl_text message);

typedef struct {
  pl_text path;
  const void *bytes;
  size_t len;
} pl_file;

/* A program to run. The language `python` is always available. */
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

/* Runs untrusted code, each job on a fresh worker; `verdicts` has room for `count`. Only environments and the tools of
 * agents may call it: elsewhere the call traps. */
void pl_execute(const pl_job *jobs, size_t count, pl_verdict *verdicts);

typedef struct {
  pl_text id;
  pl_text text;
  double score;
} pl_passage;

/* Fills `passages` with the `k` best pl_passage for `query`, best first. Refuses if the environment has no corpus. */
bool pl_retrieve(pl_text query, uint32_t k, pl_list *passages);
/* The same for `corpus`, a name in the workflow. */
bool pl_retrieve_from(pl_text corpus, pl_text query, uint32_t k, pl_list *passages);

typedef struct {
  /* PL_SYSTEM, PL_USER or PL_ASSISTANT. */
  pl_role role;
  pl_text text;
} pl_policy_message;

/* Sets `answer` to the greedy completion of a conversation by `policy`, a name in the workflow. Only rewards may call it,
 * and only with a `grant` that names the policy: else the call traps. Refuses if the policy can't generate. */
bool pl_ask(pl_text policy, const pl_policy_message *messages, size_t count, uint32_t max_tokens, pl_text *answer);

#ifdef __cplusplus
}
#endif
#endif
