/* Stand-ins for the host's services in a plugin's own tests, and functions that run an episode without a host.
 *
 * A test is a separate program: the plugin's file, this SDK's pl_testing.c in place of the host, and a `main`. */
#ifndef PL_TESTING_H
#define PL_TESTING_H

#include "pl_sdk.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Restarts the random stream from `seed`. */
void pl_set_random(uint64_t seed);
/* Sets the function that answers sandbox jobs. */
void pl_set_sandbox(pl_verdict (*run)(const pl_job *job));
/* Sets the function that answers retrieval queries. */
void pl_set_corpus(void (*find)(pl_text query, uint32_t k, pl_list *passages));
/* Sets the function that answers questions to policies. */
void pl_set_policies(pl_text (*answer)(pl_text policy, const pl_policy_message *messages, size_t count));

/* The functions below take and return JSON, as the host does. An error ends the test with its message. */

/* Starts an episode and returns its state. */
pl_text pl_test_start(const char *item, const char *settings, const char *task, uint64_t seed);
/* Returns an agent's view. */
pl_text pl_test_view(const char *item, const char *settings, pl_text state, const char *agent);
/* Applies one agent's action. Returns the next state, and {"done":…,"truncated":…,"facts":…,"evidence":…} in `outcome`. */
pl_text pl_test_apply(const char *item, const char *settings, pl_text state, const char *agent, const char *action,
                      pl_text *outcome);
/* Returns the action that an agent parses from a completion. */
pl_text pl_test_parse(const char *item, const char *settings, const char *view, const char *completion);

/* Returns the oracle's action, or an empty text. */
pl_text pl_test_oracle(const char *item, const char *settings, pl_text state, const char *agent);
/* Returns a drawing, or an empty text. */
pl_text pl_test_draw(const char *item, const char *settings, pl_text state, pl_drawing_form form);
/* Returns the result of one tool call, or an empty text. */
pl_text pl_test_call_tool(const char *item, const char *settings, const char *view, const char *name,
                          const char *arguments);

/* Ends the test unless both texts are equal. */
void pl_test_equal(pl_text found, const char *expected);

#ifdef __cplusplus
}
#endif
#endif
