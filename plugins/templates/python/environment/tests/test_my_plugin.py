import unittest

from my_plugin import Sums, plugin
from pl_sdk import NoSettings, SettingsError, Task, TaskRequest, testing


def tasks(split):
    return Sums.tasks(NoSettings(), TaskRequest(split, 0, 3, 1))


class TheEnvironment(unittest.TestCase):
    def test_the_right_answer_is_found_right(self):
        task = Task.new("1", {"question": "What is 2 + 3?", "answer": "5"})
        sums = testing.Episode(plugin, "sums", task)
        self.assertEqual(sums.view("a"), {"question": "What is 2 + 3?"})
        for text, right in [("4", False), ("5", True)]:
            outcome = sums.act({"a": {"answer": text}})
            self.assertEqual(outcome.facts, {"right": right})
            self.assertEqual(outcome.evidence["latest"], {"a": text})

    def test_splits_share_no_task(self):
        train, test = ({task.data for task in tasks(split)} for split in ("train", "test"))
        self.assertFalse(train & test)
        with self.assertRaises(SettingsError):
            tasks("holidays")


if __name__ == "__main__":
    unittest.main()
