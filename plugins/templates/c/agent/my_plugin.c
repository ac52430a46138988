/* An agent: two functions, `prompt` and `parse`. */
#include "pl_sdk.h"

/* Settings in the workflow. */
typedef struct {
  pl_text instruction;
} Settings;
static const pl_field SETTINGS_FIELDS[] = {
    PL_SETTING(Settings, instruction, pl_string, "\"Solve the problem. End with the answer, a number.\"",
               "The instruction before the question."),
};
PL_TYPE(SETTINGS, Settings, SETTINGS_FIELDS);

/* The part of the environment's view that this agent reads. */
typedef struct {
  pl_text question;
} View;
static const pl_field VIEW_FIELDS[] = {PL_FIELD(View, question, pl_string, NULL)};
PL_TYPE(VIEW, View, VIEW_FIELDS);

/* The agent's action, in the form that the environment reads: one of the two fields. */
typedef struct {
  pl_text answer, none;
} Move;
static const pl_field MOVE_FIELDS[] = {
    PL_FIELD_CASE(Move, answer, pl_string, NULL),
    PL_FIELD_CASE(Move, none, pl_string, NULL),
};
PL_TYPE(MOVE, Move, MOVE_FIELDS);

static bool prompt(const void *settings, const void *view, const pl_turn *turn, pl_request *request) {
  const Settings *given = settings;
  const View *seen = view;
  pl_add_message(request, PL_SYSTEM, given->instruction);
  pl_add_message(request, PL_USER, seen->question);
  return true;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool parse(const void *settings, const void *view, const pl_completion *completion, void *action) {
  Move *move = action;
  pl_text text = completion->text;
  size_t end = text.len;
  while (end > 0 && !is_digit(text.ptr[end - 1])) end--;
  size_t start = end;
  while (start > 0 && is_digit(text.ptr[start - 1])) start--;
  if (start < end) {
    move->answer = pl_copy(text.ptr + start, end - start);
  } else {
    /* Invalid text is an action too: the environment decides how to continue. */
    move->none = pl_str("no number");
  }
  return true;
}

static const pl_agent SOLVER = {
    .name = "solver",
    .doc = "Answers with the last number in its text.",
    .settings = &SETTINGS,
    .view = &VIEW,
    .action = &MOVE,
    .prompt = prompt,
    .parse = parse,
};

static const pl_environment *const ENVIRONMENTS[] = {NULL};
static const pl_agent *const AGENTS[] = {&SOLVER, NULL};
static const pl_reward *const REWARDS[] = {NULL};
const pl_plugin pl_this_plugin = {ENVIRONMENTS, AGENTS, REWARDS};
