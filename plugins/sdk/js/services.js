// Services of the host: the episode's random stream, sandboxed code, log lines in the trace, retrieval, policies.

import { askPolicy, findPassages, nextRandom, runJobs, writeLog } from "#host";
import { Refusal } from "./errors.js";

const MASK = (1n << 64n) - 1n;

/** The episode's random stream. Its position is part of the snapshot. */
export const random = {
  next: () => nextRandom(),

  below(bound) {
    if (!Number.isSafeInteger(bound) || bound < 0) {
      throw new RangeError(`random.below(${bound}): the bound must be an integer from 0 to 2^53 - 1`);
    }
    if (bound === 0) return 0;
    // Lemire (2019): the high half of a product, redrawn if the low half would favour small numbers.
    const wide = BigInt(bound);
    const threshold = (-wide & MASK) % wide;
    for (;;) {
      const product = nextRandom() * wide;
      if ((product & MASK) >= threshold) return Number(product >> 64n);
    }
  },
};

/** Runs untrusted code. Only environments and the tools of agents may call it: elsewhere the call traps. */
export const sandbox = {
  execute(jobs) {
    return runJobs(jobs.map(({ language, source, stdin = "", files = [] }) => ({ language, source, stdin, files })));
  },

  python(source) {
    return sandbox.execute([{ language: "python", source }])[0];
  },
};

/** Log lines in the run's trace. */
export const log = {
  debug: (message) => writeLog("debug", String(message)),
  info: (message) => writeLog("info", String(message)),
  warn: (message) => writeLog("warn", String(message)),
};

/** Passages from the corpora of the environment. Only environments and the tools of agents may call it. */
export const retrieval = {
  retrieve(query, k, corpus) {
    return refusing("retrieval", () => findPassages(query, k, corpus));
  },
};

/** Policies that the plugin's `grant` names. Only rewards may ask them. */
export const policies = {
  ask(policy, messages, maxTokens) {
    return refusing("policies", () => askPolicy(policy, messages, maxTokens));
  },
};

/** Calls a service. An error of the host is an exception with a payload. */
function refusing(service, call) {
  try {
    return call();
  } catch (error) {
    throw new Refusal(`${service}: ${error.payload ?? error.message}`);
  }
}
