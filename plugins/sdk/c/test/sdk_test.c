/* Tests of the SDK: integers of settings, and functions that return false. */
#include <inttypes.h>

#include "pl_internal.h"
#include "pl_testing.h"

typedef struct {
  int64_t low;
  uint64_t high;
} Rules;
static const pl_field RULES_FIELDS[] = {
    PL_SETTING(Rules, low, pl_int, "0", "A lower limit."),
    PL_SETTING(Rules, high, pl_uint, "0", "An upper limit."),
};
PL_TYPE(RULES, Rules, RULES_FIELDS);

/* Refuses with the task's record, a text, or without a message if the record is another value. */
static bool start(const void *settings, const pl_task *task, uint64_t seed, void *state) {
  (void)settings, (void)seed, (void)state;
  pl_text message;
  return pl_read(task->data, &pl_string, &message) && pl_refuse("%.*s", PL_ARG(message));
}

static bool see(const void *settings, const void *state, pl_text agent, void *view) {
  const Rules *rules = settings;
  (void)state, (void)agent;
  *(pl_text *)view = pl_format("%" PRId64 " %" PRIu64, rules->low, rules->high);
  return true;
}

static const pl_environment GAME = {
    .name = "game", .settings = &RULES, .state = &pl_json, .view = &pl_string, .start = start, .see = see};
static const pl_environment *const ENVIRONMENTS[] = {&GAME, NULL};
const pl_plugin pl_this_plugin = {ENVIRONMENTS, NULL, NULL};

static pl_text refusal(const char *record) {
  pl_task task = {pl_str("1"), pl_str(record)};
  pl_text state;
  return pl_call_start(pl_str("game"), pl_str("{}"), &task, 0, &state) ? pl_str("none") : pl_refused.message;
}

static void a_refusal_without_a_message_gets_one(void) {
  const char *without = "game.start returned false without a message: call pl_refuse, pl_refuse_task or pl_refuse_settings";
  pl_test_equal(refusal("1"), without);
  pl_test_equal(refusal("\"no\""), "no");
  /* Not the message of the call before. */
  pl_test_equal(refusal("1"), without);
}

static pl_text seen(const char *settings) {
  pl_text view;
  bool read = pl_call_view(pl_str("game"), pl_str(settings), pl_str("{}"), pl_str("a"), &view);
  return read ? view : pl_refused.message;
}

static void a_whole_number_is_an_integer(void) {
  pl_test_equal(seen("{\"low\":-3.0,\"high\":3.0}"), "\"-3 3\"");
  pl_test_equal(seen("{\"low\":-9223372036854775808,\"high\":18446744073709551615}"),
                "\"-9223372036854775808 18446744073709551615\"");
  pl_test_equal(seen("{\"low\":2.5}"), "settings of game: low: expected an integer, found 2.5");
  pl_test_equal(seen("{\"low\":9223372036854775808}"),
                "settings of game: low: expected an integer, found 9223372036854775808");
  pl_test_equal(seen("{\"low\":1e300}"), "settings of game: low: expected an integer, found 1e300");
  pl_test_equal(seen("{\"high\":-1.0}"), "settings of game: high: expected a non-negative integer, found -1.0");
  pl_test_equal(seen("{\"high\":-1}"), "settings of game: high: expected a non-negative integer, found -1");
  pl_test_equal(seen("{\"high\":\"1\"}"), "settings of game: high: expected a non-negative integer, found \"1\"");
}

int main(void) {
  a_refusal_without_a_message_gets_one();
  a_whole_number_is_an_integer();
  return 0;
}
