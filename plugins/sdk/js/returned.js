// Check of the values that items return. The component's bindings would trap on a value of another type, without a word
// about the item.

import { Refusal } from "./errors.js";

// A shape is the name of a type, and a function that returns the first part of another type: its path, the part, and the
// name of the expected type. It returns undefined if all parts fit.

const simple = (name, fits) => ({ name, find: (value, path) => (fits(value) ? undefined : { path, part: value, name }) });

const text = {
  name: "a string",
  find(value, path) {
    if (typeof value !== "string") return { path, part: value, name: "a string" };
    return value.isWellFormed() ? undefined : { path, part: value, name: "text without half of a surrogate pair" };
  },
};
// `match && …` gives null, and 0 and 1 are common; a text such as "no" is a mistake.
const flag = simple("true or false", (value) => value === null || ["boolean", "number"].includes(typeof value));
const number = simple("a number", (value) => typeof value === "number");
const bytes = simple("a Uint8Array", (value) => value instanceof Uint8Array);
const any = simple("anything", () => true);
const role = simple("a role", (value) => ["system", "user", "assistant", "tool"].includes(value));

const listOf = (shape) => ({
  name: "a list",
  find(value, path) {
    if (!Array.isArray(value)) return { path, part: value, name: this.name };
    return first(value, (item, at) => shape.find(item, `${path}[${at}]`));
  },
});

const record = (fields) => {
  const name = `{ ${Object.keys(fields).join(", ")} }`;
  return {
    name,
    find(value, path) {
      if (typeof value !== "object" || value === null || Array.isArray(value)) return { path, part: value, name };
      return first(Object.entries(fields), ([key, shape]) => shape.find(value[key], path ? `${path}.${key}` : key));
    },
  };
};

const optional = (shape) => ({
  name: `${shape.name} or undefined`,
  find(value, path) {
    const found = value == null ? undefined : shape.find(value, path);
    return found?.path === path && found.name === shape.name ? { ...found, name: this.name } : found;
  },
});

const blob = record({ mime: text, bytes });
const PARTS = { text, image: blob, data: blob };
const part = {
  name: "a string, { text }, { image } or { data }",
  find(value, path) {
    if (typeof value === "string") return text.find(value, path);
    const tag = partTag(value);
    return tag ? PARTS[tag].find(value[tag], `${path}.${tag}`) : { path, part: value, name: this.name };
  },
};
const parts = { name: part.name, find: (value, path) => (Array.isArray(value) ? listOf(part) : part).find(value, path) };

/** Returns the kind of a message's part that is an object, or undefined if it has none. */
export function partTag(value) {
  return Object.keys(PARTS).find((tag) => value?.[tag] !== undefined);
}

export const ANY = any;
export const STATE = simple("an object", (value) => typeof value === "object" && value !== null);
export const TASKS = listOf(record({ id: text, data: any }));
export const OUTCOME = record({ done: optional(flag), truncated: optional(flag), facts: any, evidence: any });
export const DRAWING = optional(text);
export const REQUEST = optional(
  record({
    messages: listOf(record({ role, parts })),
    tools: optional(listOf(record({ name: text, description: text, parameters: any }))),
    stop: optional(listOf(text)),
  }),
);
export const RESULTS = optional(simple("a list", Array.isArray));
const score = record({ agent: text, reward: number, success: flag });
export const SCORES = record({ team: number, local: listOf(score), success: flag });

/** Returns `value`, which the function `what` returned. Throws a Refusal if it has another shape. */
export function returned(what, value, shape) {
  if (value instanceof Promise) throw new Refusal(`${what} returned a Promise: functions of items can't be async`);
  const found = shape.find(value, "");
  if (!found) return value;
  const whole = found.path ? `${Array.isArray(value) ? "a list" : "an object"} whose \`${found.path}\` is ` : "";
  throw new Refusal(`${what} returned ${whole}${shown(found.part)}, expected ${found.name}`);
}

function first(items, find) {
  for (const [at, item] of items.entries()) {
    const found = find(item, at);
    if (found) return found;
  }
  return undefined;
}

function shown(value) {
  if (Array.isArray(value)) return "a list";
  if (value === null || ["undefined", "boolean", "number"].includes(typeof value)) return String(value);
  if (typeof value === "string") return JSON.stringify(value).slice(0, 60);
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}
