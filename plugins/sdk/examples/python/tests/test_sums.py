import unittest

import extract
from pl_sdk import DrawingForm, Task, ToolCall, testing
from sums import plugin


class Sums(unittest.TestCase):
    def test_a_wrong_answer_gets_a_hint_and_the_right_one_ends_it(self):
        testing.set_random(1)
        sums = testing.Episode(plugin, "sums", Task.new("1", {"number": 4, "largest": 10}))
        outcome = sums.act({"a": {"answer": "0"}})
        self.assertFalse(outcome.done)
        self.assertIn("It is more than", sums.view("a")["question"])
        self.assertEqual(sums.oracle("a"), {"answer": str(outcome.evidence["gold"])})
        self.assertRegex(sums.draw(DrawingForm.TEXT), r"^\d+ \+ \d+ = \?$")
        self.assertIsNone(sums.draw(DrawingForm.SVG))
        self.assertTrue(sums.act({"a": sums.oracle("a")}).done)

    def test_the_tool_adds(self):
        calls = [ToolCall("add", {"terms": [3, 4]}), ToolCall("subtract", {})]
        results = testing.call_tools(plugin, "reasoner", {}, calls)
        self.assertEqual(results, ["7", "there is no tool subtract"])


class Answers(unittest.TestCase):
    def test_the_answer_of_a_text_is_found(self):
        for text, answer in [
            ("So \\boxed{1}. I think again. No: \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"),
            ("\\boxed{1} and \\boxed{2}", "1, 2"),
            ("it is \\boxed{42", "42"),
            ("\\boxed 7 apples", "7"),
            ("3 + 4 = 7\n#### 7", "7"),
            ("He has 3.\nA: 12", "12"),
            ("The answer is 5 apples. He had 3.", "5 apples"),
            ("**Answer:** $5$", "$5$"),
            ("Final Answer: Jane started 3 hours ago. I hope it is correct.", "3"),
            ("The final answer is $\\frac{1}{2}$.", "$\\frac{1}{2}$"),
            ("So Tom has 3 + 4 = 7 apples now.", "7"),
            ("It was not 10 but 1,000.99€ then", "1,000.99"),
            ("It fell by -3 degrees in 1 night", "1"),
            ("from 5-3", "3"),
            ("Thus $x <= 2$ is our answer.", "x <= 2"),
            ("<think>maybe 9</think> 12", "12"),
            ("I do not know what to say about this at all", None),
            ("", None),
        ]:
            self.assertEqual(extract.answer(text), answer, text)


if __name__ == "__main__":
    unittest.main()
