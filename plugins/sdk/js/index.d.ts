// Types of the JavaScript SDK for plugins.

/** A JSON value. Integers are exact up to 2^53. */
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** One setting, as JSON Schema. A setting without a default is required. */
export interface Setting {
  type: SettingType | SettingType[];
  /** Shown to users. */
  description?: string;
  default?: Json;
  minimum?: number;
  maximum?: number;
  enum?: Json[];
  /** Schema of a list's items. */
  items?: Omit<Setting, "default">;
}
export type SettingType = "boolean" | "integer" | "number" | "string" | "array" | "object" | "null";

/** A fact, which `when` conditions read as `env.NAME`. */
export interface Fact {
  type: "boolean" | "integer" | "number" | "string";
  /** Shown to users. */
  description?: string;
}

/** One problem to solve. Reading `data` throws a TaskError if the record is not JSON. */
export interface Task {
  readonly id: string;
  readonly data: any;
}

/** A request for generated tasks: `count` tasks from index `start` on. */
export interface TaskRequest {
  split: string;
  start: number;
  count: number;
  /** Difficulty; the environment defines the meaning of the numbers. */
  level: number;
}

/** The action of one agent: the agent's name in the workflow, and the result of its `parse`. */
export interface AgentAction<Action = any> {
  agent: string;
  action: Action;
}

/** Result of a step in the environment. */
export interface Outcome<Facts = any, Evidence = any> {
  /** True if the episode is over. */
  done?: boolean;
  /** True if the episode was truncated: it is over but undecided. */
  truncated?: boolean;
  /** Facts for `when` conditions: exactly the declared ones. */
  facts?: Facts;
  /** Evidence for the reward only: gold answers, test results. */
  evidence?: Evidence;
}

/** Form of a drawing. */
export type DrawingForm = "svg" | "text";

/** The only state of an episode: a plain object that JSON can represent completely. */
export interface Environment<Settings = any, State = any, View = any, Action = any, Facts = any, Evidence = any> {
  /** One sentence for users. */
  doc?: string;
  settings?: Record<string, Setting>;
  facts?: Record<string, Fact>;
  /** Starts an episode. Equal arguments and an equal random stream give an equal state. */
  start(settings: Settings, task: Task, seed: bigint): State;
  /** Returns the view of `agent`: the parts of the state that it may see. */
  view(state: State, settings: Settings, agent: string): View;
  /** Applies the actions of one turn together. An invalid action is not an error: it is the model's answer. */
  apply(state: State, settings: Settings, actions: AgentAction<Action>[]): Outcome<Facts, Evidence>;
  /** Returns an action of `agent` that leads to success, or nothing. Audits and tests play it; no agent sees it. */
  oracle?(state: State, settings: Settings, agent: string): Action | null | undefined;
  /** Returns a drawing of the state for people: an SVG document without scripts, or lines of text. */
  draw?(state: State, settings: Settings, form: DrawingForm): string | null | undefined;
  /** Generates tasks. A task depends only on settings, split, level and index; splits have no task in common. */
  tasks?(settings: Settings, request: TaskRequest): { id: string; data: Json }[];
}

export type Role = "system" | "user" | "assistant" | "tool";

/** Bytes and their MIME type, such as `image/png`. */
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

/** A request to the model. `stop`: strings that end the completion and are not part of its text. */
export interface Request {
  messages: Message[];
  tools?: Tool[];
  stop?: string[];
}

export interface Turn {
  /** The agent's name in the workflow. */
  agent: string;
  /** Number of the agent's earlier visits in this episode. */
  visit: number;
}

export interface ToolCall {
  name: string;
  arguments: any;
}

export interface Completion {
  text: string;
  toolCalls: ToolCall[];
  finish: "stop" | "length" | "tool-calls";
}

