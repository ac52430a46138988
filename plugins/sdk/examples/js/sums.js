// Addition problems, in JavaScript: the environment, the maths reasoner and the reward.

import { SettingsError, TaskError, log, plugin, random, request } from "pl-sdk";

import { answer } from "./extract.js";

const sums = {
  doc: "A sum of numbers from the episode's stream, with a hint after each wrong answer.",
  settings: {
    terms: { type: "integer", default: 2, minimum: 2, maximum: 5, description: "Number of summands." },
    tries: {
      type: "integer",
      default: 3,
      minimum: 1,
      maximum: 100,
      description: "Number of tries after which the episode is truncated.",
    },
  },
  facts: {
    right: { type: "boolean", description: "The latest answer is right." },
    tries: { type: "integer", description: "Number of tries so far." },
    last: { type: "string", description: "Latest answer." },
  },

  start({ terms }, task) {
    const { number, largest } = task.data ?? {};
    for (const [name, value] of Object.entries({ number, largest })) {
      if (!Number.isSafeInteger(value)) throw new TaskError(`task ${task.id}: \`${name}\` is not a whole number`);
    }
    if (largest <= 0) throw new TaskError(`task ${task.id}: \`largest\` is ${largest}`);
    const draws = Array.from({ length: terms }, () => 1 + random.below(largest));
    return { number, terms: draws, hints: [], answers: [], tries: 0 };
  },

  // View in the form of the maths domain's, so that its reasoner can read it.
  view({ number, terms, hints, answers, tries }) {
    const question = [`Problem ${number}: what is ${terms.join(" + ")}?`, ...hints].join(" ");
    return { question, round: tries, tool: null, answers };
  },

  apply(state, settings, actions) {
    state.tries += 1;
    const latest = actions.map(({ agent, action }) => ({ agent, answer: action.answer ?? null }));
    state.answers.push(...latest.filter(({ answer }) => answer !== null));
    const gold = state.terms.reduce((sum, term) => sum + term);
    const last = state.answers.at(-1)?.answer ?? "";
    const right = last === String(gold);
    if (!right) state.hints.push(`It is more than ${random.below(gold)}.`);
    log.debug(`try ${state.tries}: ${last}`);
    const truncated = !right && state.tries >= settings.tries;
    return { done: right, truncated, facts: { right, tries: state.tries, last }, evidence: { gold, latest } };
  },

  oracle({ terms }) {
    return { answer: String(terms.reduce((sum, term) => sum + term)) };
  },

  draw({ terms }, _settings, form) {
    return form === "text" ? `${terms.join(" + ")} = ?` : undefined;
  },

  tasks(_settings, { split, start, count, level }) {
    if (level === 0) throw new SettingsError("sums are generated from level 1 on, not 0");
    // Different splits use different numbers, so that they have no question in common.
    const share = ["train", "validation", "test"].indexOf(split);
    if (share < 0) {
      throw new SettingsError(`sums are generated in the splits train, validation and test, not \`${split}\``);
    }
    return Array.from({ length: count }, (_, at) => {
      const index = start + at;
      return { id: `${split}-${level}-${index}`, data: { number: index * 3 + share, largest: 10 * level } };
    });
  },
};

const EXAMPLES = [
  ["Sam has 2 pens. He buys 3 more. How many pens does Sam have now?", "2 + 3", "5"],
  ["Kim has 9 cups and breaks 4. How many cups does Kim have left?", "9 - 4", "5"],
  ["There are 6 hats on one shelf and 8 hats on another. How many hats are there in all?", "6 + 8", "14"],
  ["Max has 12 fish. Pia has 7 fish. How many more fish does Max have than Pia?", "12 - 7", "5"],
];

// Maximum length of an answer in bytes; longer ones don't count.
const MAX_ANSWER_BYTES = 4000;

const reasoner = {
  doc: "Reasons in words and puts the final answer in a box.",
  settings: {
    instruction: {
      type: ["string", "null"],
      default: null,
      description: "Replaces the instruction in the system message. An empty one sends no system message.",
    },
    examples: {
      type: "integer",
      default: 4,
      minimum: 0,
      maximum: 4,
      description: "Worked examples before the question, at most 4. Small models need them, large ones do without.",
    },
  },

  prompt({ instruction, examples }, { question, tool, answers }) {
    let text = question;
    if (tool?.answer != null) text += `\nA program printed ${tool.answer}, which may be wrong.`;
    if (answers.length > 0) text += `\nAn earlier answer was ${answers.at(-1).answer}, which may be wrong.`;
    const boxed = EXAMPLES.slice(0, examples).map(([asked, sum, result]) => [asked, `${sum} = \\boxed{${result}}`]);
    const system = instruction ?? "Put the final answer in \\boxed{}.";
    return request(text, { system: system || undefined, examples: boxed });
  },

  callTools(_settings, _view, calls) {
    const result = ({ name, arguments: given }) =>
      name === "add" ? String(given.terms.reduce((sum, term) => sum + term)) : `there is no tool ${name}`;
    return calls.map(result);
  },

  parse(_settings, _view, { text }) {
    const found = answer(text);
    if (found === undefined) return { none: "no answer" };
    if (new TextEncoder().encode(found).length > MAX_ANSWER_BYTES) return { none: "the answer is too long" };
    return { answer: found };
  },
};

const score = {
  doc: "Up to 1 for the team's right answer, less for each wrong one before it; 1 for each agent's own right answer.",
  settings: {
    miss: {
      type: "number",
      default: 0.25,
      minimum: 0,
      maximum: 1,
      description: "Deduction from the team's reward for each earlier wrong try.",
    },
  },

  score({ miss }, { facts, evidence }) {
    const gold = String(evidence.gold);
    const local = evidence.latest.map(({ agent, answer }) => ({
      agent,
      reward: answer === gold ? 1 : 0,
      success: answer === gold,
    }));
    const team = facts.right ? Math.max(1 - miss * Math.max(facts.tries - 1, 0), 0) : 0;
    return { team, local, success: facts.right };
  },
};

export default plugin({ environments: { sums }, agents: { reasoner }, rewards: { score } });
