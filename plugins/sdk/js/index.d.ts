// Types of the JavaScript SDK for plugins.

/** What JSON can hold. Whole numbers are exact up to 2^53. */
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** One setting, in JSON Schema's words. A setting without a default must be given. */
export interface Setting {
  type: SettingType | SettingType[];
  /** Shown to people. */
  description?: string;
  default?: Json;
  minimum?: number;
  maximum?: number;
  enum?: Json[];
  /** Of a list's items. */
  items?: Omit<Setting, "default">;
}
export type SettingType = "boolean" | "integer" | "number" | "string" | "array" | "object" | "null";

/** What `when` conditions read as `env.*`. */
export interface Fact {
  type: "boolean" | "integer" | "number" | "string";
  /** Shown to people. */
  description?: string;
}

/** One problem to solve. Reading `data` of a record that is no JSON is a refusal about the task. */
export interface Task {
  readonly id: string;
  readonly data: any;
}

/** Which generated tasks are wanted: `count` from index `start` on. */
export interface TaskRequest {
  split: string;
  start: number;
  count: number;
  /** Difficulty; what the numbers mean is the environment's. */
  level: number;
}

/** What one agent did: its name in the workflow, and what its `parse` returned. */
export interface AgentAction<Action = any> {
  agent: string;
  action: Action;
}

/** What an environment says after a step. */
export interface Outcome<Facts = any, Evidence = any> {
  /** The episode is over. */
  done?: boolean;
  /** The episode was cut short: over, but not decided. */
  truncated?: boolean;
  /** For `when` conditions: exactly the declared facts. */
  facts?: Facts;
  /** For the reward alone: gold answers, test results. */
  evidence?: Evidence;
}

/** The only memory of an episode: a plain object, of which JSON keeps everything. */
export interface Environment<Settings = any, State = any, View = any, Action = any, Facts = any, Evidence = any> {
  /** One sentence for people. */
  doc?: string;
  settings?: Record<string, Setting>;
  facts?: Record<string, Fact>;
  /** Starts an episode. Equal arguments and an equal random stream give an equal state. */
  start(settings: Settings, task: Task, seed: bigint): State;
  /** What `agent` may see now. */
  view(state: State, settings: Settings, agent: string): View;
  /** Applies the actions of one turn together. A bad action is no error: it is what a model did. */
  apply(state: State, settings: Settings, actions: AgentAction<Action>[]): Outcome<Facts, Evidence>;
  /** Makes tasks. Equal arguments give equal tasks, whatever the block they are asked for in; splits share none. */
  tasks?(settings: Settings, request: TaskRequest): { id: string; data: Json }[];
}

export type Role = "system" | "user" | "assistant" | "tool";

/** Bytes and what they are, such as `image/png`. */
export interface Blob {
  mime: string;
  bytes: Uint8Array;
}
export type Part = string | { text: string } | { image: Blob } | { data: Blob };

export interface Message {
  role: Role;
  parts: Part | Part[];
}

/** A tool that the model may call. `parameters` is the JSON Schema of the arguments object. */
export interface Tool {
  name: string;
  description: string;
  parameters: Json;
}

/** What to ask the model. `stop`: strings that end the completion and are no part of its text. */
export interface Request {
  messages: Message[];
  tools?: Tool[];
  stop?: string[];
}

export interface Turn {
  /** The agent's name in the workflow. */
  agent: string;
  /** The agent's earlier visits in this episode. */
  visit: number;
}

export interface Completion {
  text: string;
  toolCalls: { name: string; arguments: any }[];
  finish: "stop" | "length" | "tool-calls";
}

/** A prompt and a parse, stateless both; what an agent needs to remember stands in the environment's view. */
export interface Agent<Settings = any, View = any, Action = any> {
  /** One sentence for people. */
  doc?: string;
  settings?: Record<string, Setting>;
  /** What to ask the model; nothing skips this turn. */
  prompt(settings: Settings, view: View, turn: Turn): Request | null | undefined;
  /** What the completion means. Text that means nothing is an action too, never an error. */
  parse(settings: Settings, view: View, completion: Completion): Action;
}

/** One step: who did what, and what came of it. */
export interface Transition<Action = any, Facts = any, Evidence = any> {
  task: Task;
  actions: AgentAction<Action>[];
  done: boolean;
  truncated: boolean;
  facts: Facts;
  evidence: Evidence;
}

/** What a step earned: the part that all agents share, and one part for each agent that acted. */
export interface Scores {
  team: number;
  local: { agent: string; reward: number; success: boolean }[];
  /** Whether the team has solved the task as things stand. */
  success: boolean;
}

/** One function of a transition. */
export interface Reward<Settings = any, Action = any, Facts = any, Evidence = any> {
  /** One sentence for people. */
  doc?: string;
  settings?: Record<string, Setting>;
  score(settings: Settings, transition: Transition<Action, Facts, Evidence>): Scores;
}

/** The contract's exports over JSON: what a component is made of, and what `pl-sdk/testing` plays. */
export interface Plugin {
  readonly catalog: object;
  readonly environments: object;
  readonly agents: object;
  readonly rewards: object;
}

/** Makes the plugin of these items, by name: the main file's default export. */
export function plugin(items: {
  environments?: Record<string, Environment>;
  agents?: Record<string, Agent>;
  rewards?: Record<string, Reward>;
}): Plugin;

/** A message of one text part. */
export function message(role: Role, text: string): Message;

/** A request of one user message, with a system message and worked examples (question, answer) in front of it. */
export function request(
  text: string,
  more?: { system?: string; examples?: [string, string][]; stop?: string[]; tools?: Tool[] },
): Request;

/** The item cannot go on, and neither the settings nor the task are to blame. */
export class Refusal extends Error {}
/** The item's settings do not mean anything: the host points to the item's block in the workflow. */
export class SettingsError extends Refusal {}
/** The task's record is not of a form that the environment reads: the host points to its line. */
export class TaskError extends Refusal {}

/** The episode's random stream. Its position travels with the snapshot. */
export const random: {
  /** The next number of the stream, 0 to 2^64 - 1. */
  next(): bigint;
  /** A number below `bound` (at most 2^53 - 1), every one as likely as the others. 0 for a bound of 0. */
  below(bound: number): number;
};

export interface Job {
  /** `python` is always there. */
  language: string;
  source: string;
  stdin?: string;
  files?: { path: string; bytes: Uint8Array }[];
}

export interface Verdict {
  ending: "ok" | "error" | "timeout" | "memory" | "output-limit" | "process-limit" | "lost-worker";
  exit?: number;
  stdout: string;
  stderr: string;
}

/** Untrusted code. Only environments may call it: elsewhere the call traps. */
export const sandbox: {
  /** Runs the jobs, each on a fresh worker. Verdicts come in the order of the jobs. */
  execute(jobs: Job[]): Verdict[];
  /** Runs one Python program with nothing on its standard input. */
  python(source: string): Verdict;
};

/** Lines for the run's trace: for the author, for a user, for a user to look into. */
export const log: {
  debug(message: string): void;
  info(message: string): void;
  warn(message: string): void;
};

export interface Passage {
  id: string;
  text: string;
  score: number;
}

/** Passages from the workflow's corpus. */
export const retrieval: {
  /** The `k` passages that fit `query` best, best first. Throws a Refusal where the workflow has no corpus. */
  retrieve(query: string, k: number): Passage[];
};
