import assert from "node:assert/strict";
import { test } from "node:test";

import { parse, play, setRandom } from "pl-sdk/testing";
import plugin, { player } from "../my_plugin.js";

const view = { size: 20, guesses: [[3, "too small"]] };

test("the number is found", () => {
  setRandom(1);
  const game = play(plugin, "game", { settings: { size: 3 } });
  const found = [0, 1, 2].map((guess) => game.act({ a: { guess } }).facts.found);
  assert.equal(found.at(-1), true);
});

test("a guess gets a hint", () => {
  setRandom(1);
  const game = play(plugin, "game", { settings: { size: 20 } });
  assert.equal(game.act({ a: { guess: 1000 } }).done, false);
  assert.deepEqual(game.view("a").guesses, [[1000, "too large"]]);
});

test("hints are in the prompt", () => {
  const { messages } = player.prompt({}, view);
  assert.match(messages[0].parts[0].text, /3 is too small\.\n$/);
});

test("only numbers are guesses", () => {
  assert.deepEqual(parse(plugin, "player", { view, text: " 7." }), { guess: 7 });
  assert.deepEqual(parse(plugin, "player", { view, text: "seven" }), { none: "not a number" });
});
