// Requests to the server.

export class ApiError extends Error {}

/** The body of a response; an empty one if it is not JSON. A request that was given up has none. */
function json(response) {
  return response.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return {};
  });
}

/** Asks the server. Parameters that are empty are left out. */
export async function ask(path, parameters = {}, signal) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
  let response;
  try {
    response = await fetch(`/api/${path}?${query}`, { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer. Is `pl-host view` still running?");
  }
  const body = await json(response);
  if (!response.ok) throw new ApiError(body.error ?? `The server answered with status ${response.status}.`);
  return body;
}

/** Asks the server to act. */
export async function post(path, body, signal) {
  let response;
  try {
    response = await fetch(`/api/${path}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer. Is `pl-host view` still running?");
  }
  const answer = await json(response);
  if (!response.ok) throw new ApiError(answer.error ?? `The server answered with status ${response.status}.`);
  return answer;
}

/** The lines of a log, of which only what is new is asked for. */
class FollowedLog {
  constructor(run, log) {
    Object.assign(this, { run, log, offset: 0, line: 0, lines: [], problems: [] });
  }

  /** Parameters of a request for the lines so far. */
  start() {
    return null;
  }

  wants() {
    return true;
  }

  /** Reads new lines, after a reading in progress. Returns true if there were any. */
  update(signal) {
    const reading = (this.reading ?? Promise.resolve()).catch(() => {}).then(() => this.read(signal));
    this.reading = reading;
    return reading;
  }

  async read(signal) {
    let changed = false;
    if (this.start() && !this.started) {
      const piece = await ask("curves", { run: this.run, log: this.log, ...this.start() }, signal);
      Object.assign(this, { lines: piece.lines, problems: piece.problems, offset: piece.offset, line: piece.line, started: true });
      changed = true;
    }
    for (let more = true; more; ) {
      const piece = await ask("log", { run: this.run, log: this.log, offset: this.offset, line: this.line }, signal);
      if (piece.restarted) {
        this.started = false;
        this.lines = [];
        this.problems = [];
      }
      changed ||= piece.restarted || piece.lines.length > 0;
      for (const line of piece.lines) if (this.wants(line)) this.lines.push(line);
      for (const problem of piece.problems) this.problems.push(problem);
      ({ offset: this.offset, line: this.line, more } = piece);
    }
    return changed;
  }
}

/** Lines of a log for curves: those of neighbouring steps are merged by the server if there are many. */
class CurveLog extends FollowedLog {
  constructor(run, log, range) {
    super(run, log);
    this.range = range;
  }

  start() {
    return { points: POINTS, ...this.range };
  }

  wants(line) {
    return line.step >= (this.range.from || 0) && line.step <= (this.range.to || Infinity);
  }
}

/** Lines that a chart draws of each kind, at most twice as many: about one for each of its pixels. */
const POINTS = 300;

const followed = new Map();

/** The log of a run, shared by all pages. */
export function follow(run, log) {
  const key = `${log} ${run}`;
  if (!followed.has(key)) followed.set(key, new FollowedLog(run, log));
  return followed.get(key);
}

/** The lines of a log for curves, from a step to another one. */
export function followCurves(run, log, { from = "", to = "" } = {}) {
  const key = `curves ${log} ${from} ${to} ${run}`;
  if (!followed.has(key)) followed.set(key, new CurveLog(run, log, { from, to }));
  return followed.get(key);
}

const workflows = new Map();

/** The settings, lock, text and graph of a run. A run keeps them. */
export async function workflow(run, signal) {
  if (!workflows.has(run)) workflows.set(run, await ask("workflow", { run }, signal));
  return workflows.get(run);
}
