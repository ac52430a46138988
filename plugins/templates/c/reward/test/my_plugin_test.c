/* The plugin's own tests: the reward as the host would call it. */
#include <stdio.h>

#include "pl_testing.h"

/* The reward's functions read structs; these are laid out as the plugin's own. */
typedef struct {
  pl_text text;
} Text;

static int failures = 0;

static void expect(const char *answer, double reward) {
  Text move = {pl_str(answer)}, gold = {pl_str("5")};
  double effort = 0.1;
  pl_action action = {pl_str("a"), &move};
  pl_transition step = {.actions = &action, .count = 1, .evidence = &gold};
  pl_scores scores = {0};
  pl_this_plugin.rewards[0]->score(&effort, &step, &scores);
  double found = PL_AT(pl_agent_score, scores.local, 0).reward;
  if (found != reward) {
    fprintf(stderr, "%s earns %g, not %g\n", answer ? answer : "nothing", found, reward);
    failures++;
  }
}

int main(void) {
  expect("5", 1);
  expect("4", 0.1);
  expect(NULL, 0);
  return failures;
}
