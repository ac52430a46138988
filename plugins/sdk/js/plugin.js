// Adapters from items (plain objects) to the contract's functions over JSON, which a component exports.

import { Refusal, SettingsError, TaskError } from "./errors.js";
import { ANY, DRAWING, OUTCOME, REQUEST, RESULTS, SCORES, STATE, TASKS, partTag, returned } from "./returned.js";
import { log } from "./services.js";
import { readSettings, settingsSchema } from "./settings.js";

/** Creates a plugin from these items. The main file exports it by default. */
export function plugin({ environments = {}, agents = {}, rewards = {} }) {
  const items = { environment: environments, agent: agents, reward: rewards };

  function find(kind, name) {
    if (!Object.hasOwn(items[kind], name)) throw contractError(new Refusal(`this plugin has no ${kind} \`${name}\``));
    return items[kind][name];
  }

  const described = Object.entries(items).flatMap(([kind, of]) => Object.entries(of).map((entry) => describe(kind, ...entry)));

  const settingsOf = (item, name, text) => readSettings(name, item.settings, text);

  /** The contract's resource `episode`: a state and its settings. */
  class Episode {
    constructor(item, name, settings, state) {
      Object.assign(this, { item, name, settings, state });
    }

    static start(name, settings, task, seed) {
      const item = find("environment", name);
      return guarded(`${name}.start`, (what) => {
        const read = settingsOf(item, name, settings);
        return new Episode(item, name, read, returned(what, item.start(read, record(task), seed), STATE));
      });
    }

    static restore(name, settings, snapshot) {
      const item = find("environment", name);
      return guarded(`${name}.restore`, () => {
        const read = settingsOf(item, name, settings);
        return new Episode(item, name, read, JSON.parse(new TextDecoder().decode(snapshot)));
      });
    }

    snapshot() {
      try {
        return new TextEncoder().encode(json(this.state, `the state of ${this.name}`));
      } catch (error) {
        // The contract has no error here: the host shows the last warning of a call that trapped.
        log.warn(error.message);
        throw error;
      }
    }

    view(agent) {
      return guarded(`${this.name}.view`, (what) =>
        json(returned(what, this.item.view(this.state, this.settings, agent), ANY), `the view of ${this.name}`),
      );
    }

    apply(actions) {
      return guarded(`${this.name}.apply`, (what) => {
        const outcome = returned(what, this.item.apply(this.state, this.settings, actions.map(readAction)), OUTCOME);
        const { done, truncated, facts = {}, evidence = null } = outcome;
        return {
          done: Boolean(done),
          truncated: Boolean(truncated),
          facts: json(facts, `the facts of ${this.name}`),
          evidence: json(evidence, `the evidence of ${this.name}`),
        };
      });
    }

    oracle(agent) {
      return guarded(`${this.name}.oracle`, (what) => {
        const action = returned(what, this.item.oracle?.(this.state, this.settings, agent), ANY);
        return action == null ? undefined : json(action, `the oracle's action of ${this.name}`);
      });
    }

    draw(form) {
      return guarded(`${this.name}.draw`, (what) => {
        return returned(what, this.item.draw?.(this.state, this.settings, form), DRAWING) ?? undefined;
      });
    }
  }

  return {
    catalog: { describe: () => described },

    environments: {
      Episode,
      tasks(name, settings, split, start, count, level) {
        const item = find("environment", name);
        return guarded(`${name}.tasks`, (what) => {
          if (!item.tasks) throw new SettingsError(`${name} makes no tasks of its own: set \`tasks\` to a file`);
          const made = item.tasks(settingsOf(item, name, settings), { split, start: Number(start), count, level });
          return returned(what, made, TASKS).map(({ id, data }) => ({ id, data: json(data, `a task of ${name}`) }));
        });
      },
    },

    agents: {
      prompt(name, settings, view, turn) {
        const item = find("agent", name);
        return guarded(`${name}.prompt`, (what) => {
          // `condition && request(…)` skips the turn, too.
          const asked = item.prompt(settingsOf(item, name, settings), JSON.parse(view), turn) || undefined;
          return returned(what, asked, REQUEST) && wireRequest(asked, name);
        });
      },

      callTools(name, settings, view, calls) {
        const item = find("agent", name);
        return guarded(`${name}.callTools`, (what) => {
          if (!item.callTools) return undefined;
          const results = item.callTools(settingsOf(item, name, settings), JSON.parse(view), calls.map(readCall));
          return returned(what, results, RESULTS)?.map(String);
        });
      },

      parse(name, settings, view, { text, toolCalls, finish }) {
        const item = find("agent", name);
        return guarded(`${name}.parse`, (what) => {
          const completion = { text, toolCalls: toolCalls.map(readCall), finish };
          const action = item.parse(settingsOf(item, name, settings), JSON.parse(view), completion);
          return json(returned(what, action, ANY), `the action of ${name}`);
        });
      },
    },

    rewards: {
      score(name, settings, { task, actions, outcome }) {
        const item = find("reward", name);
        return guarded(`${name}.score`, (what) => {
          const { done, truncated, facts, evidence } = outcome;
          const transition = {
            task: record(task),
            actions: actions.map(readAction),
            done,
            truncated,
            facts: JSON.parse(facts),
            evidence: JSON.parse(evidence),
          };
          const scores = returned(what, item.score(settingsOf(item, name, settings), transition), SCORES);
          const local = scores.local.map((score) => ({ ...score, success: Boolean(score.success) }));
          return { ...scores, local, success: Boolean(scores.success) };
        });
      },
    },
  };
}

