/* The plugin's own tests. */
#include "pl_testing.h"

int main(void) {
  const char *rules = "{\"size\":1}";
  pl_text outcome, state = pl_test_start("game", rules, "null", 0);
  state = pl_test_apply("game", rules, state, "a", "{\"guess\":1000}", &outcome);
  pl_test_equal(outcome, "{\"done\":false,\"truncated\":false,\"facts\":{\"found\":false},\"evidence\":{\"distance\":1.0}}");
  pl_test_equal(pl_test_view("game", rules, state, "a"), "{\"size\":1,\"hints\":[{\"guess\":1000,\"hint\":\"too large\"}]}");
  pl_test_apply("game", rules, state, "a", "{\"guess\":0}", &outcome);
  pl_test_equal(outcome, "{\"done\":true,\"truncated\":false,\"facts\":{\"found\":true},\"evidence\":{\"distance\":0.0}}");

  const char *view = "{\"size\":20,\"hints\":[]}";
  pl_test_equal(pl_test_parse("player", "{}", view, " 7."), "{\"guess\":7}");
  pl_test_equal(pl_test_parse("player", "{}", view, "seven"), "{\"none\":\"not a number\"}");
  return 0;
}
