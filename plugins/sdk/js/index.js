// The JavaScript SDK for plugins: agents, environments and rewards.
//
// An agent is two functions, an environment's state is a plain object that the SDK snapshots as JSON, a reward is one
// function. README.md shows a complete plugin and how to build it; index.d.ts has the types.

export { Refusal, SettingsError, TaskError } from "./errors.js";
export { log, policies, random, retrieval, sandbox } from "./services.js";
export { message, request } from "./request.js";
export { plugin } from "./plugin.js";
