/* Addition problems, in C: the environment, the maths reasoner and the reward. */
#include <inttypes.h>

#include "extract.h"
#include "pl_sdk.h"

/* ---- The environment ---- */

typedef struct {
  uint64_t terms, tries;
} Settings;
static const pl_field SETTINGS_FIELDS[] = {
    PL_SETTING_IN(Settings, terms, pl_uint, "2", 2, 5, "Number of summands."),
    PL_SETTING_IN(Settings, tries, pl_uint, "3", 1, 100, "Number of tries after which the episode is truncated."),
};
PL_TYPE(SETTINGS, Settings, SETTINGS_FIELDS);

typedef struct {
  uint64_t number, largest;
} Record;
static const pl_field RECORD_FIELDS[] = {
    PL_FIELD(Record, number, pl_uint, NULL),
    PL_FIELD(Record, largest, pl_uint, NULL),
};
PL_TYPE(RECORD, Record, RECORD_FIELDS);

/* An answer of an agent; in the evidence, its answer in the last step, if any. */
typedef struct {
  pl_text agent, answer;
} AgentAnswer;
static const pl_field AGENT_ANSWER_FIELDS[] = {
    PL_FIELD(AgentAnswer, agent, pl_string, NULL),
    PL_FIELD_MAYBE(AgentAnswer, answer, pl_string, NULL),
};
PL_TYPE(AGENT_ANSWER, AgentAnswer, AGENT_ANSWER_FIELDS);

typedef struct {
  uint64_t number;
  pl_list terms, hints, answers;
  uint64_t tries;
} Sums;
static const pl_field SUMS_FIELDS[] = {
    PL_FIELD(Sums, number, pl_uint, NULL),          PL_FIELD_LIST(Sums, terms, pl_uint, NULL),
    PL_FIELD_LIST(Sums, hints, pl_string, NULL),    PL_FIELD_LIST(Sums, answers, AGENT_ANSWER, NULL),
    PL_FIELD(Sums, tries, pl_uint, NULL),
};
PL_TYPE(SUMS, Sums, SUMS_FIELDS);

/* Result of a program, as the reasoner reads it. */
typedef struct {
  pl_text answer;
} Run;
static const pl_field RUN_FIELDS[] = {PL_FIELD_MAYBE(Run, answer, pl_string, NULL)};
PL_TYPE(RUN, Run, RUN_FIELDS);

/* View in the form of the maths domain's, so that its reasoner can read it. */
typedef struct {
  pl_text question;
  uint64_t round;
  Run *tool;
  pl_list answers;
} View;
static const pl_field VIEW_FIELDS[] = {
    PL_FIELD(View, question, pl_string, NULL),
    PL_FIELD(View, round, pl_uint, NULL),
    PL_FIELD_MAYBE(View, tool, RUN, NULL),
    PL_FIELD_LIST(View, answers, AGENT_ANSWER, NULL),
};
PL_TYPE(VIEW, View, VIEW_FIELDS);

/* One of the two fields. */
typedef struct {
  pl_text answer, none;
} Move;
static const pl_field MOVE_FIELDS[] = {
    PL_FIELD_CASE(Move, answer, pl_string, NULL),
    PL_FIELD_CASE(Move, none, pl_string, NULL),
};
PL_TYPE(MOVE, Move, MOVE_FIELDS);

typedef struct {
  bool right;
  uint64_t tries;
  pl_text last;
} Facts;
static const pl_field FACTS_FIELDS[] = {
    PL_FIELD(Facts, right, pl_bool, "The latest answer is right."),
    PL_FIELD(Facts, tries, pl_uint, "Number of tries so far."),
    PL_FIELD(Facts, last, pl_string, "Latest answer."),
};
PL_TYPE(FACTS, Facts, FACTS_FIELDS);

typedef struct {
  uint64_t gold;
  pl_list latest;
} Evidence;
static const pl_field EVIDENCE_FIELDS[] = {
    PL_FIELD(Evidence, gold, pl_uint, NULL),
    PL_FIELD_LIST(Evidence, latest, AGENT_ANSWER, NULL),
};
PL_TYPE(EVIDENCE, Evidence, EVIDENCE_FIELDS);

static bool start(const void *settings, const pl_task *task, uint64_t seed, void *state) {
  const Settings *given = settings;
  Sums *sums = state;
  Record record;
  if (!pl_read_task(task, &RECORD, &record)) return false;
  if (record.largest == 0) return pl_refuse_task("task %.*s: `largest` is 0", PL_ARG(task->id));
  sums->number = record.number;
  for (uint64_t at = 0; at < given->terms; at++) {
    *PL_PUSH(uint64_t, &sums->terms) = 1 + pl_random_below(record.largest);
  }
  return true;
}

/* The summands with plus signs between them. */
static pl_text terms_of(const Sums *sums) {
  pl_text text = pl_str("");
  for (size_t at = 0; at < sums->terms.count; at++) {
    text = pl_concat(2, text, pl_format("%s%" PRIu64, at ? " + " : "", PL_AT(uint64_t, sums->terms, at)));
  }
  return text;
}

