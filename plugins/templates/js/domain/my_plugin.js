// A guessing game: an environment, the agent that plays it, and the reward.

import { plugin, random, request } from "pl-sdk";

const game = {
  doc: "A number to guess.",
  settings: {
    size: { type: "integer", default: 100, minimum: 1, description: "Numbers are below this, from 0 on." },
  },
  // Facts, which the workflow's `when` conditions read as `env.…`.
  facts: { found: { type: "boolean", description: "The number has been found." } },

  // A snapshot keeps the state. The host's random stream is the same for all samples of a task.
  start: ({ size }) => ({ number: random.below(size), guesses: [] }),

  view({ number, guesses }, { size }) {
    const hint = (guess) => (guess < number ? "too small" : "too large");
    return { size, guesses: guesses.map((guess) => [guess, hint(guess)]) };
  },

  apply(state, { size }, actions) {
    state.guesses.push(...actions.filter(({ action }) => "guess" in action).map(({ action }) => action.guess));
    const nearest = Math.min(size, ...state.guesses.map((guess) => Math.abs(guess - state.number)));
    const found = nearest === 0;
    // Only the reward sees the evidence.
    return { done: found, facts: { found }, evidence: { distance: nearest / size } };
  },

  // A task is a number: even for training, odd for testing.
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
    // Invalid text is an action too: the environment decides how to continue.
    return number ? { guess: Number(number) } : { none: "not a number" };
  },
};

const found = {
  doc: "1 if the number is found, else up to 0.5 for a near guess.",

  score: (_settings, { actions, facts, evidence }) => ({
    team: facts.found ? 1 : 0.5 * (1 - evidence.distance),
    // Each agent that acted gets its own score: 0 here, because all share the team's.
    local: actions.map(({ agent }) => ({ agent, reward: 0, success: facts.found })),
    success: facts.found,
  }),
};

export default plugin({ environments: { game }, agents: { player }, rewards: { found } });
export { player };
