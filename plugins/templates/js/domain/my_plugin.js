// A guessing game: its environment, the agent that plays it, the reward that both are trained by.

import { plugin, random, request } from "pl-sdk";

const game = {
  doc: "A number to guess.",
  settings: {
    size: { type: "integer", default: 100, minimum: 1, description: "Numbers run from 0 to this less one." },
  },
  // What the workflow's `when` conditions read as `env.…`.
  facts: { found: { type: "boolean", description: "The number was found." } },

  // The state is what a snapshot keeps. The host's random stream is the same for all samples of a task.
  start: ({ size }) => ({ number: random.below(size), guesses: [] }),

  view({ number, guesses }, { size }) {
    const hint = (guess) => (guess < number ? "too small" : "too large");
    return { size, guesses: guesses.map((guess) => [guess, hint(guess)]) };
  },

  apply(state, { size }, actions) {
    state.guesses.push(...actions.filter(({ action }) => "guess" in action).map(({ action }) => action.guess));
    const nearest = Math.min(size, ...state.guesses.map((guess) => Math.abs(guess - state.number)));
    const found = nearest === 0;
    // Evidence is what the reward alone sees.
    return { done: found, facts: { found }, evidence: { distance: nearest / size } };
  },

  // A task is a round's number. Training and testing share none: those of the test are odd.
  tasks: (_rules, { split, start, count }) =>
    Array.from({ length: count }, (_, at) => ({
      id: `${split}-${start + at}`,
      data: 2 * (start + at) + (split === "test" ? 1 : 0),
    })),
};

const player = {
  doc: "Guesses a number.",

  prompt(_settings, { size, guesses }) {
    const hints = guesses.map(([guess, hint]) => `${guess} is ${hint}.\n`).join("");
    return request(`Guess a number from 0 to ${size - 1}. Answer with the number alone.\n${hints}`, { stop: ["\n"] });
  },

  parse(_settings, _view, { text }) {
    const [, number] = text.trim().match(/^([0-9]{1,9})\.?$/) ?? [];
    // What means nothing is an action too: the environment decides what follows.
    return number ? { guess: Number(number) } : { none: "not a number" };
  },
};

const found = {
  doc: "1 once the number is found, more than 0 the nearer a guess was.",

  score: (_settings, { actions, facts, evidence }) => ({
    team: facts.found ? 1 : 0.5 * (1 - evidence.distance),
    // Each agent that acted has a part of its own: here nothing, for they share the team's.
    local: actions.map(({ agent }) => ({ agent, reward: 0, success: facts.found })),
    success: facts.found,
  }),
};

export default plugin({ environments: { game }, agents: { player }, rewards: { found } });
export { player };
