import assert from "node:assert/strict";
import { test } from "node:test";

import { score } from "../my_plugin.js";

const scored = (action) =>
  score.score({ effort: 0.1 }, { actions: [{ agent: "a", action }], facts: {}, evidence: { gold: "5" } });

test("right is more than wrong, and wrong more than nothing", () => {
  const rewards = [{ answer: "5" }, { answer: "4" }, { none: "no number" }].map((action) => scored(action).local[0].reward);
  assert.deepEqual(rewards, [1, 0.1, 0]);
  assert.equal(scored({ answer: " 5 " }).success, true);
});
