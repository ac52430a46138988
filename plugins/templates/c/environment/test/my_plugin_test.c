/* The plugin's own tests. */
#include "pl_testing.h"

int main(void) {
  pl_text outcome, state = pl_test_start("sums", "{}", "{\"question\":\"What is 2 + 3?\",\"answer\":\"5\"}", 0);
  pl_test_equal(pl_test_view("sums", "{}", state, "a"), "{\"question\":\"What is 2 + 3?\"}");
  state = pl_test_apply("sums", "{}", state, "a", "{\"none\":\"no number\"}", &outcome);
  pl_test_equal(outcome, "{\"done\":false,\"truncated\":false,\"facts\":{\"right\":false},"
                         "\"evidence\":{\"gold\":\"5\",\"answer\":null,\"latest\":{}}}");
  pl_test_apply("sums", "{}", state, "a", "{\"answer\":\"5\"}", &outcome);
  pl_test_equal(outcome, "{\"done\":false,\"truncated\":false,\"facts\":{\"right\":true},"
                         "\"evidence\":{\"gold\":\"5\",\"answer\":\"5\",\"latest\":{\"a\":\"5\"}}}");
  return 0;
}
