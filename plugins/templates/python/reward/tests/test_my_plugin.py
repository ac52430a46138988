import unittest

from my_plugin import Score, Settings
from pl_sdk import Action, Task, Transition


def score(action):
    step = Transition(Task.new("1", {}), [Action("a", action)], {}, {"gold": "5"}, done=False, truncated=False)
    return Score.score(Settings(), step)


class TheReward(unittest.TestCase):
    def test_right_is_more_than_wrong_and_wrong_more_than_nothing(self):
        actions = [{"answer": "5"}, {"answer": "4"}, {"none": "no number"}]
        self.assertEqual([score(action).local[0].reward for action in actions], [1.0, 0.1, 0.0])
        self.assertTrue(score({"answer": " 5 "}).success)


if __name__ == "__main__":
    unittest.main()
