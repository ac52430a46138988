// An agent of two functions: what to ask the model, and what its answer means.

import { plugin, request } from "pl-sdk";

const solver = {
  doc: "Answers with the last number that it says.",
  settings: {
    instruction: {
      type: "string",
      default: "Solve the problem. End with the answer, a number.",
      description: "What the model is told before the question.",
    },
  },

  prompt: ({ instruction }, { question }) => request(question, { system: instruction }),

  parse(_settings, _view, { text }) {
    const numbers = text.match(/[0-9]+/g);
    // What means nothing is an action too: the environment decides what follows.
    return numbers ? { answer: numbers.at(-1) } : { none: "no number" };
  },
};

export default plugin({ agents: { solver } });
export { solver };
