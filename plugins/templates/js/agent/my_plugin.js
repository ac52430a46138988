// An agent: two functions, `prompt` and `parse`.

import { plugin, request } from "pl-sdk";

const solver = {
  doc: "Answers with the last number in its text.",
  settings: {
    instruction: {
      type: "string",
      default: "Solve the problem. End with the answer, a number.",
      description: "The instruction before the question.",
    },
  },

  prompt: ({ instruction }, { question }) => request(question, { system: instruction }),

  parse(_settings, _view, { text }) {
    const numbers = text.match(/[0-9]+/g);
    // Invalid text is an action too: the environment decides how to continue.
    return numbers ? { answer: numbers.at(-1) } : { none: "no number" };
  },
};

export default plugin({ agents: { solver } });
export { solver };
