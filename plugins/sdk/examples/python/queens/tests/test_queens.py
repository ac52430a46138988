import random
import unittest

import plans
import puzzles
from board import Board
from pl_sdk import DrawingForm, Task, TaskError, testing
from queens import plugin


def start(queens):
    return testing.Episode(plugin, "queens", Task.new("1", {"queens": queens}))


def answer(columns):
    return {"answer": f"#### {columns}"}


class Rules(unittest.TestCase):
    def play(self, episode, columns):
        """Plays a board. Returns the team's score, the agent's own, and the outcome."""
        outcome = episode.act({"a": answer(columns)})
        return outcome.evidence["team"], round(outcome.evidence["own"]["a"]["reward"], 9), outcome

    def test_given_queens_stay_and_attacks_cost(self):
        episode = start([1, None, None, None])
        for invalid in ([2, 0, 3, 1], [1, 3, 0], [1, 3, 0, 4], [1, 3, 0, -1]):
            self.assertEqual(self.play(episode, invalid)[:2], (0.0, -1.0), invalid)
        self.assertEqual(episode.view("a")["plan"], {"plan": "[1, 3, 0, -1]", "first_invalid": 1})
        team, own, outcome = self.play(episode, [1, 1, 1, 1])
        self.assertEqual((team, own, outcome.done), (0.0, -0.01 - 0.6, False))
        self.assertEqual(outcome.facts, {"solved": False, "valid": True, "steps": 5, "invalid": 4})
        # All that attacks cost comes back, but the fifth board was one too many for the bonus.
        team, own, outcome = self.play(episode, [1, 3, 0, 2])
        self.assertEqual((team, own, outcome.done, outcome.truncated), (2.0, 1.09, True, False))
        # An ending is paid once.
        self.assertEqual(self.play(episode, [1, 3, 0, 2])[:2], (0.0, 0.0))

    def test_the_oracle_solves_at_once(self):
        episode = start([1, None, None, None])
        self.assertEqual(episode.draw(DrawingForm.TEXT), ".Q..\n....\n....\n....\nFixed queens: row 0 column 1.")
        outcome = episode.act({"a": episode.oracle("a")})
        self.assertEqual((outcome.evidence["team"], outcome.facts["solved"]), (2.5, True))
        self.assertIsNone(episode.oracle("a"), "nothing is left to do")

    def test_an_answer_without_a_plan_costs(self):
        outcome = start([1, None, None, None]).act({"a": {"answer": "no idea"}, "b": {"none": "no plan"}})
        self.assertEqual(outcome.evidence["own"], {name: {"reward": -1.0, "solves": False} for name in "ab"})
        self.assertEqual((outcome.facts["steps"], outcome.facts["valid"]), (0, False))

    def test_an_episode_is_truncated_at_its_horizon(self):
        episode = start([1, None, None, None])
        for _ in range(15):
            self.assertFalse(self.play(episode, [1, 1, 1, 1])[2].done)
        outcome = self.play(episode, [1, 1, 1, 1])[2]
        self.assertEqual((outcome.done, outcome.truncated), (True, True))

    def test_no_loop_pays(self):
        draw = random.Random(3)
        loops = 0
        for given in (puzzles.generate(1, "train", level, index) for level in range(4) for index in range(4)):
            episode, total, seen = start(given), 0.0, {}
            for _ in range(30):
                size = len(given)
                columns = [draw.randrange(2) if column is None else column for column in given]
                team, own, outcome = self.play(episode, columns[: draw.choice([size, size, size - 1])])
                total += team + own
                if outcome.done:
                    break
                board = episode.draw(DrawingForm.TEXT)
                if board in seen:
                    self.assertLess(total, seen[board])
                    loops += 1
                seen[board] = total
        self.assertGreater(loops, 50)

    def test_records_are_checked(self):
        for queens, words in [
            ([], "1 to 16 rows"),
            ([4, None, None, None], "column 4 of 4"),
            ([0, None, None, None], "can't be completed"),
            ([1, 1, -1, -1], "can't be completed"),
            ([1, 3, 0, 2], "no queen is missing"),
        ]:
            with self.assertRaisesRegex(TaskError, f"task 1: .*{words}"):
                start(queens)


class Puzzles(unittest.TestCase):
    def test_puzzles_are_solvable_and_splits_share_none_up_to_symmetry(self):
        for level in range(len(puzzles.LEVELS)):
            hashes = {}
            for split in puzzles.SPLITS:
                given = [puzzles.generate(0, split, level, index) for index in range(4)]
                self.assertTrue(all(Board.start(queens).solution() for queens in given))
                hashes[split] = {puzzles.symmetry_hash(queens) for queens in given}
                for queens in given:
                    self.assertEqual({puzzles.split_of(image) for image in images(queens)}, {split})
            self.assertTrue(hashes["train"].isdisjoint(hashes["test"]))


def images(queens):
    """Returns a puzzle's images in a mirror and upside down, and the one with rows and columns exchanged."""
    transposed = [None] * len(queens)
    for row, column in enumerate(queens):
        if column is not None:
            transposed[column] = row
    mirrored = [None if column is None else len(queens) - 1 - column for column in queens]
    return [mirrored, queens[::-1], transposed]


class Plans(unittest.TestCase):
    def test_the_plan_of_a_text_is_found(self):
        for text, columns in [
            ("#### [1, 3, 0, 2]", [1, 3, 0, 2]),
            ("Not [0, 1]. #### ['1', '3',\n '0', '2',] or [2, 0]", [1, 3, 0, 2]),
            ("\\boxed{[1, 3]}", [1, 3]),
            ("first [0, 1], then [1, 3]", [1, 3]),
            ("#### 1, 3, 0, 2", [1, 3, 0, 2]),
            ("[1, 3] is the plan ####", [1, 3]),
            ("1 3 0 2\nThat is it.", [1, 3, 0, 2]),
            ("#### [+1, -1]", [1, -1]),
            ("", None),
            ("[]", None),
            ("row 1", None),
            (f"[{'9' * 5000}]", None),
        ]:
            found = plans.find(text)
            self.assertEqual(found and found.columns, columns, text[:60])

    def test_the_planner_answers_with_its_plan(self):
        view = start([1, None, None, None]).view("a")
        self.assertEqual(testing.parse(plugin, "planner", view, "So: #### [1, 3, 0, 2]."), {"answer": "[1, 3, 0, 2]"})
        self.assertEqual(testing.parse(plugin, "planner", view, "no"), {"none": "no plan"})


if __name__ == "__main__":
    unittest.main()
