// An environment: a plain object that holds the episode's state, and the functions that change it.

import { plugin, SettingsError } from "pl-sdk";

const sums = {
  doc: "Sums of two numbers.",
  // Facts, which the workflow's `when` conditions read as `env.…`.
  facts: { right: { type: "boolean", description: "The latest answer is right." } },

  // A snapshot keeps the state: plain values, lists and objects. A task's record comes from a line of a task file or
  // from `tasks`.
  start: (_settings, { data }) => ({ problem: data, latest: {} }),

  view: ({ problem }) => ({ question: problem.question }),

  apply(state, _settings, actions) {
    let answer = null;
    for (const { agent, action } of actions.filter(({ action }) => "answer" in action)) {
      answer = state.latest[agent] = action.answer;
    }
    const gold = state.problem.answer;
    // Only the reward sees the evidence. `maths.score` reads this form.
    return { facts: { right: answer === gold }, evidence: { gold, answer, latest: state.latest } };
  },

  // Train and test have no task in common: the first number is even in one and odd in the other.
  tasks(_settings, { split, start, count }) {
    if (!["train", "test"].includes(split)) {
      throw new SettingsError(`sums has the splits train and test, and no ${split}`);
    }
    return Array.from({ length: count }, (_, at) => {
      const index = start + at;
      const a = 2 * (index % 50) + (split === "test" ? 1 : 0);
      const b = Math.floor(index / 50) % 100;
      return { id: `${split}-${index}`, data: { question: `What is ${a} + ${b}?`, answer: String(a + b) } };
    });
  },
};

export default plugin({ environments: { sums } });
export { sums };
