// A reward: a function that scores a step.

import { plugin } from "pl-sdk";

const score = {
  doc: "1 for the right answer, a little for any answer.",
  settings: {
    effort: {
      type: "number",
      default: 0.1,
      minimum: 0,
      maximum: 1,
      description: "Reward of a wrong answer (no answer gets 0).",
    },
  },

  score({ effort }, { actions, evidence }) {
    const local = actions.map(({ agent, action }) => {
      const success = action.answer?.trim() === evidence.gold;
      return { agent, reward: success ? 1 : "answer" in action ? effort : 0, success };
    });
    const success = local.some((one) => one.success);
    return { team: success ? 1 : 0, local, success };
  },
};

export default plugin({ rewards: { score } });
export { score };
