// An environment: a plain object that holds everything, and what happens to it.

import { plugin, SettingsError } from "pl-sdk";

const sums = {
  doc: "Sums of two numbers.",
  // What the workflow's `when` conditions read as `env.…`.
  facts: { right: { type: "boolean", description: "The newest answer is right." } },

  // The state is what a snapshot keeps: plain values, lists and objects. A task's record is a line of a task file, or
  // what `tasks` makes.
  start: (_settings, { data }) => ({ problem: data, latest: {} }),

  view: ({ problem }) => ({ question: problem.question }),

  apply(state, _settings, actions) {
    let answer = null;
    for (const { agent, action } of actions.filter(({ action }) => "answer" in action)) {
      answer = state.latest[agent] = action.answer;
    }
    const gold = state.problem.answer;
    // Evidence is for the reward alone: this is the form that `maths.score` grades.
    return { facts: { right: answer === gold }, evidence: { gold, answer, latest: state.latest } };
  },

  // Train and test share no task: the first number is even in one and odd in the other.
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
