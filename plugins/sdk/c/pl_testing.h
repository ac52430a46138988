/* Stand-ins for the host in a plugin's own tests, and ways to play an episode without one.
 *
 * A test is a program of its own: the plugin's file, this SDK's pl_testing.c in place of the host, and a `main`. */
#ifndef PL_TESTING_H
#define PL_TESTING_H

#include "pl_sdk.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Starts the random stream anew. */
void pl_set_random(uint64_t seed);
/* Answers sandbox jobs from now on. */
void pl_set_sandbox(pl_verdict (*run)(const pl_job *job));
/* Answers retrieval from now on. */
void pl_set_corpus(void (*find)(pl_text query, uint32_t k, pl_list *passages));

/* Everything below takes and gives JSON as the host does. A refusal ends the test with its message. */

/* The state of a new episode. */
pl_text pl_test_start(const char *item, const char *settings, const char *task, uint64_t seed);
/* What an agent sees. */
pl_text pl_test_view(const char *item, const char *settings, pl_text state, const char *agent);
/* Applies one agent's action: the next state, and {"done":…,"truncated":…,"facts":…,"evidence":…} in `outcome`. */
pl_text pl_test_apply(const char *item, const char *settings, pl_text state, const char *agent, const char *action,
                      pl_text *outcome);
/* What an agent makes of a completion: its action. */
pl_text pl_test_parse(const char *item, const char *settings, const char *view, const char *completion);

/* Ends the test unless both texts are equal. */
void pl_test_equal(pl_text found, const char *expected);

#ifdef __cplusplus
}
#endif
#endif
