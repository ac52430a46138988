// Types of the stand-ins for the host, and of playing an episode without one.

import type { Job, Json, Passage, Plugin, Verdict } from "./index.js";

/** Starts the random stream anew. */
export function setRandom(seed: number | bigint): void;
/** Answers sandbox jobs from now on. */
export function setSandbox(run: (job: Required<Job>) => Verdict): void;
/** Answers retrieval from now on. */
export function setCorpus(find: (query: string, k: number) => Passage[]): void;
/** A verdict of a program that ended well after printing `stdout`. */
export function printed(stdout: string): Verdict;

/** An episode that is played as the host plays it: everything crosses as JSON, every step goes through a snapshot. */
export function play(
  plugin: Plugin,
  item: string,
  given?: { task?: Json; settings?: Record<string, Json>; seed?: number },
): {
  /** What `agent` sees. */
  view(agent: string): any;
  /** Applies one turn's actions, by agent. */
  act(actions: Record<string, Json>): { done: boolean; truncated: boolean; facts: any; evidence: any };
};

/** What an agent makes of a completion in front of a view: its action. */
export function parse(
  plugin: Plugin,
  agent: string,
  given: { view: Json; text: string; settings?: Record<string, Json> },
): any;
