"""Tests of the SDK: reading of values, error messages, and descriptions of items for the host."""

import json
import subprocess
import sys
import unittest
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal

from pl_sdk import (
    Action,
    Agent,
    AgentScore,
    DrawingForm,
    Environment,
    Image,
    Message,
    Outcome,
    Plugin,
    Refusal,
    Request,
    Reward,
    Role,
    Scores,
    SettingsError,
    Task,
    TaskError,
    TaskRequest,
    Text,
    Tool,
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


class Odd(Environment, name="odd"):
    """Returns the value of `RESULT`, or calls it."""

    tasks = start = apply = view = draw = lambda *given: RESULT() if callable(RESULT) else RESULT


class Talker(Agent, name="talker"):
    prompt = call_tools = staticmethod(lambda *given: RESULT)


class Judge(Reward, name="judge"):
    score = staticmethod(lambda *given: RESULT)


def call(hook, value):
    """Calls a function whose item returns `value`."""
    global RESULT
    RESULT = Odd()
    registry = Registry(Plugin(environments=[Odd], agents=[Talker], rewards=[Judge]))
    episode = registry.start("odd", "{}", Task("1", "{}"), 0)
    RESULT = value
    return {
        "tasks": lambda: registry.tasks("odd", "{}", TaskRequest("train", 0, 1, 1)),
        "start": lambda: registry.start("odd", "{}", Task("1", "{}"), 0),
        "apply": lambda: episode.apply([]),
        "view": lambda: episode.view("a"),
        "draw": lambda: episode.draw(DrawingForm.TEXT),
        "prompt": lambda: registry.prompt("talker", "{}", "{}", None),
        "call_tools": lambda: registry.call_tools("talker", "{}", "{}", []),
        "score": lambda: registry.score("judge", "{}", Task("1", "{}"), [], (False, False, "{}", "null")),
    }[hook]()


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
            ('{"must":"b","rounds":2.5}', "rounds: expected an integer, found 2.5"),
            ('{"must":"b","rounds":true}', "rounds: expected an integer, found true"),
            ('{"must":"b","mood":"sad"}', "mood: expected one of 'kind', 'cruel'"),
            ('{"must":"b","inner":[{"word":1}]}', "inner[0].word: expected a string, found 1"),
            ('{"must":"b","inner":[{"word":"w","more":1}]}', "inner[0]: unknown field `more`"),
        ]:
            self.refused(SettingsError, words, start, settings)

    def test_a_whole_number_is_an_integer_in_settings(self):
        read = codec.parse('{"must":"b","rounds":4.0}', Rules, closed=True)
        self.assertEqual(repr(read.rounds), "4")
        self.assertEqual(repr(codec.parse("4.0", int | float)), "4.0", "a snapshot keeps it")

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
        self.refused(Refusal, "cannot write the facts of place as JSON", start().apply, [("a", '{"word":"nan"}')])
        self.refused(ValueError, "set has no JSON form", codec.dump, {1})
        self.refused(ValueError, "half of a surrogate pair, '\\ud83d'", codec.dump, {"text": "a\ud83d"})
        deep = []
        deep.append(deep)
        self.refused(ValueError, "", codec.dump, deep)

    def test_a_result_of_another_type_is_named(self):
        message, score = Message(Role.USER, "?"), AgentScore("a", 0.5, True)
        for hook, value, words in [
            ("tasks", None, "odd.tasks returned None, expected list[Task]"),
            ("tasks", ["a"], "odd.tasks returned a list whose `[0]` is 'a' (str), expected Task"),
            ("start", None, "odd.start returned None, expected Odd"),
            ("apply", ({}, {}), "odd.apply returned a tuple, expected Outcome"),
            ("apply", Outcome({}, done="no"), "an Outcome whose `done` is 'no' (str), expected bool"),
            ("draw", b"", "odd.draw returned a bytes, expected str or None"),
            ("prompt", "text", "talker.prompt returned 'text' (str), expected Request or None"),
            ("prompt", Request.user(5), "a Request whose `messages[0].parts` is 5 (int), expected str or list["),
            ("prompt", Request([message, Message(Role.USER, [Text("a\ud83d")])]), "`messages[1].parts[0].text` is 'a\\ud83d' (str)"),
            ("prompt", Request.user("\ud800"), "`messages[0].parts` is '\\ud800' (str), expected text without half of a surrogate pair"),
            ("draw", "\ud800", "odd.draw returned '\\ud800' (str), expected text without half of a surrogate pair"),
            ("prompt", Request([Message("user", "?")]), "`messages[0].role` is 'user' (str), expected Role"),
            ("prompt", Request([message], stop="\n"), "`stop` is '\\n' (str), expected list[str]"),
            ("call_tools", [7], "talker.call_tools returned a list whose `[0]` is 7 (int), expected str"),
            ("score", None, "judge.score returned None, expected Scores"),
            ("score", Scores("1.0", [], True), "a Scores whose `team` is '1.0' (str), expected float"),
            ("score", Scores(1, [score, None], True), "a Scores whose `local[1]` is None, expected AgentScore"),
            ("score", Scores(1, [AgentScore("a", 1, "yes")], True), "`local[0].success` is 'yes' (str), expected bool"),
            ("score", Scores(1, 5, True), "a Scores whose `local` is 5 (int), expected Sequence[AgentScore]"),
            ("score", Scores(1, [], bool), "a Scores whose `success` is a type, expected bool"),
        ]:
            with self.subTest(words):
                self.refused(Refusal, words, call, hook, value)

    def test_results_of_each_type_pass(self):
        for hook, value in [
            ("tasks", (Task.new("1", {}),)),
            ("tasks", lambda: (Task.new(name, {}) for name in "ab")),
            ("draw", None),
            ("prompt", None),
            ("prompt", Request([Message(Role.USER, [Text("?"), Image("image/png", b"")])], [Tool("t", "", {})], ["\n"])),
            ("call_tools", None),
            ("score", Scores(True, (AgentScore("a", 1, True),), False)),
        ]:
            with self.subTest(hook):
                call(hook, value)

    def test_results_of_related_types_are_converted(self):
        score = AgentScore("a", Decimal("0.5"), 1)
        scores = call("score", Scores(Decimal("0.25"), {"a": score}.values(), None))
        self.assertEqual(scores, Scores(0.25, [AgentScore("a", 0.5, True)], False))
        self.assertEqual([type(part) for part in (scores.team, scores.success, scores.local[0].success)], [float, bool, bool])
        self.assertEqual(score, AgentScore("a", Decimal("0.5"), 1), "the item's own value stays as it is")
        self.assertEqual(call("apply", Outcome({}, done=1))[:2], (True, False))

        parts = (part for part in [Text("?"), Image("image/png", bytearray(b"a"))])
        request = call("prompt", Request((message for message in [Message(Role.USER, parts)]), stop={"\n"}))
        message = Message(Role.USER, [Text("?"), Image("image/png", b"a")])
        self.assertEqual(request, Request([message], [], ["\n"]))
        self.assertIs(type(request.messages[0].parts[1].bytes), bytes)

        def broken():
            yield Task.new("1", {})
            raise KeyError("b")

        self.refused(Refusal, "odd.tasks: KeyError: 'b'", call, "tasks", broken)

    def test_an_exit_and_a_recursion_are_errors_of_a_readable_length(self):
        self.refused(Refusal, "odd.view: SystemExit: 3", call, "view", lambda: sys.exit(3))

        def recurse():
            recurse()

        with self.assertRaises(Refusal) as caught:
            call("view", recurse)
        self.assertRegex(str(caught.exception), r"RecursionError: .* recurse < … \d+ more < .*")
        self.assertLess(len(str(caught.exception)), 2000)

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