static bool see(const void *settings, const void *state, pl_text agent, void *view) {
  const Sums *sums = state;
  View *seen = view;
  pl_text text = pl_concat(3, pl_format("Problem %" PRIu64 ": what is ", sums->number), terms_of(sums), pl_str("?"));
  for (size_t at = 0; at < sums->hints.count; at++) {
    text = pl_concat(3, text, pl_str(" "), PL_AT(pl_text, sums->hints, at));
  }
  seen->question = text;
  seen->round = sums->tries;
  seen->answers = sums->answers;
  return true;
}

static bool apply(const void *settings, void *state, const pl_action *actions, size_t count, pl_outcome *outcome) {
  const Settings *given = settings;
  Sums *sums = state;
  Facts *facts = outcome->facts;
  Evidence *evidence = outcome->evidence;
  sums->tries += 1;
  for (size_t at = 0; at < count; at++) {
    const Move *move = actions[at].action;
    AgentAnswer said = {actions[at].agent, move->answer};
    if (said.answer.ptr) *PL_PUSH(AgentAnswer, &sums->answers) = said;
    *PL_PUSH(AgentAnswer, &evidence->latest) = said;
  }
  for (size_t at = 0; at < sums->terms.count; at++) evidence->gold += PL_AT(uint64_t, sums->terms, at);
  size_t answers = sums->answers.count;
  facts->last = answers ? PL_AT(AgentAnswer, sums->answers, answers - 1).answer : pl_str("");
  facts->tries = sums->tries;
  facts->right = pl_equal(facts->last, pl_format("%" PRIu64, evidence->gold));
  if (!facts->right) {
    *PL_PUSH(pl_text, &sums->hints) = pl_format("It is more than %" PRIu64 ".", pl_random_below(evidence->gold));
  }
  pl_log(PL_DEBUG, pl_concat(2, pl_format("try %" PRIu64 ": ", sums->tries), facts->last));
  outcome->done = facts->right;
  outcome->truncated = !facts->right && sums->tries >= given->tries;
  return true;
}

static bool oracle(const void *settings, const void *state, pl_text agent, void *action, bool *known) {
  const Sums *sums = state;
  Move *move = action;
  uint64_t gold = 0;
  for (size_t at = 0; at < sums->terms.count; at++) gold += PL_AT(uint64_t, sums->terms, at);
  move->answer = pl_format("%" PRIu64, gold);
  return true;
}

static bool draw(const void *settings, const void *state, pl_drawing_form form, pl_text *drawing) {
  const Sums *sums = state;
  if (form != PL_TEXT) return true;
  *drawing = pl_concat(2, terms_of(sums), pl_str(" = ?"));
  return true;
}

static bool tasks(const void *settings, const pl_task_request *request, pl_task *tasks) {
  static const char *const SPLITS[] = {"train", "validation", "test"};
  if (request->level == 0) return pl_refuse_settings("sums are generated from level 1 on, not 0");
  /* Different splits use different numbers, so that they have no question in common. */
  uint64_t share = 0;
  while (share < 3 && !pl_equal(request->split, pl_str(SPLITS[share]))) share++;
  if (share == 3) {
    return pl_refuse_settings("sums are generated in the splits train, validation and test, not `%.*s`",
                              PL_ARG(request->split));
  }
  for (uint32_t at = 0; at < request->count; at++) {
    uint64_t index = request->start + at;
    Record record = {index * 3 + share, UINT64_C(10) * request->level};
    tasks[at].id = pl_format("%.*s-%" PRIu32 "-%" PRIu64, PL_ARG(request->split), request->level, index);
    tasks[at].data = pl_write(&RECORD, &record);
  }
  return true;
}

static const pl_environment SUMS_ITEM = {
    .name = "sums",
    .doc = "A sum of numbers from the episode's stream, with a hint after each wrong answer.",
    .settings = &SETTINGS,
    .state = &SUMS,
    .view = &VIEW,
    .action = &MOVE,
    .facts = &FACTS,
    .evidence = &EVIDENCE,
    .start = start,
    .see = see,
    .apply = apply,
    .tasks = tasks,
    .oracle = oracle,
    .draw = draw,
};

/* ---- The agent ---- */

typedef struct {
  pl_text instruction;
  uint64_t examples;
} ReasonerSettings;
static const pl_field REASONER_SETTINGS_FIELDS[] = {
    PL_SETTING_MAYBE(ReasonerSettings, instruction, pl_string,
                     "Replaces the instruction in the system message. An empty one sends no system message."),
    PL_SETTING_IN(ReasonerSettings, examples, pl_uint, "4", 0, 4,
                  "Worked examples before the question, at most 4. Small models need them, large ones do without."),
};
PL_TYPE(REASONER_SETTINGS, ReasonerSettings, REASONER_SETTINGS_FIELDS);

static const char *const EXAMPLES[][3] = {
    {"Sam has 2 pens. He buys 3 more. How many pens does Sam have now?", "2 + 3", "5"},
    {"Kim has 9 cups and breaks 4. How many cups does Kim have left?", "9 - 4", "5"},
    {"There are 6 hats on one shelf and 8 hats on another. How many hats are there in all?", "6 + 8", "14"},
    {"Max has 12 fish. Pia has 7 fish. How many more fish does Max have than Pia?", "12 - 7", "5"},
};

