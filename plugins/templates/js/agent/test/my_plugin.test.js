import assert from "node:assert/strict";
import { test } from "node:test";

import { parse } from "pl-sdk/testing";
import plugin, { solver } from "../my_plugin.js";

const view = { question: "What is 2 + 3?" };

test("the question is asked", () => {
  const { messages } = solver.prompt({ instruction: "Solve it." }, view);
  assert.deepEqual(messages.map(({ parts }) => parts[0].text), ["Solve it.", "What is 2 + 3?"]);
});

test("the last number is the answer", () => {
  assert.deepEqual(parse(plugin, "solver", { view, text: "2 + 3 = 5." }), { answer: "5" });
  assert.deepEqual(parse(plugin, "solver", { view, text: "Who knows?" }), { none: "no number" });
});
