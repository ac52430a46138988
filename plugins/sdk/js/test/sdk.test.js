// Tests of the SDK: reading of values, error messages, and descriptions of items for the host.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Refusal, TaskError, message, plugin, policies, random, request, retrieval, sandbox } from "../index.js";
import { parse, play, printed, setCorpus, setPolicies, setRandom, setSandbox } from "../testing.js";

const place = {
  doc: "Somewhere.",
  settings: {
    rounds: { type: "integer", default: 3, minimum: 1, maximum: 9 },
    mood: { type: "string", default: "kind", enum: ["kind", "cruel"] },
    names: { type: "array", default: [], items: { type: "string" } },
    must: { type: ["string", "null"] },
  },
  facts: { share: { type: "number", description: "How much of it." } },
  start: ({ must }, task) => ({ must, size: task.data.size }),
  view: (state) => state,
  apply(state, { names }, actions) {
    const [{ action }] = actions;
    if (action === "break") return state.nothing.here;
    if (action === "nan") return { facts: { share: NaN } };
    names.push("more");
    state.names = names;
    return { facts: { share: 1 } };
  },
};

const mute = { prompt: () => undefined, parse: (_settings, _view, { text }) => ({ said: text }) };
const whole = plugin({ environments: { place }, agents: { mute } });

test("settings are read strictly", () => {
  const problem = (settings) => {
    try {
      play(whole, "place", { task: { size: 1 }, settings });
    } catch (error) {
      return [error.payload.kind, error.payload.message];
    }
  };
  assert.deepEqual(problem({}), ["settings", "settings of place: `must` is missing"]);
  for (const [settings, words] of [
    [{ rouds: 1 }, /unknown field `rouds`, expected one of `rounds`/],
    [{ rounds: 10 }, /rounds: 10 is out of range, expected at most 9/],
    [{ rounds: 1.5 }, /rounds: expected integer, found 1.5/],
    [{ mood: "sad" }, /mood: expected one of \["kind","cruel"\], found "sad"/],
    [{ names: ["a", 1] }, /names: expected string, found 1/],
    [{ must: 1 }, /must: expected string or null, found 1/],
  ]) {
    assert.match(problem({ must: null, ...settings })[1], words);
  }
  assert.equal(problem({ must: null }), undefined);
});

test("a default is a copy for each call", () => {
  const episode = play(whole, "place", { task: { size: 1 }, settings: { must: null } });
  episode.act({ a: 1 });
  episode.act({ a: 1 });
  assert.deepEqual(episode.view("a").names, ["more"]);
});

test("an exception names its place", () => {
  const episode = play(whole, "place", { task: { size: 1 }, settings: { must: null } });
  assert.throws(() => episode.act({ a: "break" }), /place\.apply: TypeError: .*sdk\.test\.js:\d+/);
  assert.throws(() => episode.act({ a: "nan" }), /the facts of place has no JSON form: share is NaN/);
});

test("a record that is not JSON is about the task", () => {
  const { Episode } = whole.environments;
  assert.throws(
    () => Episode.start("place", '{"must":null}', { id: "7", data: "{" }, 0n),
    (error) => error instanceof TaskError && error.payload.kind === "task" && /task 7/.test(error.message),
  );
});

test("items describe themselves", () => {
  const [described, other] = whole.catalog.describe();
  assert.equal(described.kind, "environment");
  assert.deepEqual(described.facts, [{ name: "share", kind: "number", doc: "How much of it." }]);
  const schema = JSON.parse(described.settingsSchema);
  assert.deepEqual([schema.required, schema.additionalProperties], [["must"], false]);
  assert.equal(other.name, "mute");
  const wrong = { ...place, facts: { list: { type: "array" } } };
  assert.throws(() => plugin({ environments: { wrong } }), /fact `list` of wrong: its type is one of/);
});

test("oracles, drawings and tools are optional", () => {
  const { Episode } = whole.environments;
  const episode = Episode.start("place", '{"must":null}', { id: "7", data: "{}" }, 0n);
  assert.deepEqual([episode.oracle("a"), episode.draw("svg")], [undefined, undefined]);
  assert.equal(whole.agents.callTools("mute", "{}", "{}", []), undefined);
});

test("agents ask and understand", () => {
  assert.equal(whole.agents.prompt("mute", "{}", "{}", { agent: "a", visit: 0 }), undefined);
  assert.deepEqual(parse(whole, "mute", { view: {}, text: "ja" }), { said: "ja" });
  const asked = request("q", { system: "s", examples: [["1", "2"]], stop: ["\n"] });
  assert.deepEqual(asked.messages.map(({ role }) => role), ["system", "user", "assistant", "user"]);
  assert.deepEqual(message("user", "x"), { role: "user", parts: [{ text: "x" }] });
});

test("the stand-ins answer", () => {
  setRandom(0);
  assert.equal(random.next(), 0xe220a8397b1dcdafn);
  assert.deepEqual(new Set(Array.from({ length: 100 }, () => random.below(3))), new Set([0, 1, 2]));
  assert.throws(() => random.below(-1), RangeError);
  setSandbox(({ source }) => printed(source.toUpperCase()));
  assert.equal(sandbox.python("x").stdout, "X");
  assert.throws(() => retrieval.retrieve("x", 1), Refusal);
  setCorpus(() => []);
  assert.deepEqual(retrieval.retrieve("x", 1), []);
  assert.throws(() => policies.ask("referee", [], 1), Refusal);
  setPolicies((policy, messages) => `${policy}: ${messages[0].text}`);
  assert.equal(policies.ask("referee", [{ role: "user", text: "well?" }], 8), "referee: well?");
});
