// Curves from the lines of a run's logs.

/** Sections of charts in the order in which they are shown: fields of lines, and their titles. Others follow by name. */
const SECTIONS = {
  Success: {
    success: "Success in evaluations",
    rollout_success: "Success of rollouts",
    "agents.success": "Success of agents in evaluations",
    "agents.rollout_success": "Success of agents in rollouts",
    pass: "pass@k",
  },
  Rewards: {
    "agents.reward": "Reward of agents",
    "agents.team_reward": "Team part of rewards",
    "agents.local_reward": "Agents' own part of rewards",
    "agents.reward_by_turn": "Reward by turn",
    "policies.advantage_mean": "Mean advantage",
    "policies.advantage_std": "Deviation of advantages",
    flat_share: "Groups of equal returns",
  },
  "Episodes and lengths": {
    turns: "Turns",
    truncated: "Truncated episodes",
    "agents.length": "Completion length of agents (tokens)",
    "agents.length_by_turn": "Completion length by turn (tokens)",
    "agents.cut_off": "Cut-off completions of agents",
    tokens: "Sampled tokens",
    failures: "Failures",
    lost: "Lost episodes",
    refilled_tasks: "Tasks played in place of others",
  },
  Updates: {
    "policies.entropy": "Entropy (nats per token)",
    "policies.kl": "KL from the sampling policy",
    "policies.reference_kl": "KL from the reference",
    "policies.kl_coefficient": "Coefficient of the KL divergence",
    "policies.ratio": "Ratio: 1st, 50th, 99th percentile",
    "policies.clip_fraction": "Clipped tokens",
    "policies.dual_clip_fraction": "Tokens at the bound of negative advantages",
    max_logprob_gap: "Largest gap of log-probs, training to sampling",
    "policies.close_logprobs": "Tokens with equal log-probs",
    "policies.staleness": "Updates since the tokens were sampled, mean",
    "policies.mixed_versions": "Share of tokens in completions with several versions",
    "policies.effective_sample_size": "Effective sample size of importance weights",
    "policies.loss": "Loss",
    "policies.grad_norm": "Gradient norm",
    "policies.skipped_steps": "Skipped optimiser steps",
    "policies.lr": "Learning rate",
    "policies.critic.value_loss": "Loss of critics",
    "policies.critic.explained_variance": "Variance that critics explain",
    "policies.critic.grad_norm": "Gradient norm of critics",
  },
  "Speed and memory": {
    seconds: "Seconds of a step",
    sampled_tokens_per_second: "Sampled tokens per second",
    trained_tokens_per_second: "Tokens per second in updates, prompts and each pass counted",
    memory: "Memory of the process (GiB)",
  },
};
const TITLES = Object.assign({}, ...Object.values(SECTIONS));
const SHARES = new Set(["success", "rollout_success", "agents.success", "agents.rollout_success", "pass", "truncated", "flat_share", "agents.cut_off", "policies.cut_off", "policies.clip_fraction", "policies.dual_clip_fraction", "policies.close_logprobs", "policies.mixed_versions", "policies.effective_sample_size"]);
/** Numbers that other charts show, or that say nothing as a curve. */
const LEFT_OUT = new Set(["step", "policies.version", "policies.optimizer_steps", "policies.cut_off", "policies.completion_length", "policies.completions", "policies.tokens", "agents.completions", "flat_groups", "memory_bytes", "peak_memory_bytes", "tasks", "elapsed"]);

export function title(chart) {
  return TITLES[chart] ?? chart.replace(/^(policies|agents)\./, "").replaceAll(/[._]/g, " ");
}

const OTHERS = "Others";

/** The section of a chart. */
export function section(chart) {
  return Object.keys(SECTIONS).find((name) => chart in SECTIONS[name]) ?? OTHERS;
}

export const isShare = (chart) => SHARES.has(chart);

/** The interval of a share of n by Wilson's formula, at 95 %. */
function wilson(share, n) {
  const z = 1.96;
  const centre = (share + (z * z) / (2 * n)) / (1 + (z * z) / n);
  const half = (z / (1 + (z * z) / n)) * Math.sqrt((share * (1 - share)) / n + (z * z) / (4 * n * n));
  return [Math.max(0, centre - half), Math.min(1, centre + half)];
}

class Curves {
  constructor() {
    this.charts = new Map();
  }

  add(chart, name, x, y, interval) {
    if (typeof y !== "number" || !Number.isFinite(y) || LEFT_OUT.has(chart)) return;
    if (!this.charts.has(chart)) this.charts.set(chart, new Map());
    const lines = this.charts.get(chart);
    if (!lines.has(name)) lines.set(name, []);
    lines.get(name).push({ x, y, low: interval?.[0], high: interval?.[1] });
  }
}

/** Seconds from the start of a run to the end of each step. */
function clock(timings) {
  const ends = new Map();
  let total = 0;
  for (const line of timings) {
    const { wait = 0, play = 0, train = 0, evaluate = 0 } = line.seconds ?? {};
    // The server has added up the times of lines that it has merged.
    total = line.elapsed ?? total + (wait || play) + train + evaluate;
    ends.set(line.step, total / 60);
  }
  return [...ends].sort(([a], [b]) => a - b);
}