/* Maximum length of an answer in bytes; longer ones don't count. */
#define MAX_ANSWER_BYTES 4000

static bool prompt(const void *settings, const void *view, const pl_turn *turn, pl_request *request) {
  const ReasonerSettings *reasoner = settings;
  const View *seen = view;
  pl_text text = seen->question;
  if (seen->tool && seen->tool->answer.ptr) {
    text = pl_concat(4, text, pl_str("\nA program printed "), seen->tool->answer, pl_str(", which may be wrong."));
  }
  if (seen->answers.count) {
    pl_text last = PL_AT(AgentAnswer, seen->answers, seen->answers.count - 1).answer;
    text = pl_concat(4, text, pl_str("\nAn earlier answer was "), last, pl_str(", which may be wrong."));
  }
  pl_text own = reasoner->instruction, instruction = own.ptr ? own : pl_str("Put the final answer in \\boxed{}.");
  if (instruction.len) pl_add_message(request, PL_SYSTEM, instruction);
  for (uint64_t at = 0; at < reasoner->examples; at++) {
    pl_add_message(request, PL_USER, pl_str(EXAMPLES[at][0]));
    pl_add_message(request, PL_ASSISTANT, pl_format("%s = \\boxed{%s}", EXAMPLES[at][1], EXAMPLES[at][2]));
  }
  pl_add_message(request, PL_USER, text);
  return true;
}

typedef struct {
  pl_list terms;
} Summands;
static const pl_field SUMMANDS_FIELDS[] = {PL_FIELD_LIST(Summands, terms, pl_uint, NULL)};
PL_TYPE(SUMMANDS, Summands, SUMMANDS_FIELDS);

static bool call_tools(const void *settings, const void *view, const pl_tool_call *calls, size_t count,
                       pl_list *results) {
  for (size_t at = 0; at < count; at++) {
    pl_text *result = PL_PUSH(pl_text, results);
    if (!pl_equal(calls[at].name, pl_str("add"))) {
      *result = pl_concat(2, pl_str("there is no tool "), calls[at].name);
      continue;
    }
    Summands given = {0};
    if (!pl_read(calls[at].arguments, &SUMMANDS, &given)) return pl_refuse("the summands are not a list of numbers");
    uint64_t sum = 0;
    for (size_t term = 0; term < given.terms.count; term++) sum += PL_AT(uint64_t, given.terms, term);
    *result = pl_format("%" PRIu64, sum);
  }
  return true;
}

static bool parse(const void *settings, const void *view, const pl_completion *completion, void *action) {
  Move *move = action;
  slice answer = extract_answer(completion->text);
  if (!answer.ptr) {
    move->none = pl_str("no answer");
  } else if (answer.len > MAX_ANSWER_BYTES) {
    move->none = pl_str("the answer is too long");
  } else {
    move->answer = answer;
  }
  return true;
}

static const pl_agent REASONER_ITEM = {
    .name = "reasoner",
    .doc = "Reasons in words and puts the final answer in a box.",
    .settings = &REASONER_SETTINGS,
    .view = &VIEW,
    .action = &MOVE,
    .prompt = prompt,
    .parse = parse,
    .call_tools = call_tools,
};

/* ---- The reward ---- */

typedef struct {
  double miss;
} Terms;
static const pl_field TERMS_FIELDS[] = {
    PL_SETTING_IN(Terms, miss, pl_number, "0.25", 0, 1, "Deduction from the team's reward for each earlier wrong try."),
};
PL_TYPE(TERMS, Terms, TERMS_FIELDS);

static bool score(const void *settings, const pl_transition *step, pl_scores *scores) {
  const Terms *terms = settings;
  const Facts *facts = step->facts;
  const Evidence *evidence = step->evidence;
  pl_text gold = pl_format("%" PRIu64, evidence->gold);
  for (size_t at = 0; at < evidence->latest.count; at++) {
    const AgentAnswer *said = &PL_AT(AgentAnswer, evidence->latest, at);
    bool right = said->answer.ptr && pl_equal(said->answer, gold);
    pl_add_score(scores, said->agent, right ? 1 : 0, right);
  }
  double left = 1 - terms->miss * (double)(facts->tries - 1);
  scores->team = facts->right && left > 0 ? left : 0;
  scores->success = facts->right;
  return true;
}

static const pl_reward SCORE_ITEM = {
    .name = "score",
    .doc = "Up to 1 for the team's right answer, less for each wrong one before it; 1 for each agent's own right answer.",
    .settings = &TERMS,
    .action = &MOVE,
    .facts = &FACTS,
    .evidence = &EVIDENCE,
    .score = score,
};

static const pl_environment *const ENVIRONMENTS[] = {&SUMS_ITEM, NULL};
static const pl_agent *const AGENTS[] = {&REASONER_ITEM, NULL};
static const pl_reward *const REWARDS[] = {&SCORE_ITEM, NULL};
const pl_plugin pl_this_plugin = {ENVIRONMENTS, AGENTS, REWARDS};