/** Two stateless functions, `prompt` and `parse`. Everything an agent must remember belongs in the environment's view. */
export interface Agent<Settings = any, View = any, Action = any> {
  /** One sentence for users. */
  doc?: string;
  settings?: Record<string, Setting>;
  /** Returns the request to the model, or null or undefined to skip this turn. */
  prompt(settings: Settings, view: View, turn: Turn): Request | null | undefined;
  /**
   * Answers the tool calls of a completion with one result for each; the model is then asked again, in the same turn.
   * Returns nothing if the completion is the turn's last. `sandbox` and `retrieval` are available here.
   */
  callTools?(settings: Settings, view: View, calls: ToolCall[]): string[] | null | undefined;
  /** Turns the turn's last completion into an action. Invalid text is an action too, never an error. */
  parse(settings: Settings, view: View, completion: Completion): Action;
}

/** One step of an episode: the actions and their result. */
export interface Transition<Action = any, Facts = any, Evidence = any> {
  task: Task;
  actions: AgentAction<Action>[];
  done: boolean;
  truncated: boolean;
  facts: Facts;
  evidence: Evidence;
}

/** Scores of a step: one shared by the team, and one for each agent that acted. */
export interface Scores {
  team: number;
  local: { agent: string; reward: number; success: boolean }[];
  /** True if the team has solved the task after this step. */
  success: boolean;
}

/** A function that scores a transition. */
export interface Reward<Settings = any, Action = any, Facts = any, Evidence = any> {
  /** One sentence for users. */
  doc?: string;
  settings?: Record<string, Setting>;
  score(settings: Settings, transition: Transition<Action, Facts, Evidence>): Scores;
}

/** The contract's exports over JSON, for a component and for `pl-sdk/testing`. */
export interface Plugin {
  readonly catalog: object;
  readonly environments: object;
  readonly agents: object;
  readonly rewards: object;
}

/** Creates a plugin from these items, by name. The main file exports it by default. */
export function plugin(items: {
  environments?: Record<string, Environment>;
  agents?: Record<string, Agent>;
  rewards?: Record<string, Reward>;
}): Plugin;

/** A message with one text part. */
export function message(role: Role, text: string): Message;

/** A request with one user message, after the system message and the worked examples (question, answer) if given. */
export function request(
  text: string,
  more?: { system?: string; examples?: [string, string][]; stop?: string[]; tools?: Tool[] },
): Request;

/** The item cannot continue for a reason other than its settings or the task. */
export class Refusal extends Error {}
/** The item's settings are invalid: the host points to the item's block in the workflow. */
export class SettingsError extends Refusal {}
/** The environment can't read the task's record: the host points to its line. */
export class TaskError extends Refusal {}

/** The episode's random stream. Its position is part of the snapshot. */
export const random: {
  /** The next number of the stream, 0 to 2^64 - 1. */
  next(): bigint;
  /** A number below `bound` (at most 2^53 - 1), all equally likely. Returns 0 if `bound` is 0. */
  below(bound: number): number;
};

export interface Job {
  /** `python` is always available. */
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

/** Runs untrusted code. Only environments and the tools of agents may call it: elsewhere the call traps. */
export const sandbox: {
  /** Runs the jobs, each on a fresh worker. Verdicts have the order of the jobs. */
  execute(jobs: Job[]): Verdict[];
  /** Runs one Python program with an empty standard input. */
  python(source: string): Verdict;
};

/** Log lines in the run's trace: debug for the plugin's author, info for users, warn for possible problems. */
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

/** Passages from the corpora of the environment. Only environments and the tools of agents may call it. */
export const retrieval: {
  /**
   * Returns the `k` best passages for `query`, best first. `corpus` is a name in the workflow; the default is the
   * environment's first. Throws a Refusal if the environment has no such corpus.
   */
  retrieve(query: string, k: number, corpus?: string): Passage[];
};

/** Policies that the plugin's `grant` names. Only rewards may ask them: elsewhere, and without the grant, the call traps. */
export const policies: {
  /** Returns the greedy completion of a conversation by `policy`, a name in the workflow. */
  ask(policy: string, messages: { role: "system" | "user" | "assistant"; text: string }[], maxTokens: number): string;
};