/** The minute at the end of a step, between those of merged lines if it is among them. */
function minute(ends, step) {
  if (step === 0) return 0;
  let [low, high] = [0, ends.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle][0] < step) low = middle + 1;
    else high = middle;
  }
  if (low === ends.length) return undefined;
  const [after, end] = ends[low];
  if (after === step || low === 0) return after === step ? end : undefined;
  const [before, start] = ends[low - 1];
  return start + ((end - start) * (step - before)) / (after - before);
}

/**
 * All curves of a run: chart, then name of the curve, then points. `axis` is "step" or "time" (minutes). Of lines that the
 * server has merged, `means` chooses the means; otherwise curves go through the lowest and highest values.
 */
export function curves(allMetrics, allTimings, axis, means = false) {
  const shown = (line) => !line.merged || (line.merged === "mean") === means;
  const [metrics, timings] = [allMetrics.filter(shown), allTimings.filter(shown)];
  const result = new Curves();
  const ends = axis === "time" ? clock(allTimings) : null;
  const at = (step) => (ends ? minute(ends, step) : step);
  for (const line of metrics) {
    const x = at(line.step);
    if (x === undefined) continue;
    const evaluation = line.kind === "evaluation" ? line.name : null;
    const own = evaluation ?? "training";
    if (line.groups) result.add("flat_share", own, x, (line.flat_groups ?? 0) / line.groups);
    for (const [field, value] of Object.entries(line)) {
      if (field === "agents") {
        for (const [agent, scores] of Object.entries(value ?? {})) {
          addAgent(result, evaluation ? `${agent}, ${evaluation}` : agent, scores, x, evaluation && line.tasks);
        }
      } else if (field === "policies") {
        for (const [policy, fields] of Object.entries(value ?? {})) addPolicy(result, policy, fields, x);
      } else if (field.startsWith("pass@")) {
        result.add("pass", `${field}, ${own}`, x, value);
      } else if (field === "success" && evaluation) {
        // Samples of one task depend on each other: tasks are counted.
        result.add(field, own, x, value, line.success_interval ?? (line.tasks ? wilson(value, line.tasks) : undefined));
      } else {
        result.add(field, own, x, value);
      }
    }
  }
  for (const line of timings) {
    const x = at(line.step);
    for (const [name, seconds] of Object.entries(line.seconds ?? {})) result.add("seconds", name, x, seconds);
    for (const [field, value] of Object.entries(line)) result.add(field, "run", x, value);
    for (const [name, field] of [["now", "memory_bytes"], ["peak", "peak_memory_bytes"]]) {
      if (line[field]) result.add("memory", name, x, line[field] / 2 ** 30);
    }
  }
  return result.charts;
}

/** Turns of an agent that have curves of their own. */
const MOST_TURNS = 4;

function addAgent(result, name, scores, x, tasks) {
  for (const [field, value] of Object.entries(scores)) {
    // Samples of one task depend on each other: tasks are counted.
    result.add(`agents.${field}`, name, x, value, field === "success" && tasks ? wilson(value, tasks) : undefined);
  }
  const turns = scores.by_turn ?? [];
  if (turns.length < 2) return;
  for (const [turn, own] of turns.slice(0, MOST_TURNS).entries()) {
    for (const field of ["reward", "length"]) result.add(`agents.${field}_by_turn`, `${name}, turn ${turn + 1}`, x, own[field]);
  }
}

function addPolicy(result, policy, fields, x, prefix = "") {
  for (const [field, value] of Object.entries(fields)) {
    if (field === "ratio_quantiles" && Array.isArray(value)) {
      ["p1", "p50", "p99"].forEach((name, index) => result.add("policies.ratio", `${policy} ${name}`, x, value[index]));
    } else if (field === "staleness" && Array.isArray(value)) {
      result.add("policies.staleness", policy, x, value.reduce((mean, share, updates) => mean + share * updates, 0));
    } else if (value && typeof value === "object" && !Array.isArray(value)) {
      addPolicy(result, policy, value, x, `${prefix}${field}.`);
    } else {
      result.add(`policies.${prefix}${field}`, policy, x, value);
    }
  }
}

/** Sorts the names of charts: the known ones first. */
export function order(charts) {
  const known = Object.keys(TITLES);
  const place = (chart) => (known.includes(chart) ? known.indexOf(chart) : known.length);
  return [...charts].sort((a, b) => place(a) - place(b) || a.localeCompare(b));
}

/** Number of points from which on a curve is smoothed. Evaluations are few. */
const SMOOTHED = 20;

/** Exponential moving averages of values and ranges, without the bias of their start. */
export function smooth(points, weight) {
  if (!weight || points.length < SMOOTHED) return points;
  const average = () => {
    let [mean, sum] = [0, 0];
    return (value) => {
      if (value === undefined) return undefined;
      mean = weight * mean + (1 - weight) * value;
      sum = weight * sum + (1 - weight);
      return mean / sum;
    };
  };
  const [y, low, high] = [average(), average(), average()];
  return points.map((point) => ({ x: point.x, y: y(point.y), low: low(point.low), high: high(point.high) }));
}

/** Joins curves of runs that differ by their seed only: the mean with the range. */
export function band(lines) {
  const byX = new Map();
  for (const points of lines) for (const point of points) byX.set(point.x, [...(byX.get(point.x) ?? []), point.y]);
  return [...byX].sort(([a], [b]) => a - b).map(([x, values]) => ({
    x,
    y: values.reduce((sum, value) => sum + value, 0) / values.length,
    low: Math.min(...values),
    high: Math.max(...values),
  }));
}
