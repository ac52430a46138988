// Types of the stand-ins for the host's services, and of the functions that run an episode without a host.

import type { DrawingForm, Job, Json, Passage, Plugin, ToolCall, Verdict } from "./index.js";

/** Restarts the random stream from `seed`. */
export function setRandom(seed: number | bigint): void;
/** Sets the function that answers sandbox jobs. */
export function setSandbox(run: (job: Required<Job>) => Verdict): void;
/** Sets the function that answers retrieval queries. */
export function setCorpus(find: (query: string, k: number, corpus?: string) => Passage[]): void;
/** Sets the function that answers questions to policies. */
export function setPolicies(answer: (policy: string, messages: { role: string; text: string }[]) => string): void;
/** Verdict of a program that printed `stdout` and exited with 0. */
export function printed(stdout: string): Verdict;

/** Runs an episode as the host runs it: all values cross as JSON, every step goes through a snapshot. */
export function play(
  plugin: Plugin,
  item: string,
  given?: { task?: Json; settings?: Record<string, Json>; seed?: number },
): {
  /** Returns the view of `agent`. */
  view(agent: string): any;
  /** Returns the oracle's action. */
  oracle(agent: string): any;
  /** Returns a drawing of the state. */
  draw(form: DrawingForm): string | undefined;
  /** Applies one turn's actions, by agent. */
  act(actions: Record<string, Json>): { done: boolean; truncated: boolean; facts: any; evidence: any };
};

/** Returns the action that an agent parses from a completion. */
export function parse(
  plugin: Plugin,
  agent: string,
  given: { view: Json; text: string; settings?: Record<string, Json> },
): any;

/** Returns the results of an agent's tools. */
export function callTools(
  plugin: Plugin,
  agent: string,
  given: { view: Json; calls: ToolCall[]; settings?: Record<string, Json> },
): string[] | undefined;
