import unittest

from my_plugin import Player, plugin
from pl_sdk import Completion, NoSettings, Task, Turn, testing


class TheGame(unittest.TestCase):
    def test_the_number_is_found(self):
        testing.set_random(1)
        game = testing.Episode(plugin, "game", Task.new("1", None), {"size": 3})
        found = [game.act({"a": {"guess": number}}).facts["found"] for number in range(3)]
        self.assertEqual(found, sorted(found), "what was found stays found")
        self.assertTrue(found[-1])

    def test_a_guess_gets_a_hint(self):
        testing.set_random(1)
        game = testing.Episode(plugin, "game", Task.new("1", None), {"size": 20})
        game.act({"a": {"guess": 1000}})
        self.assertEqual(game.view("a")["guesses"], [[1000, "too large"]])


class ThePlayer(unittest.TestCase):
    VIEW = {"size": 20, "guesses": [[3, "too small"]]}

    def test_hints_are_in_the_prompt(self):
        request = Player.prompt(NoSettings(), self.VIEW, Turn("a", 1))
        self.assertTrue(request.messages[0].text().endswith("3 is too small.\n"))

    def test_numbers_are_guesses_and_the_rest_is_none(self):
        for text, action in [(" 7.", {"guess": 7}), ("seven", {"none": "not a number"})]:
            self.assertEqual(Player.parse(NoSettings(), self.VIEW, Completion(text)), action)


if __name__ == "__main__":
    unittest.main()
