/* Stand-ins for the host, see pl_testing.h. */
#include "pl_testing.h"

#include <stdio.h>
#include <stdlib.h>

#include "pl_internal.h"

static uint64_t state;
static pl_verdict (*sandbox)(const pl_job *job);
static void (*corpus)(pl_text query, uint32_t k, pl_list *passages);
static pl_text (*policies)(pl_text policy, const pl_policy_message *messages, size_t count);

void pl_set_random(uint64_t seed) { state = seed; }
void pl_set_sandbox(pl_verdict (*run)(const pl_job *job)) { sandbox = run; }
void pl_set_corpus(void (*find)(pl_text query, uint32_t k, pl_list *passages)) { corpus = find; }

void pl_set_policies(pl_text (*answer)(pl_text policy, const pl_policy_message *messages, size_t count)) {
  policies = answer;
}

/* SplitMix64 (Steele, Lea and Flood 2014). */
uint64_t pl_random(void) {
  state += 0x9e3779b97f4a7c15;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

void pl_log(pl_level level, pl_text message) {
  static const char *const LEVELS[] = {"debug", "info", "warn"};
  fprintf(stderr, "%s: %.*s\n", LEVELS[level], PL_ARG(message));
}

void pl_execute(const pl_job *jobs, size_t count, pl_verdict *verdicts) {
  for (size_t at = 0; at < count; at++) {
    pl_text none = pl_str("no sandbox here: a test sets one with pl_set_sandbox");
    pl_verdict lost = {PL_ENDED_LOST_WORKER, false, 0, pl_str(""), none};
    verdicts[at] = sandbox ? sandbox(&jobs[at]) : lost;
  }
}

bool pl_retrieve(pl_text query, uint32_t k, pl_list *passages) {
  if (!corpus) return pl_refuse("no corpus here: a test sets one with pl_set_corpus");
  corpus(query, k, passages);
  return true;
}

bool pl_retrieve_from(pl_text name, pl_text query, uint32_t k, pl_list *passages) {
  (void)name;
  return pl_retrieve(query, k, passages);
}

bool pl_ask(pl_text policy, const pl_policy_message *messages, size_t count, uint32_t max_tokens, pl_text *answer) {
  (void)max_tokens;
  if (!policies) return pl_refuse("no policies here: a test sets them with pl_set_policies");
  *answer = policies(policy, messages, count);
  return true;
}

static void require(bool succeeded) {
  if (succeeded) return;
  fprintf(stderr, "refused: %.*s\n", PL_ARG(pl_refused.message));
  exit(1);
}

pl_text pl_test_start(const char *item, const char *settings, const char *task, uint64_t seed) {
  pl_task given = {pl_str("test"), pl_str(task)};
  pl_text made;
  require(pl_call_start(pl_str(item), pl_str(settings), &given, seed, &made));
  return made;
}

pl_text pl_test_view(const char *item, const char *settings, pl_text episode, const char *agent) {
  pl_text view;
  require(pl_call_view(pl_str(item), pl_str(settings), episode, pl_str(agent), &view));
  return view;
}

pl_text pl_test_apply(const char *item, const char *settings, pl_text episode, const char *agent, const char *action,
                      pl_text *outcome) {
  pl_json_action given = {pl_str(agent), pl_str(action)};
  pl_json_outcome result;
  require(pl_call_apply(pl_str(item), pl_str(settings), &episode, &given, 1, &result));
  const char *done = result.done ? "true" : "false", *truncated = result.truncated ? "true" : "false";
  *outcome = pl_format("{\"done\":%s,\"truncated\":%s,\"facts\":%.*s,\"evidence\":%.*s}", done, truncated,
                       PL_ARG(result.facts), PL_ARG(result.evidence));
  return episode;
}

pl_text pl_test_parse(const char *item, const char *settings, const char *view, const char *completion) {
  pl_completion given = {pl_str(completion), NULL, 0, PL_STOPPED};
  pl_text action;
  require(pl_call_parse(pl_str(item), pl_str(settings), pl_str(view), &given, &action));
  return action;
}

pl_text pl_test_oracle(const char *item, const char *settings, pl_text state, const char *agent) {
  pl_text action;
  bool known;
  require(pl_call_oracle(pl_str(item), pl_str(settings), state, pl_str(agent), &action, &known));
  return known ? action : pl_str("");
}

pl_text pl_test_draw(const char *item, const char *settings, pl_text state, pl_drawing_form form) {
  pl_text drawing;
  bool known;
  require(pl_call_draw(pl_str(item), pl_str(settings), state, form, &drawing, &known));
  return known ? drawing : pl_str("");
}

pl_text pl_test_call_tool(const char *item, const char *settings, const char *view, const char *name,
                          const char *arguments) {
  pl_tool_call call = {pl_str(name), pl_str(arguments)};
  pl_list results = {0};
  bool known;
  require(pl_call_tools(pl_str(item), pl_str(settings), pl_str(view), &call, 1, &results, &known));
  return known ? PL_AT(pl_text, results, 0) : pl_str("");
}

void pl_test_equal(pl_text found, const char *expected) {
  if (pl_equal(found, pl_str(expected))) return;
  fprintf(stderr, "expected %s\nfound    %.*s\n", expected, PL_ARG(found));
  exit(1);
}
