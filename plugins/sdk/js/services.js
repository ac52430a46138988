// Services of the host: the episode's random stream, sandboxed code, log lines in the trace, retrieval.

import { findPassages, nextRandom, runJobs, writeLog } from "#host";
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

/** Runs untrusted code. Only environments may call it: in agents and rewards the call traps. */
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

/** Passages from the workflow's corpus. */
export const retrieval = {
  retrieve(query, k) {
    try {
      return findPassages(query, k);
    } catch (error) {
      // An error of the host is an exception with a payload.
      throw new Refusal(`retrieval: ${error.payload ?? error.message}`);
    }
  },
};
