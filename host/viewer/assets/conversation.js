// Prompts, completions, actions and what plugins did, as readable blocks.

import { badge, h, number, pretty } from "./dom.js";

/** Markers of chat templates: the role follows the opening. */
const TEMPLATES = [
  { open: /<\|im_start\|>(\w+)\n/g, close: /<\|im_end\|>\s*$/ },
  { open: /<\|start_header_id\|>(\w+)<\|end_header_id\|>\s*/g, close: /<\|eot_id\|>\s*$/ },
  { open: /<start_of_turn>(\w+)\n/g, close: /<end_of_turn>\s*$/ },
];

/** Splits a prompt at the markers of its chat template. A prompt without known markers is one message. */
function messages(text) {
  for (const { open, close } of TEMPLATES) {
    const starts = [...text.matchAll(open)];
    if (!starts.length) continue;
    const list = starts.map((start, index) => {
      const end = starts[index + 1]?.index ?? text.length;
      return { role: start[1], text: text.slice(start.index + start[0].length, end).replace(close, "") };
    });
    const before = text.slice(0, starts[0].index).trim();
    if (before) list.unshift({ role: "start", text: before });
    // The last marker asks for the completion.
    if (list.length > 1 && !list.at(-1).text.trim()) list.pop();
    return list;
  }
  return [{ role: "prompt", text }];
}

/** A text with its fenced code blocks set apart. */
function prose(text) {
  const parts = text.split(/^```([\w+-]*)[^\n]*\n([\s\S]*?)(?:^```[^\n]*$|$(?![\s\S]))/gm);
  const blocks = [];
  for (let index = 0; index < parts.length; index += 3) {
    if (parts[index].trim()) blocks.push(h("div", { class: "text" }, parts[index].replace(/^\n+|\s+$/g, "")));
    if (index + 2 < parts.length) blocks.push(code(parts[index + 2], parts[index + 1] || "code"));
  }
  return blocks.length ? blocks : [h("div", { class: "text dim" }, "(nothing)")];
}

function code(text, name) {
  return h("div", { class: "code" }, h("div", { class: "codename" }, name), h("pre", {}, text.replace(/\s+$/, "")));
}

/** The prompt of an agent, its messages closed except the last. */
export function promptBlock(prompt, previous) {
  if (prompt.text === null) return h("div", { class: "dim" }, `prompt of ${number(prompt.tokens)} tokens`);
  const list = messages(prompt.text);
  const changes = previous?.text && h("details", {}, h("summary", {}, "changes since its last prompt"), lineDifference(previous.text, prompt.text));
  return h(
    "details",
    { class: "prompt" },
    h("summary", {}, `sees ${list.length === 1 ? "a prompt" : `${list.length} messages`}, ${number(prompt.tokens)} tokens`),
    list.map((message) => h("div", { class: `message ${message.role}` }, h("div", { class: "role" }, message.role), prose(message.text))),
    changes,
  );
}

const LONGEST_DIFFERENCE = 600;

/** Lines that were added and removed. Long texts are compared from their first to their last difference only. */
export function lineDifference(before, after) {
  let [a, b] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < Math.min(a.length, b.length) && a[start] === b[start]) start++;
  let end = 0;
  while (end < Math.min(a.length, b.length) - start && a.at(-1 - end) === b.at(-1 - end)) end++;
  const same = (count) => count > 0 && h("div", { class: "dim" }, `  ${number(count)} equal lines`);
  a = a.slice(start, a.length - end);
  b = b.slice(start, b.length - end);
  const lines = a.length * b.length > LONGEST_DIFFERENCE ** 2 ? [...a.map((line) => ["-", line]), ...b.map((line) => ["+", line])] : longestCommon(a, b);
  if (!lines.length) return h("p", { class: "dim" }, "No difference.");
  const classes = { "+": "added", "-": "removed", " ": "" };
  return h("div", { class: "code" }, h("pre", { class: "difference" }, same(start), lines.map(([sign, line]) => h("div", { class: classes[sign] }, `${sign} ${line}`)), same(end)));
}

/** The difference with the fewest changed lines. */
function longestCommon(a, b) {
  const table = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
  }
  const lines = [];
  for (let i = 0, j = 0; i < a.length || j < b.length; ) {
    if (i < a.length && j < b.length && a[i] === b[j]) lines.push([" ", a[i++]]) && j++;
    else if (j >= b.length || (i < a.length && table[i + 1][j] >= table[i][j + 1])) lines.push(["-", a[i++]]);
    else lines.push(["+", b[j++]]);
  }
  return lines;
}

/** An action: programs as code, unless the completion shows them already, and other values as JSON. */
function actionBlock(action, completion) {
  if (action === null) return null;
  let value;
  try {
    value = JSON.parse(action);
  } catch {
    return code(action, "action");
  }
  if (value && typeof value === "object" && !Array.isArray(value)) {
    const programs = Object.entries(value).filter(([, field]) => typeof field === "string" && (field.includes("\n") || completion.includes(`\n${field}\n`)));
    const rest = Object.fromEntries(Object.entries(value).filter(([name]) => !programs.some(([other]) => other === name)));
    const shown = ([name, text]) => (completion.includes(text.trim()) ? h("div", { class: "action dim" }, `does ${name}: the program above`) : code(text, `action: ${name}`));
    return [programs.map(shown), Object.keys(rest).length ? h("div", { class: "action" }, h("span", { class: "dim" }, "does "), h("code", {}, JSON.stringify(rest))) : null];
  }
  return h("div", { class: "action" }, h("span", { class: "dim" }, "does "), h("code", {}, JSON.stringify(value)));
}

