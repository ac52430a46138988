import unittest

from my_plugin import Settings, Solver
from pl_sdk import Completion, Turn

VIEW = {"question": "What is 2 + 3?"}


class TheSolver(unittest.TestCase):
    def test_the_question_is_asked(self):
        request = Solver.prompt(Settings(), VIEW, Turn("solve", 0))
        self.assertEqual(request.messages[1].text(), "What is 2 + 3?")

    def test_the_last_number_is_the_answer(self):
        for text, action in [("2 + 3 = 5.", {"answer": "5"}), ("Who knows?", {"none": "no number"})]:
            self.assertEqual(Solver.parse(Settings(), VIEW, Completion(text)), action)


if __name__ == "__main__":
    unittest.main()
