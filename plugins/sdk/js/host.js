// The host's services, in a component. Outside of one, testing.js replaces this file (see `imports` in package.json).

import { write } from "pl-host:plugin/log@0.1.0";
import { ask } from "pl-host:plugin/policies@0.1.0";
import { next } from "pl-host:plugin/random@0.1.0";
import { retrieve } from "pl-host:plugin/retrieval@0.1.0";
import { execute } from "pl-host:plugin/sandbox@0.1.0";

export const writeLog = write;
export const nextRandom = next;
export const runJobs = execute;
export const findPassages = (query, k, corpus) => retrieve(corpus, query, k);
export const askPolicy = ask;
