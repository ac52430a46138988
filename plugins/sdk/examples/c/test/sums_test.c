/* The plugin's own tests. */
#include <stdio.h>

#include "extract.h"
#include "pl_testing.h"

static void a_wrong_answer_gets_a_hint_and_the_right_one_ends_it(void) {
  pl_set_random(1);
  pl_text outcome, state = pl_test_start("sums", "{}", "{\"number\":4,\"largest\":10}", 0);
  pl_test_equal(state, "{\"number\":4,\"terms\":[6,8],\"hints\":[],\"answers\":[],\"tries\":0}");
  state = pl_test_apply("sums", "{}", state, "a", "{\"answer\":\"0\"}", &outcome);
  pl_test_equal(outcome,
                "{\"done\":false,\"truncated\":false,\"facts\":{\"right\":false,\"tries\":1,\"last\":\"0\"},"
                "\"evidence\":{\"gold\":14,\"latest\":[{\"agent\":\"a\",\"answer\":\"0\"}]}}");
  pl_test_equal(pl_test_oracle("sums", "{}", state, "a"), "{\"answer\":\"14\"}");
  pl_test_equal(pl_test_draw("sums", "{}", state, PL_TEXT), "6 + 8 = ?");
  pl_test_equal(pl_test_draw("sums", "{}", state, PL_SVG), "");
  pl_test_apply("sums", "{}", state, "a", "{\"answer\":\"14\"}", &outcome);
  pl_test_equal(outcome,
                "{\"done\":true,\"truncated\":false,\"facts\":{\"right\":true,\"tries\":2,\"last\":\"14\"},"
                "\"evidence\":{\"gold\":14,\"latest\":[{\"agent\":\"a\",\"answer\":\"14\"}]}}");
}

static void the_answer_of_a_text_is_found(void) {
  static const char *const ANSWERS[][2] = {
      {"So \\boxed{1}. I think again. No: \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"},
      {"\\boxed{1} and \\boxed{2}", "1, 2"},
      {"it is \\boxed{42", "42"},
      {"\\boxed 7 apples", "7"},
      {"3 + 4 = 7\n#### 7", "7"},
      {"He has 3.\nA: 12", "12"},
      {"The answer is 5 apples. He had 3.", "5 apples"},
      {"**Answer:** $5$", "$5$"},
      {"Final Answer: Jane started 3 hours ago. I hope it is correct.", "3"},
      {"The final answer is $\\frac{1}{2}$.", "$\\frac{1}{2}$"},
      {"So Tom has 3 + 4 = 7 apples now.", "7"},
      {"It was not 10 but 1,000.99€ then", "1,000.99"},
      {"It fell by -3 degrees in 1 night", "1"},
      {"from 5-3", "3"},
      {"Thus $x <= 2$ is our answer.", "x <= 2"},
      {"<think>maybe 9</think> 12", "12"},
      {"I do not know what to say about this at all", NULL},
      {"", NULL},
  };
  for (size_t at = 0; at < sizeof ANSWERS / sizeof *ANSWERS; at++) {
    slice found = extract_answer(pl_str(ANSWERS[at][0]));
    pl_test_equal(found, ANSWERS[at][1] ? ANSWERS[at][1] : "");
  }
}

static void the_tool_adds(void) {
  pl_text results = pl_test_call_tool("reasoner", "{}", "{\"question\":\"?\",\"round\":0,\"tool\":null,\"answers\":[]}", "add",
                                      "{\"terms\":[3,4]}");
  pl_test_equal(results, "7");
}

int main(void) {
  the_tool_adds();
  a_wrong_answer_gets_a_hint_and_the_right_one_ends_it();
  the_answer_of_a_text_is_found();
  return 0;
}