/** The turn of one agent in one branch. `tokensLink` returns the address of the tokens of a model call, or null. */
function turnBlock(turn, branch, tokensLink) {
  const reward = branch.rewards.find((one) => one.agent === turn.agent);
  const followUps = turn.follow_ups ?? [];
  // The action was parsed from the last completion.
  const last = followUps.findLast((later) => later.finish);
  const tokens = (call) => {
    const href = tokensLink(call);
    return href && h("a", { href, class: "small" }, "tokens");
  };
  return h(
    "div",
    { class: "turn" },
    h("div", { class: "turnhead" }, h("b", {}, turn.agent), " writes ", h("span", { class: "dim" }, `${number(turn.tokens)} tokens`), turn.finish === "length" && badge("unsolved", "cut off"), h("span", { class: "space" }), reward && rewardChip(reward), tokens(0)),
    prose(turn.text),
    followUps.map((later, index) => [
      later.tool_results.map((result) => code(result, "tool result")),
      later.finish && h("div", { class: "turnhead" }, "writes ", h("span", { class: "dim" }, `${number(later.tokens)} tokens`), later.finish === "length" && badge("unsolved", "cut off"), h("span", { class: "space" }), tokens(index + 1)),
      prose(later.text),
    ]),
    actionBlock(turn.action, last?.text ?? turn.text),
  );
}

function rewardChip(reward) {
  const signed = (value) => `${value >= 0 ? "+" : "−"}${number(Math.abs(value))}`;
  const relative = reward.relative === null ? null : h("span", { class: "dim", title: "difference from the mean of its siblings" }, ` (${signed(reward.relative)})`);
  const advantage = reward.advantage === null ? null : h("span", { class: "dim", title: "advantage that it was trained with" }, `, advantage ${signed(reward.advantage)}`);
  return h("span", { class: `reward ${reward.reward > 0 ? "good" : reward.reward < 0 ? "bad" : ""}` }, `earns ${number(reward.reward)}`, relative, advantage);
}

/** Logs, prints and jobs of plugins. */
export function logBlocks(logs) {
  return logs.flatMap((log) => (Array.isArray(log.events) ? log.events : []).map((event) => logEvent(log, event)));
}

function logEvent(log, event) {
  const who = `${log.agent ?? "environment"}: ${log.function}`;
  const [kind, value] = Object.entries(event)[0] ?? ["", {}];
  if (kind === "sandbox") {
    return (value.verdicts ?? []).map((verdict) => {
      const output = [verdict.stdout, verdict.stderr].filter(Boolean).join("\n");
      const ok = verdict.ending === "ok" && !verdict.exit;
      return h("div", { class: "verdict" }, badge(ok ? "solved" : "failed", `program: ${verdict.ending}${verdict.exit ? `, exit ${verdict.exit}` : ""}`), output ? code(output, "output") : h("span", { class: "dim" }, " no output"));
    });
  }
  if (kind === "retrieval") {
    const { Ok: passages, Err: reason } = value.answer?.passages ?? {};
    const found = (passages ?? []).map((passage) => code(passage.text ?? "", `${passage.id}, score ${number(passage.score ?? 0)}`));
    return [h("div", { class: "log" }, `${who} searches: ${value.query}${reason ? ` → ${reason}` : ""}`), ...found];
  }
  if (kind === "log") return h("div", { class: "log dim" }, `[${value.level}] ${who}: ${value.message}`);
  if (kind === "output") return code(value.text ?? "", `${who}, ${value.stream}`);
  if (kind === "http") return h("div", { class: "log dim" }, `${who}: ${value.request} → ${value.answer?.Ok?.status ?? (value.answer ? "failed" : "not awaited")}`);
  return h("div", { class: "log dim" }, `${who}: ${JSON.stringify(event)}`);
}

/** The outcome of a step: its facts, and what only the reward sees. */
function outcomeBlock(branch) {
  const { outcome, fault } = branch;
  const facts = Object.entries(outcome?.facts ?? {}).filter(([, value]) => value !== false && value !== null);
  return [
    outcome && h("div", { class: "facts" }, facts.map(([name, value]) => h("span", { class: "fact" }, value === true ? name : `${name} = ${JSON.stringify(value)}`)), outcome.done && badge("neutral", outcome.truncated ? "ends, truncated" : "ends")),
    drawingBlock(branch.drawing, "the state after this step"),
    outcome && outcome.evidence && outcome.evidence !== "{}" && outcome.evidence !== "null" && h("details", { class: "evidence" }, h("summary", {}, "what the reward sees"), h("pre", {}, pretty(outcome.evidence))),
    faultBlock(fault),
  ];
}

/** A drawing of the state. As an image, an SVG document runs no scripts and loads nothing. */
export function drawingBlock(drawing, title) {
  const image = () => h("img", { class: "drawing", alt: title, src: `data:image/svg+xml,${encodeURIComponent(drawing)}` });
  return drawing && h("figure", {}, image(), h("figcaption", { class: "dim" }, title));
}

export function faultBlock(fault) {
  return fault && h("div", { class: "error" }, `${fault.agent ? `${fault.agent}, ` : ""}${fault.stage}: ${fault.cause}`);
}

/** All that happened in one branch of a node visit. */
export function branchBlocks(context, visit, branch) {
  return [
    ...branch.turns.map((turn) => turnBlock(turn, branch, (call) => context.tokens(turn, visit, branch, call))),
    ...logBlocks(branch.logs).flat(),
    ...outcomeBlock(branch).filter(Boolean),
    branch.turns.length === 0 && branch.rewards.length > 0 ? h("div", {}, branch.rewards.map(rewardChip)) : "",
  ];
}
