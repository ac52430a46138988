/* A reward: a function that scores a step. */
#include "pl_sdk.h"

/* Settings in the workflow. */
typedef struct {
  double effort;
} Settings;
static const pl_field SETTINGS_FIELDS[] = {
    PL_SETTING_IN(Settings, effort, pl_number, "0.1", 0, 1, "Reward of a wrong answer (no answer gets 0)."),
};
PL_TYPE(SETTINGS, Settings, SETTINGS_FIELDS);

/* The part of an agent's action that this reward reads. */
typedef struct {
  pl_text answer;
} Move;
static const pl_field MOVE_FIELDS[] = {PL_FIELD_CASE(Move, answer, pl_string, NULL)};
PL_TYPE(MOVE, Move, MOVE_FIELDS);

/* The part of the environment's evidence that this reward reads. */
typedef struct {
  pl_text gold;
} Evidence;
static const pl_field EVIDENCE_FIELDS[] = {PL_FIELD(Evidence, gold, pl_string, NULL)};
PL_TYPE(EVIDENCE, Evidence, EVIDENCE_FIELDS);

static bool score(const void *settings, const pl_transition *step, pl_scores *scores) {
  const Settings *given = settings;
  const Evidence *evidence = step->evidence;
  for (size_t at = 0; at < step->count; at++) {
    const Move *move = step->actions[at].action;
    bool answered = move->answer.ptr != NULL;
    bool right = answered && pl_equal(move->answer, evidence->gold);
    pl_add_score(scores, step->actions[at].agent, right ? 1 : answered ? given->effort : 0, right);
    scores->success |= right;
  }
  scores->team = scores->success ? 1 : 0;
  return true;
}

static const pl_reward SCORE = {
    .name = "score",
    .doc = "1 for the right answer, a little for any answer.",
    .settings = &SETTINGS,
    .action = &MOVE,
    .evidence = &EVIDENCE,
    .score = score,
};

static const pl_environment *const ENVIRONMENTS[] = {NULL};
static const pl_agent *const AGENTS[] = {NULL};
static const pl_reward *const REWARDS[] = {&SCORE, NULL};
const pl_plugin pl_this_plugin = {ENVIRONMENTS, AGENTS, REWARDS};
