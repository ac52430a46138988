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
  assert.throws(() => episode.act({ a: "nan" }), /cannot write the facts of place as JSON: share is NaN/);
});

/** Calls a function whose item returns `value`. */
function call(hook, value) {
  const give = () => value;
  const begin = hook === "start" ? give : () => ({});
  const odd = { start: begin, view: give, apply: give, oracle: give, draw: give, tasks: give };
  const talker = { prompt: give, callTools: give, parse: give };
  const { Episode, tasks } = plugin({ environments: { odd } }).environments;
  const { agents, rewards } = plugin({ agents: { talker }, rewards: { judge: { score: give } } });
  const task = { id: "1", data: "{}" };
  const outcome = { done: false, truncated: false, facts: "{}", evidence: "null" };
  const start = () => Episode.start("odd", "{}", task, 0n);
  return {
    tasks: () => tasks("odd", "{}", "train", 0n, 1, 1),
    start,
    view: () => start().view("a"),
    apply: () => start().apply([]),
    oracle: () => start().oracle("a"),
    draw: () => start().draw("text"),
    prompt: () => agents.prompt("talker", "{}", "{}", { agent: "a", visit: 0 }),
    callTools: () => agents.callTools("talker", "{}", "{}", []),
    parse: () => agents.parse("talker", "{}", "{}", { text: "", toolCalls: [], finish: "stop" }),
    score: () => rewards.score("judge", "{}", { task, actions: [], outcome }),
  }[hook]();
}

test("a result of another shape is named", () => {
  const cyclic = {};
  cyclic.own = cyclic;
  const score = { agent: "a", reward: 0.5, success: true };
  for (const [hook, value, words] of [
    ["tasks", undefined, "odd.tasks returned undefined, expected a list"],
    ["tasks", ["a"], 'odd.tasks returned a list whose `[0]` is "a", expected { id, data }'],
    ["tasks", [{ data: 1 }], "odd.tasks returned a list whose `[0].id` is undefined, expected a string"],
    ["start", null, "odd.start returned null, expected an object"],
    ["apply", undefined, "odd.apply returned undefined, expected { done, truncated, facts, evidence }"],
    ["apply", { done: "no" }, 'odd.apply returned an object whose `done` is "no", expected true or false or undefined'],
    ["draw", 5, "odd.draw returned 5, expected a string or undefined"],
    ["draw", "a\ud83d", 'odd.draw returned "a\\ud83d", expected text without half of a surrogate pair'],
    ["view", 1n, "cannot write the view of odd as JSON: "],
    ["view", cyclic, "cannot write the view of odd as JSON: "],
    ["view", { word: "a\ud83d" }, "cannot write the view of odd as JSON: word has half of a surrogate pair"],
    ["view", { "a\ud83d": 1 }, 'cannot write the view of odd as JSON: the name "a\\ud83d" has half of a surrogate pair'],
    ["view", new Map([["a", 1]]), "cannot write the view of odd as JSON: it is a Map"],
    ["view", { seen: new Set([1]) }, "cannot write the view of odd as JSON: seen is a Set"],
    ["view", { later: Promise.resolve(1) }, "cannot write the view of odd as JSON: later is a Promise"],
    ["view", { toJSON() { throw "out of memory"; } }, "cannot write the view of odd as JSON: out of memory"],
    ["prompt", "text", 'talker.prompt returned "text", expected { messages, tools, stop } or undefined'],
    ["prompt", request(5), "whose `messages[0].parts[0].text` is 5, expected a string"],
    ["prompt", request("a\ud83d"), "`messages[0].parts[0].text` is \"a\\ud83d\", expected text without half of a surrogate pair"],
    ["prompt", { messages: [{ role: "user", parts: [{}] }] }, "`messages[0].parts[0]` is an object, expected a string, { text }"],
    ["prompt", { messages: [{ role: "bot", parts: "" }] }, '`messages[0].role` is "bot", expected a role'],
    ["prompt", request("?", { stop: "\n" }), '`stop` is "\\n", expected a list or undefined'],
    ["callTools", 7, "talker.callTools returned 7, expected a list or undefined"],
    ["score", undefined, "judge.score returned undefined, expected { team, local, success }"],
    ["score", { team: 1, success: true }, "judge.score returned an object whose `local` is undefined, expected a list"],
    ["score", { team: "1", local: [], success: true }, '`team` is "1", expected a number'],
    ["score", { team: 1, local: [], success: "no" }, '`success` is "no", expected true or false'],
    ["score", { team: 1, local: [score, null], success: true }, "`local[1]` is null, expected { agent, reward, success }"],
  ]) {
    const says = (error) => error instanceof Refusal && error.payload.kind === "internal" && error.message.includes(words);
    assert.throws(() => call(hook, value), says, words);
  }
});

test("an async function is named", () => {
  const promise = Promise.resolve({});
  for (const hook of ["start", "view", "apply", "oracle", "draw", "tasks", "prompt", "callTools", "parse", "score"]) {
    assert.throws(() => call(hook, promise), new RegExp(`\\.${hook} returned a Promise: functions of items can't be async`));
  }
});

test("results of each shape pass", () => {
  assert.deepEqual(call("apply", {}), { done: false, truncated: false, facts: "{}", evidence: "null" });
  assert.deepEqual(call("tasks", [{ id: "1", data: 2 }]), [{ id: "1", data: "2" }]);
  assert.deepEqual([call("draw", null), call("prompt", null), call("callTools", null)], [undefined, undefined, undefined]);
  class Point {
    x = 1;
  }
  const written = '{"point":{"x":1},"day":"1970-01-01T00:00:00.000Z","none":null}';
  assert.equal(call("view", { point: new Point(), day: new Date(0), none: null }), written);
  for (const skipped of [false, "", 0]) assert.equal(call("prompt", skipped), undefined);
  assert.deepEqual(call("apply", { done: 1, truncated: 0, facts: {} }).done, true);
  const scores = call("score", { team: 1, local: [{ agent: "a", reward: 1, success: 1 }], success: null });
  assert.deepEqual(scores, { team: 1, local: [{ agent: "a", reward: 1, success: true }], success: false });
  const image = { mime: "image/png", bytes: new Uint8Array() };
  const { messages, tools, stop } = call("prompt", { messages: [{ role: "user", parts: ["?", { image }] }] });
  assert.deepEqual([messages[0].parts, tools, stop], [[{ tag: "text", val: "?" }, { tag: "image", val: image }], [], []]);
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
