/* The plugin's own tests. */
#include "pl_testing.h"

int main(void) {
  const char *view = "{\"question\":\"What is 2 + 3?\"}";
  pl_test_equal(pl_test_parse("solver", "{}", view, "2 + 3 = 5."), "{\"answer\":\"5\"}");
  pl_test_equal(pl_test_parse("solver", "{}", view, "Who knows?"), "{\"none\":\"no number\"}");
  return 0;
}
