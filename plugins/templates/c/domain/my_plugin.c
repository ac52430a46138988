/* A guessing game: an environment, the agent that plays it, and the reward. */
#include <inttypes.h>

#include "pl_sdk.h"

/* ---- The environment ---- */

typedef struct {
  uint64_t size;
} Rules;
static const pl_field RULES_FIELDS[] = {
    PL_SETTING_IN(Rules, size, pl_uint, "100", 1, 1e9, "Numbers are below this, from 0 on."),
};
PL_TYPE(RULES, Rules, RULES_FIELDS);

/* The number to guess and the guesses. A snapshot keeps only these fields. */
typedef struct {
  uint64_t number;
  pl_list guesses;
} Game;
static const pl_field GAME_FIELDS[] = {
    PL_FIELD(Game, number, pl_uint, NULL),
    PL_FIELD_LIST(Game, guesses, pl_uint, NULL),
};
PL_TYPE(GAME, Game, GAME_FIELDS);

typedef struct {
  uint64_t guess;
  pl_text hint;
} Hint;
static const pl_field HINT_FIELDS[] = {
    PL_FIELD(Hint, guess, pl_uint, NULL),
    PL_FIELD(Hint, hint, pl_string, NULL),
};
PL_TYPE(HINT, Hint, HINT_FIELDS);

/* View of the player. */
typedef struct {
  uint64_t size;
  pl_list hints;
} View;
static const pl_field VIEW_FIELDS[] = {
    PL_FIELD(View, size, pl_uint, NULL),
    PL_FIELD_LIST(View, hints, HINT, NULL),
};
PL_TYPE(VIEW, View, VIEW_FIELDS);

/* Action of the player: one of the two fields. */
typedef struct {
  uint64_t *guess;
  pl_text none;
} Move;
static const pl_field MOVE_FIELDS[] = {
    PL_FIELD_CASE(Move, guess, pl_uint, NULL),
    PL_FIELD_CASE(Move, none, pl_string, NULL),
};
PL_TYPE(MOVE, Move, MOVE_FIELDS);

/* Facts, which the workflow's `when` conditions read as `env.…`. */
typedef struct {
  bool found;
} Facts;
static const pl_field FACTS_FIELDS[] = {PL_FIELD(Facts, found, pl_bool, "The number has been found.")};
PL_TYPE(FACTS, Facts, FACTS_FIELDS);

/* Evidence, which only the reward sees: distance of the nearest guess, as a share of all numbers. */
typedef struct {
  double distance;
} Evidence;
static const pl_field EVIDENCE_FIELDS[] = {PL_FIELD(Evidence, distance, pl_number, NULL)};
PL_TYPE(EVIDENCE, Evidence, EVIDENCE_FIELDS);

static bool start(const void *settings, const pl_task *task, uint64_t seed, void *state) {
  const Rules *rules = settings;
  Game *game = state;
  /* The host's random stream: the same for all samples of a task, and part of every snapshot. */
  game->number = pl_random_below(rules->size);
  return true;
}

static bool see(const void *settings, const void *state, pl_text agent, void *view) {
  const Rules *rules = settings;
  const Game *game = state;
  View *seen = view;
  seen->size = rules->size;
  for (size_t at = 0; at < game->guesses.count; at++) {
    uint64_t guess = PL_AT(uint64_t, game->guesses, at);
    *PL_PUSH(Hint, &seen->hints) = (Hint){guess, pl_str(guess < game->number ? "too small" : "too large")};
  }
  return true;
}

static bool apply(const void *settings, void *state, const pl_action *actions, size_t count, pl_outcome *outcome) {
  const Rules *rules = settings;
  Game *game = state;
  Facts *facts = outcome->facts;
  Evidence *evidence = outcome->evidence;
  for (size_t at = 0; at < count; at++) {
    const Move *move = actions[at].action;
    if (move->guess) *PL_PUSH(uint64_t, &game->guesses) = *move->guess;
  }
  uint64_t nearest = rules->size;
  for (size_t at = 0; at < game->guesses.count; at++) {
    uint64_t guess = PL_AT(uint64_t, game->guesses, at);
    uint64_t distance = guess < game->number ? game->number - guess : guess - game->number;
    if (distance < nearest) nearest = distance;
  }
  outcome->done = facts->found = nearest == 0;
  evidence->distance = (double)nearest / (double)rules->size;
  return true;
}