#: Imports the module of the output, whose package only a component can import.
OUTPUT = """
import importlib.util, linecache, sys
spec = importlib.util.spec_from_file_location("pl_sdk.component.output", "pl_sdk/component/output.py")
output = importlib.util.module_from_spec(spec)
spec.loader.exec_module(output)
sys.stdout.reconfigure(encoding="utf-8")
print("built", sys.stdout.encoding, "\u00e9")
sys.stdout.buffer.write(b"bytes\\n")
linecache.getlines("pl_sdk/host.py")
output.close()
sys.stdout.reconfigure(line_buffering=True)
print("discarded")
sys.stdout.buffer.write(b"discarded")
assert not linecache.cache and not linecache.getlines("pl_sdk/host.py")
"""


class Output(unittest.TestCase):
    def test_what_is_written_after_the_build_is_discarded(self):
        root = Path(__file__).parent.parent
        run = subprocess.run([sys.executable, "-c", OUTPUT], cwd=root, capture_output=True, encoding="utf-8")
        self.assertEqual((run.stderr, run.stdout), ("", "built utf-8 \u00e9\nbytes\n"))

#: Imports the module of what a component lacks, and uses all of it: first during the build, then after it.
ABSENT = """
import datetime, importlib.util, io, os, random, sys, time, uuid
spec = importlib.util.spec_from_file_location("pl_sdk.component.absent", "pl_sdk/component/absent.py")
absent = importlib.util.module_from_spec(spec)
spec.loader.exec_module(absent)
from time import time as kept
import socket

class Clock:
    read = time.time

uses = {
    "no clock (time.time)": [kept, Clock().read],
    "no clock (time.sleep)": [lambda: time.sleep(0)],
    "no clock (time.localtime)": [time.localtime, lambda: time.localtime(None)],
    "no clock (datetime.datetime.now)": [lambda: datetime.datetime.now(), lambda: datetime.datetime.now(tz=datetime.timezone.utc)],
    "no clock (datetime.date.today)": [lambda: datetime.date.today(), lambda: datetime.datetime.today()],
    "no files (open): read them at the top": [lambda: open("README.md").close(), lambda: io.FileIO("README.md").close()],
    "no files (os.listdir)": [os.listdir],
    "no random bytes of the system (os.urandom): use pl_sdk.random": [lambda: os.urandom(2), uuid.uuid4],
    "no random bytes of the system (random.seed)": [random.Random, lambda: random.seed()],
    "no network (socket.__new__)": [lambda: socket.socket().close()],
    "no module colorsys: import it at the top": [lambda: importlib.import_module("colorsys")],
}
for calls in uses.values():
    for call in calls:
        call()
del sys.modules["colorsys"]
absent.close()
for words, calls in uses.items():
    for call in calls:
        try:
            call()
        except (OSError, ModuleNotFoundError) as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)
assert not os.path.exists("README.md") and time.gmtime(3).tm_sec == 3 and time.strftime("%Y", time.gmtime(3)) == "1970"
assert random.Random(3).random() == random.Random(3).random()
"""


class Absent(unittest.TestCase):
    def test_what_a_component_lacks_is_an_exception(self):
        root = Path(__file__).parent.parent
        run = subprocess.run([sys.executable, "-c", ABSENT], cwd=root, capture_output=True, encoding="utf-8")
        self.assertEqual((run.stderr, run.returncode), ("", 0))


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
