// Settings: their JSON Schema, and reading them by it.
//
// A settings declaration is what stands under `properties` of a JSON Schema: { size: { type: "integer", default: 100,
// minimum: 1, description: "…" } }. The part of JSON Schema that is checked here is the part that is documented in
// index.d.ts.

import { SettingsError } from "./errors.js";

/** JSON Schema of a declaration. Unknown keys are refused; what has no default is required. */
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

/** The settings that `text` holds, with defaults. */
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
      settings[name] = structured(schema.default);
    } else {
      refuse(`\`${name}\` is missing`);
    }
  }
  return settings;
}

/** A copy: one call's changes to a default are not the next one's. */
function structured(value) {
  return typeof value === "object" && value !== null ? JSON.parse(JSON.stringify(value)) : value;
}

/** Why a value is not of its schema, if it is not. */
function mismatch(value, schema) {
  const shown = () => JSON.stringify(value).slice(0, 80);
  const types = [schema.type ?? []].flat();
  if (types.length > 0 && !types.some((type) => isOf(value, type))) return `expected ${types.join(" or ")}, found ${shown()}`;
  if (schema.enum && !schema.enum.includes(value)) return `expected one of ${JSON.stringify(schema.enum)}, found ${shown()}`;
  if (typeof value === "number") {
    if (value < (schema.minimum ?? -Infinity)) return `${value} is not allowed, from ${schema.minimum} on is`;
    if (value > (schema.maximum ?? Infinity)) return `${value} is not allowed, up to ${schema.maximum} is`;
  }
  if (Array.isArray(value) && schema.items) {
    return value.map((item) => mismatch(item, schema.items)).find((fault) => fault);
  }
  return undefined;
}

function isOf(value, type) {
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
