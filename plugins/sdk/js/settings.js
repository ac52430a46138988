// JSON Schema of settings, and reading settings according to it.
//
// A settings declaration is the `properties` object of a JSON Schema: { size: { type: "integer", default: 100,
// minimum: 1, description: "…" } }. Only the keywords that index.d.ts
// documents are checked.

import { SettingsError } from "./errors.js";

/** Returns the JSON Schema of a declaration. Unknown keys are rejected; settings without a default are required. */
export function settingsSchema(declared = {}) {
  const required = Object.keys(declared).filter((name) => !("default" in declared[name]));
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    properties: declared,
    additionalProperties: false,
    ...(required.length > 0 ? { required } : {}),
  };
}

/** Reads the settings in `text` and fills in defaults. */
export function readSettings(item, declared = {}, text) {
  const refuse = (why) => {
    throw new SettingsError(`settings of ${item}: ${why}`);
  };
  const given = JSON.parse(text);
  const names = Object.keys(declared);
  for (const name of Object.keys(given)) {
    if (!Object.hasOwn(declared, name)) {
      const expected = names.map((known) => `\`${known}\``).join(", ");
      refuse(`unknown field \`${name}\`, ${expected ? `expected one of ${expected}` : "there are no settings"}`);
    }
  }
  const settings = {};
  for (const [name, schema] of Object.entries(declared)) {
    if (Object.hasOwn(given, name)) {
      const fault = mismatch(given[name], schema);
      if (fault) refuse(`${name}: ${fault}`);
      settings[name] = given[name];
    } else if ("default" in schema) {
      settings[name] = copyDefault(schema.default);
    } else {
      refuse(`\`${name}\` is missing`);
    }
  }
  return settings;
}

/** Copies a default, so that one call's changes to it don't affect the next call. */
function copyDefault(value) {
  return typeof value === "object" && value !== null ? JSON.parse(JSON.stringify(value)) : value;
}

/** Returns the reason if a value doesn't match its schema, else undefined. */
function mismatch(value, schema) {
  const shown = () => JSON.stringify(value).slice(0, 80);
  const types = [schema.type ?? []].flat();
  if (types.length > 0 && !types.some((type) => hasType(value, type))) return `expected ${types.join(" or ")}, found ${shown()}`;
  if (schema.enum && !schema.enum.includes(value)) return `expected one of ${JSON.stringify(schema.enum)}, found ${shown()}`;
  if (typeof value === "number") {
    if (value < (schema.minimum ?? -Infinity)) return `${value} is out of range, expected at least ${schema.minimum}`;
    if (value > (schema.maximum ?? Infinity)) return `${value} is out of range, expected at most ${schema.maximum}`;
  }
  if (Array.isArray(value) && schema.items) {
    return value.map((item) => mismatch(item, schema.items)).find((fault) => fault);
  }
  return undefined;
}

function hasType(value, type) {
  switch (type) {
    case "null":
      return value === null;
    case "integer":
      return Number.isInteger(value);
    case "array":
      return Array.isArray(value);
    case "object":
      return typeof value === "object" && value !== null && !Array.isArray(value);
    default:
      return typeof value === type;
  }
}
