// Stand-ins for the host's services in a plugin's own tests, and a way to run an episode without a host.

import { Refusal } from "./errors.js";

const MASK = (1n << 64n) - 1n;
let state = 0n;
let runJob;
let corpus;
let policies;

/** Restarts the random stream from `seed`. */
export function setRandom(seed) {
  state = BigInt(seed) & MASK;
}

/** Sets the function that answers sandbox jobs. */
export function setSandbox(run) {
  runJob = run;
}

/** Sets the function that answers retrieval queries: it gets the query, the number of passages and the corpus. */
export function setCorpus(find) {
  corpus = find;
}

/** Sets the function that answers questions to policies: it gets the policy's name and the messages. */
export function setPolicies(answer) {
  policies = answer;
}

/** Verdict of a program that printed `stdout` and exited with 0. */
export function printed(stdout) {
  return { ending: "ok", exit: 0, stdout, stderr: "" };
}

// SplitMix64 (Steele, Lea and Flood 2014).
export function nextRandom() {
  state = (state + 0x9e3779b97f4a7c15n) & MASK;
  let z = state;
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return z ^ (z >> 31n);
}

export function writeLog(level, message) {
  console.error(`${level}: ${message}`);
}

export function runJobs(jobs) {
  const none = {
    ending: "lost-worker",
    exit: undefined,
    stdout: "",
    stderr: "no sandbox here: a test sets one with setSandbox of pl-sdk/testing",
  };
  return jobs.map((job) => (runJob ? runJob(job) : none));
}

export function askPolicy(policy, messages) {
  if (!policies) throw new Refusal("no policies here: a test sets them with setPolicies of pl-sdk/testing");
  return policies(policy, messages);
}

export function findPassages(query, k, name) {
  if (!corpus) throw new Refusal("no corpus here: a test sets one with setCorpus of pl-sdk/testing");
  return corpus(query, k, name);
}

/**
 * Runs an episode as the host runs it: settings, views, actions and snapshots cross as JSON. Every step goes through a
 * snapshot, so that a test fails if JSON can't represent the state.
 */
export function play(plugin, item, { task = {}, settings = {}, seed = 0 } = {}) {
  const { Episode } = plugin.environments;
  const given = JSON.stringify(settings);
  let episode = Episode.start(item, given, { id: "test", data: JSON.stringify(task) }, BigInt(seed));
  return {
    view: (agent) => JSON.parse(episode.view(agent)),
    oracle(agent) {
      const action = episode.oracle(agent);
      return action === undefined ? undefined : JSON.parse(action);
    },
    draw: (form) => episode.draw(form),
    act(actions) {
      episode = Episode.restore(item, given, episode.snapshot());
      const entries = Object.entries(actions).map(([agent, action]) => ({ agent, action: JSON.stringify(action) }));
      const outcome = episode.apply(entries);
      return { ...outcome, facts: JSON.parse(outcome.facts), evidence: JSON.parse(outcome.evidence) };
    },
  };
}

/** Returns the action that an agent parses from a completion. */
export function parse(plugin, agent, { view, text, settings = {} }) {
  const completion = { text, toolCalls: [], finish: "stop" };
  return JSON.parse(plugin.agents.parse(agent, JSON.stringify(settings), JSON.stringify(view), completion));
}

/** Returns the results of an agent's tools. */
export function callTools(plugin, agent, { view, calls, settings = {} }) {
  const wire = calls.map((call) => ({ name: call.name, arguments: JSON.stringify(call.arguments) }));
  return plugin.agents.callTools(agent, JSON.stringify(settings), JSON.stringify(view), wire);
}