static bool tasks(const void *settings, const pl_task_request *request, pl_task *tasks) {
  /* A task is a number: even for training, odd for testing. */
  uint64_t odd = pl_equal(request->split, pl_str("test"));
  for (uint32_t at = 0; at < request->count; at++) {
    uint64_t index = request->start + at;
    tasks[at].id = pl_format("%.*s-%" PRIu64, PL_ARG(request->split), index);
    tasks[at].data = pl_format("%" PRIu64, 2 * index + odd);
  }
  return true;
}

static const pl_environment GAME_ITEM = {
    .name = "game",
    .doc = "A number to guess.",
    .settings = &RULES,
    .state = &GAME,
    .view = &VIEW,
    .action = &MOVE,
    .facts = &FACTS,
    .evidence = &EVIDENCE,
    .start = start,
    .see = see,
    .apply = apply,
    .tasks = tasks,
};

/* ---- The agent ---- */

static bool prompt(const void *settings, const void *view, const pl_turn *turn, pl_request *request) {
  const View *seen = view;
  pl_text text = pl_format("Guess a number from 0 to %" PRIu64 ". Answer with the number alone.\n", seen->size - 1);
  for (size_t at = 0; at < seen->hints.count; at++) {
    const Hint *hint = &PL_AT(Hint, seen->hints, at);
    text = pl_format("%.*s%" PRIu64 " is %.*s.\n", PL_ARG(text), hint->guess, PL_ARG(hint->hint));
  }
  pl_add_message(request, PL_USER, text);
  pl_add_stop(request, pl_str("\n"));
  return true;
}

static bool parse(const void *settings, const void *view, const pl_completion *completion, void *action) {
  Move *move = action;
  const char *at = completion->text.ptr, *end = at + completion->text.len;
  while (at < end && *at == ' ') at++;
  uint64_t number = 0;
  const char *digits = at;
  while (at < end && at - digits < 10 && *at >= '0' && *at <= '9') number = number * 10 + (uint64_t)(*at++ - '0');
  bool any = at > digits;
  while (at < end && (*at == ' ' || *at == '.')) at++;
  if (any && at == end) {
    move->guess = pl_alloc(sizeof *move->guess);
    *move->guess = number;
  } else {
    /* Invalid text is an action too: the environment decides how to continue. */
    move->none = pl_str("not a number");
  }
  return true;
}

static const pl_agent PLAYER = {
    .name = "player",
    .doc = "Guesses a number.",
    .view = &VIEW,
    .action = &MOVE,
    .prompt = prompt,
    .parse = parse,
};

/* ---- The reward ---- */

static bool score(const void *settings, const pl_transition *step, pl_scores *scores) {
  const Facts *facts = step->facts;
  const Evidence *evidence = step->evidence;
  scores->team = facts->found ? 1 : 0.5 * (1 - evidence->distance);
  scores->success = facts->found;
  /* Each agent that acted gets its own score: 0 here, because all share the team's. */
  for (size_t at = 0; at < step->count; at++) pl_add_score(scores, step->actions[at].agent, 0, facts->found);
  return true;
}

static const pl_reward FOUND = {
    .name = "found",
    .doc = "1 if the number is found, else up to 0.5 for a near guess.",
    .action = &MOVE,
    .facts = &FACTS,
    .evidence = &EVIDENCE,
    .score = score,
};

static const pl_environment *const ENVIRONMENTS[] = {&GAME_ITEM, NULL};
static const pl_agent *const AGENTS[] = {&PLAYER, NULL};
static const pl_reward *const REWARDS[] = {&FOUND, NULL};
const pl_plugin pl_this_plugin = {ENVIRONMENTS, AGENTS, REWARDS};
