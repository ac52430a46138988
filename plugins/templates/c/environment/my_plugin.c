/* An environment: a struct that holds the episode's state, and the functions that change it. */
#include <inttypes.h>

#include "pl_sdk.h"

/* A task's record, read from a line of a task file or made by `tasks`. */
typedef struct {
  pl_text question, answer;
} Problem;
static const pl_field PROBLEM_FIELDS[] = {
    PL_FIELD(Problem, question, pl_string, NULL),
    PL_FIELD(Problem, answer, pl_string, NULL),
};
PL_TYPE(PROBLEM, Problem, PROBLEM_FIELDS);

/* One episode. A snapshot keeps only these fields. */
typedef struct {
  Problem problem;
} Sums;
static const pl_field SUMS_FIELDS[] = {PL_FIELD(Sums, problem, PROBLEM, NULL)};
PL_TYPE(SUMS, Sums, SUMS_FIELDS);

/* View of an agent. */
typedef struct {
  pl_text question;
} View;
static const pl_field VIEW_FIELDS[] = {PL_FIELD(View, question, pl_string, NULL)};
PL_TYPE(VIEW, View, VIEW_FIELDS);

/* Action of an agent: one of the two fields. */
typedef struct {
  pl_text answer, none;
} Move;
static const pl_field MOVE_FIELDS[] = {
    PL_FIELD_CASE(Move, answer, pl_string, NULL),
    PL_FIELD_CASE(Move, none, pl_string, NULL),
};
PL_TYPE(MOVE, Move, MOVE_FIELDS);

/* Facts, which the workflow's `when` conditions read as `env.…`. */
typedef struct {
  bool right;
} Facts;
static const pl_field FACTS_FIELDS[] = {PL_FIELD(Facts, right, pl_bool, "The latest answer is right.")};
PL_TYPE(FACTS, Facts, FACTS_FIELDS);

/* Evidence, which only the reward sees, in the form that `maths.score` reads if one agent acts at a time. */
typedef struct {
  pl_text gold, answer;
  /* By agent. */
  pl_text latest;
} Evidence;
static const pl_field EVIDENCE_FIELDS[] = {
    PL_FIELD(Evidence, gold, pl_string, NULL),
    PL_FIELD_MAYBE(Evidence, answer, pl_string, NULL),
    PL_FIELD(Evidence, latest, pl_json, NULL),
};
PL_TYPE(EVIDENCE, Evidence, EVIDENCE_FIELDS);

static bool start(const void *settings, const pl_task *task, uint64_t seed, void *state) {
  Sums *sums = state;
  return pl_read_task(task, &PROBLEM, &sums->problem);
}

static bool see(const void *settings, const void *state, pl_text agent, void *view) {
  const Sums *sums = state;
  View *seen = view;
  seen->question = sums->problem.question;
  return true;
}

static bool apply(const void *settings, void *state, const pl_action *actions, size_t count, pl_outcome *outcome) {
  const Sums *sums = state;
  Facts *facts = outcome->facts;
  Evidence *evidence = outcome->evidence;
  evidence->gold = sums->problem.answer;
  evidence->latest = pl_str("{}");
  for (size_t at = 0; at < count; at++) {
    const Move *move = actions[at].action;
    if (!move->answer.ptr) continue;
    evidence->answer = move->answer;
    evidence->latest = pl_format("{\"%.*s\":%.*s}", PL_ARG(actions[at].agent), PL_ARG(pl_write(&pl_string, &move->answer)));
  }
  facts->right = evidence->answer.ptr && pl_equal(evidence->answer, evidence->gold);
  return true;
}

/* Train and test have no task in common: the first number is even in one and odd in the other. */
static bool tasks(const void *settings, const pl_task_request *request, pl_task *tasks) {
  bool test = pl_equal(request->split, pl_str("test"));
  if (!test && !pl_equal(request->split, pl_str("train"))) {
    return pl_refuse_settings("sums has the splits train and test, and no %.*s", PL_ARG(request->split));
  }
  for (uint32_t at = 0; at < request->count; at++) {
    uint64_t index = request->start + at;
    uint64_t a = 2 * (index % 50) + (test ? 1 : 0), b = index / 50 % 100;
    Problem problem = {pl_format("What is %" PRIu64 " + %" PRIu64 "?", a, b), pl_format("%" PRIu64, a + b)};
    tasks[at].id = pl_format("%.*s-%" PRIu64, PL_ARG(request->split), index);
    tasks[at].data = pl_write(&PROBLEM, &problem);
  }
  return true;
}

static const pl_environment SUMS_ITEM = {
    .name = "sums",
    .doc = "Sums of two numbers.",
    .state = &SUMS,
    .view = &VIEW,
    .action = &MOVE,
    .facts = &FACTS,
    .evidence = &EVIDENCE,
    .start = start,
    .see = see,
    .apply = apply,
    .tasks = tasks,
};

static const pl_environment *const ENVIRONMENTS[] = {&SUMS_ITEM, NULL};
static const pl_agent *const AGENTS[] = {NULL};
static const pl_reward *const REWARDS[] = {NULL};
const pl_plugin pl_this_plugin = {ENVIRONMENTS, AGENTS, REWARDS};
