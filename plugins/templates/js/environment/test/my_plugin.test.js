import assert from "node:assert/strict";
import { test } from "node:test";

import { play } from "pl-sdk/testing";
import plugin, { sums } from "../my_plugin.js";

const tasks = (split) => sums.tasks({}, { split, start: 0, count: 3, level: 1 });

test("the right answer is found right", () => {
  const episode = play(plugin, "sums", { task: { question: "What is 2 + 3?", answer: "5" } });
  assert.deepEqual(episode.view("a"), { question: "What is 2 + 3?" });
  for (const [text, right] of [["4", false], ["5", true]]) {
    const { facts, evidence } = episode.act({ a: { answer: text } });
    assert.equal(facts.right, right);
    assert.deepEqual(evidence.latest, { a: text });
  }
});

test("splits share no task", () => {
  const train = new Set(tasks("train").map(({ data }) => data.question));
  assert.ok(tasks("test").every(({ data }) => !train.has(data.question)));
  assert.throws(() => tasks("holidays"), /no holidays/);
});