const FACT_KINDS = { boolean: "boolean", number: "number", integer: "number", string: "text" };

/** Describes an item for the host. It runs, and reports mistakes, while the component is built. */
function describe(kind, name, { doc = "", settings, facts = {} }) {
  const described = Object.entries(facts).map(([fact, { type, description = "" }]) => {
    if (!Object.hasOwn(FACT_KINDS, type)) {
      throw new TypeError(`fact \`${fact}\` of ${name}: its type is one of ${Object.keys(FACT_KINDS).join(", ")}`);
    }
    return { name: fact, kind: FACT_KINDS[type], doc: description };
  });
  return { kind, name, doc, settingsSchema: JSON.stringify(settingsSchema(settings)), facts: described };
}

function readAction({ agent, action }) {
  return { agent, action: JSON.parse(action) };
}

function readCall(call) {
  return { name: call.name, arguments: JSON.parse(call.arguments) };
}

/** A task whose record is parsed when it is read: an invalid record is an error only then. */
function record({ id, data }) {
  return {
    id,
    get data() {
      try {
        return JSON.parse(data);
      } catch (error) {
        throw new TaskError(`task ${id}: ${error.message}`);
      }
    },
  };
}

function wireRequest({ messages, tools, stop }, name) {
  return {
    messages: messages.map(({ role, parts }) => ({ role, parts: [parts].flat().map(wirePart) })),
    tools: (tools ?? []).map((tool) => ({ ...tool, parameters: json(tool.parameters, `the tool ${tool.name} of ${name}`) })),
    stop: stop ?? [],
  };
}

/** A part is a text, { text }, { image: { mime, bytes } } or { data: { mime, bytes } }. */
function wirePart(part) {
  if (typeof part === "string") return { tag: "text", val: part };
  const tag = partTag(part);
  return { tag, val: part[tag] };
}

/** Kinds of objects that JSON.stringify writes as {}, without what they contain. */
const WITHOUT_JSON = new Set(["Map", "Set", "WeakMap", "WeakSet", "Promise"]);

/** Writes a value as JSON. Throws a Refusal about `what` if it has no JSON form. */
function json(value, what) {
  const refuse = (why) => {
    throw new Refusal(`cannot write ${what} as JSON: ${why}`);
  };
  const replacer = (key, inner) => {
    if (!key.isWellFormed()) refuse(`the name ${JSON.stringify(key)} has half of a surrogate pair`);
    // JSON.stringify would write null, and the number would be lost silently.
    if (typeof inner === "number" && !Number.isFinite(inner)) refuse(`${key || "it"} is ${inner}`);
    if (typeof inner === "string" && !inner.isWellFormed()) refuse(`${key || "it"} has half of a surrogate pair`);
    const kind = Object.prototype.toString.call(inner).slice(8, -1);
    if (WITHOUT_JSON.has(kind)) refuse(`${key || "it"} is a ${kind}`);
    return inner;
  };
  let text;
  try {
    text = JSON.stringify(value, replacer);
  } catch (error) {
    // Its own errors: a cycle, or a BigInt. That the memory is full is no error but a string.
    if (error instanceof Refusal) throw error;
    refuse(error?.message ?? error);
  }
  return text ?? refuse(`it is ${typeof value}`);
}

/** Calls `work` with `what`, its name. An exception becomes the contract's error, with the place in the source. */
function guarded(what, work) {
  try {
    return work(what);
  } catch (error) {
    throw contractError(error instanceof Refusal ? error : new Refusal(`${what}: ${error} (${place(error)})`));
  }
}

function place(error) {
  const lines = String(error?.stack ?? "").split("\n").map((line) => line.trim());
  return lines.filter((line) => line && !line.startsWith(String(error))).slice(0, 3).join(" < ") || "no stack";
}

/** Adds the payload: in a component an exception with a payload is the error of a result; any other traps. */
function contractError(refusal) {
  return Object.assign(refusal, { payload: { kind: refusal.kind, message: refusal.message } });
}
