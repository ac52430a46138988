import assert from "node:assert/strict";
import { test } from "node:test";

import { callTools, parse, play, setRandom } from "pl-sdk/testing";
import plugin from "../sums.js";

test("a wrong answer gets a hint and the right one ends it", () => {
  setRandom(1);
  const sums = play(plugin, "sums", { task: { number: 4, largest: 10 } });
  const { done, evidence } = sums.act({ a: { answer: "0" } });
  assert.equal(done, false);
  assert.match(sums.view("a").question, /It is more than/);
  assert.deepEqual(sums.oracle("a"), { answer: String(evidence.gold) });
  assert.match(sums.draw("text"), /^\d+ \+ \d+ = \?$/);
  assert.equal(sums.draw("svg"), undefined);
  assert.equal(sums.act({ a: sums.oracle("a") }).done, true);
});

test("the tool adds", () => {
  const calls = [{ name: "add", arguments: { terms: [3, 4] } }, { name: "subtract", arguments: {} }];
  assert.deepEqual(callTools(plugin, "reasoner", { view: {}, calls }), ["7", "there is no tool subtract"]);
});

test("the answer of a text is found", () => {
  const answers = [
    ["So \\boxed{1}. I think again. No: \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"],
    ["\\boxed{1} and \\boxed{2}", "1, 2"],
    ["it is \\boxed{42", "42"],
    ["\\boxed 7 apples", "7"],
    ["3 + 4 = 7\n#### 7", "7"],
    ["He has 3.\nA: 12", "12"],
    ["The answer is 5 apples. He had 3.", "5 apples"],
    ["**Answer:** $5$", "$5$"],
    ["Final Answer: Jane started 3 hours ago. I hope it is correct.", "3"],
    ["The final answer is $\\frac{1}{2}$.", "$\\frac{1}{2}$"],
    ["So Tom has 3 + 4 = 7 apples now.", "7"],
    ["It was not 10 but 1,000.99€ then", "1,000.99"],
    ["It fell by -3 degrees in 1 night", "1"],
    ["from 5-3", "3"],
    ["Thus $x <= 2$ is our answer.", "x <= 2"],
    ["<think>maybe 9</think> 12", "12"],
  ];
  for (const [text, answer] of answers) assert.deepEqual(parse(plugin, "reasoner", { view: {}, text }), { answer }, text);
  for (const text of ["I do not know what to say about this at all", ""]) {
    assert.deepEqual(parse(plugin, "reasoner", { view: {}, text }), { none: "no answer" }, text);
  }
});
