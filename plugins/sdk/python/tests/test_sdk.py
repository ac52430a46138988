"""Tests of the SDK: reading of values, error messages, and descriptions of items for the host."""

import json
import unittest
from dataclasses import dataclass
from typing import Literal

from pl_sdk import (
    Action,
    Agent,
    DrawingForm,
    Environment,
    Outcome,
    Plugin,
    Refusal,
    Request,
    SettingsError,
    Task,
    TaskError,
    codec,
    fact,
    policies,
    random,
    retrieval,
    sandbox,
    setting,
    testing,
)
from pl_sdk.registry import Registry


@dataclass
class Inner:
    word: str
    size: float | None = None


@dataclass
class Rules:
    rounds: int = setting(3, "How many.", minimum=1, maximum=9)
    mood: Literal["kind", "cruel"] = setting("kind", "How.")
    inner: list[Inner] = setting([])
    must: str = setting(doc="Has no default.")


@dataclass
class Facts:
    done: bool = fact("It is over.")
    share: float = fact("How much of it.")


@dataclass
class Place(Environment, name="place", settings=Rules, facts=Facts, action=Inner):
    """Somewhere.

    More that nobody needs to read.
    """

    pairs: list[tuple[int, Inner]]
    by_name: dict[str, Inner | None]

    @classmethod
    def start(cls, rules, task, seed):
        return cls([(1, Inner("a", 0.5))], {"x": None, "y": Inner(rules.must)})

    def view(self, rules, agent):
        return {"first": self.pairs[0], "y": self.by_name["y"]}

    def apply(self, rules, actions: list[Action]):
        if actions[0].action.word == "break":
            return self.by_name["z"]
        if actions[0].action.word == "nan":
            return Outcome(Facts(True, float("nan")))
        self.pairs += [(2, act.action) for act in actions]
        return Outcome(Facts(False, 1))


class Mute(Agent, name="mute"):
    @staticmethod
    def prompt(settings, view, turn):
        return None


REGISTRY = Registry(Plugin(environments=[Place], agents=[Mute]))
SETTINGS = '{"must":"b"}'


def start(settings=SETTINGS):
    return REGISTRY.start("place", settings, Task("1", "{}"), 0)


class Items(unittest.TestCase):
    def refused(self, kind, words, function, *arguments):
        with self.assertRaises(kind) as caught:
            function(*arguments)
        self.assertIn(words, str(caught.exception))

    def test_state_of_all_shapes_goes_through_a_snapshot(self):
        snapshot = start().snapshot()
        self.assertEqual(
            snapshot, b'{"pairs":[[1,{"word":"a","size":0.5}]],"by_name":{"x":null,"y":{"word":"b","size":null}}}'
        )
        restored = REGISTRY.restore("place", SETTINGS, snapshot)
        self.assertEqual(restored.snapshot(), snapshot)
        self.assertEqual(restored.view("a"), '{"first":[1,{"word":"a","size":0.5}],"y":{"word":"b","size":null}}')
        restored.apply([("a", '{"word":"c"}')])
        self.assertEqual(json.loads(restored.snapshot())["pairs"][1], [2, {"word": "c", "size": None}])

    def test_settings_are_read_strictly(self):
        for settings, words in [
            ("{}", "settings of place: `must` is missing"),
            ('{"must":"b","rouds":1}', "unknown field `rouds`, expected one of `rounds`"),
            ('{"must":"b","rounds":10}', "rounds: 10 is out of range, expected 1 to 9"),
            ('{"must":"b","rounds":true}', "rounds: expected an integer, found true"),
            ('{"must":"b","mood":"sad"}', "mood: expected one of 'kind', 'cruel'"),
            ('{"must":"b","inner":[{"word":1}]}', "inner[0].word: expected a string, found 1"),
            ('{"must":"b","inner":[{"word":"w","more":1}]}', "inner[0]: unknown field `more`"),
        ]:
            self.refused(SettingsError, words, start, settings)

    def test_what_comes_from_elsewhere_is_read_by_its_type(self):
        self.refused(Refusal, "the action of agent `a`", start().apply, [("a", '{"text":1}')])
        self.refused(Refusal, "cannot read its snapshot: pairs", REGISTRY.restore, "place", SETTINGS, b'{"pairs":1}')
        self.refused(TaskError, "task 7: word: expected a string", Task("7", '{"word":[]}').read, Inner)
        self.refused(Refusal, "this plugin has no agent `nobody`", REGISTRY.prompt, "nobody", "{}", "{}", None)

    def test_an_exception_says_where_it_was_raised(self):
        with self.assertRaises(Refusal) as caught:
            start().apply([("a", '{"word":"break"}')])
        self.assertRegex(str(caught.exception), r"place\.apply: KeyError: 'z' \(.*test_sdk\.py:\d+ apply\)")

    def test_what_has_no_json_form_is_refused(self):
        self.refused(Refusal, "the facts of place has no JSON form", start().apply, [("a", '{"word":"nan"}')])
        self.refused(ValueError, "a set has no JSON form", codec.dump, {1})

    def test_items_describe_themselves(self):
        (kind, name, doc, schema, facts), mute = REGISTRY.describe()
        self.assertEqual((kind, name, doc), ("environment", "place", "Somewhere."))
        self.assertEqual(facts, [("done", "boolean", "It is over."), ("share", "number", "How much of it.")])
        schema = json.loads(schema)
        self.assertEqual((schema["required"], schema["additionalProperties"]), (["must"], False))
        rounds = {"type": "integer", "description": "How many.", "minimum": 1, "maximum": 9, "default": 3}
        self.assertEqual(schema["properties"]["rounds"], rounds)
        self.assertEqual(schema["properties"]["inner"]["items"]["properties"]["size"], {"type": ["number", "null"], "default": None})
        self.assertEqual(mute[1:3], ("mute", ""))

    def test_oracles_drawings_and_tools_are_optional(self):
        self.assertEqual((start().oracle("a"), start().draw(DrawingForm.SVG)), (None, None))
        self.assertIsNone(REGISTRY.call_tools("mute", "{}", "{}", []))

    def test_requests_are_put_together(self):
        request = Request.user("q").with_example("1", "2").with_example("3", "4").with_system("s").with_stop("\n")
        self.assertEqual([message.text() for message in request.messages], ["s", "1", "2", "3", "4", "q"])
        self.assertEqual(request.stop, ["\n"])
        self.assertIsNone(REGISTRY.prompt("mute", "{}", "{}", None))


class Services(unittest.TestCase):
    def test_the_stand_ins_answer(self):
        testing.set_random(0)
        self.assertEqual(random.next(), 0xE220A8397B1DCDAF)
        self.assertEqual({random.below(3) for _ in range(100)}, {0, 1, 2})
        testing.set_sandbox(lambda job: testing.printed(job.source.upper()))
        self.assertEqual(sandbox.python("x").stdout, "X")
        with self.assertRaises(LookupError):
            policies.ask("referee", [("user", "well?")], 8)
        testing.set_policies(lambda policy, messages: f"{policy}: {messages[0][1]}")
        self.assertEqual(policies.ask("referee", [("user", "well?")], 8), "referee: well?")
        testing.set_corpus(lambda query, k: [])
        self.assertEqual(retrieval.retrieve("x", 1, corpus="papers"), [])


if __name__ == "__main__":
    unittest.main()
