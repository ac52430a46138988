// A run's episodes as a table: filtered, sorted, page by page.

import { ask, follow, followCurves, workflow } from "./api.js";
import { badge, h, notes, number, select } from "./dom.js";
import { every, link, setParameters } from "./navigation.js";

const PAGE = 100;
const COLUMNS = [
  ["step", "Episode"],
  ["task", "Task"],
  [null, "Agents"],
  ["end", "End"],
  ["reward", "Reward"],
  ["turns", "Turns"],
  ["tokens", "Tokens"],
];
const FILTERS = ["from", "to", "set", "task", "agent", "outcome", "text", "sort", "descending", "offset"];

export async function episodesPage({ element, parameters, signal }) {
  const run = parameters.get("run") ?? "";
  const query = Object.fromEntries(FILTERS.map((name) => [name, parameters.get(name) ?? ""]));
  query.sort ||= "step";
  if (!parameters.has("descending") && query.sort === "step") query.descending = "1";
  const { agents } = await workflow(run, signal);
  const state = { run, query, signal, request: 0 };
  state.body = h("tbody", {});
  state.status = h("div", { class: "status", role: "status" });
  state.problems = h("div", {});
  state.pager = h("div", { class: "pager" });
  state.head = h("thead", {});
  element.replaceChildren(
    filters(state, agents),
    state.problems,
    h("div", { class: "scroll" }, h("table", { class: "episodes" }, state.head, state.body)),
    h("div", { class: "foot" }, state.status, state.pager),
    failures(run, signal),
  );
  await load(state);
  every(5, signal, async () => {
    if (Number(state.query.offset || 0) === 0 && state.query.sort === "step" && !state.loading) await load(state, true);
  });
}

function filters(state, agents) {
  const { query } = state;
  let timer = null;
  const set = (name, value) => {
    query[name] = value;
    query.offset = "";
    setParameters({ [name]: value, offset: "" });
    clearTimeout(timer);
    timer = setTimeout(() => load(state), 250);
  };
  const input = (name, label, type, placeholder, search) =>
    h("label", { class: type === "number" ? "field small" : "field grow" }, h("span", {}, label), h("input", { type, placeholder, value: query[name], min: type === "number" ? "0" : null, "data-search": search ? "" : null, oninput: (e) => set(name, e.target.value) }));
  const sets = [...new Set(followCurves(state.run, "metrics").lines.filter((line) => line.kind === "evaluation").map((line) => line.name))];
  const setField = h("span", {});
  const drawSets = (names) => setField.replaceChildren(select("Episodes of", [["", "all"], ["train", "training"], ...names.map((name) => [name, name])], query.set, (value) => set("set", value)));
  drawSets(sets);
  if (!sets.length) {
    followCurves(state.run, "metrics").update(state.signal).then(() => {
      drawSets([...new Set(followCurves(state.run, "metrics").lines.filter((line) => line.kind === "evaluation").map((line) => line.name))]);
    }).catch(() => {});
  }
  return h(
    "div",
    { class: "controls" },
    input("text", "Search", "search", "in tasks, completions, actions, failures", true),
    setField,
    select("End", [["", "any"], ["solved", "solved"], ["unsolved", "not solved"], ["truncated", "truncated"], ["failed", "failed"]], query.outcome, (value) => set("outcome", value)),
    agents.length > 1 && select("Agent", [["", "any"], ...agents.map((agent) => [agent, agent])], query.agent, (value) => set("agent", value)),
    input("task", "Task", "search", "id"),
    input("from", "From step", "number", ""),
    input("to", "To step", "number", ""),
  );
}

/** Loads the page. Files that the server has not read yet take several requests. */
async function load(state, quiet = false) {
  const request = ++state.request;
  state.loading = true;
  try {
    for (;;) {
      const page = await ask("episodes", { ...state.query, run: state.run, descending: state.query.descending === "1", limit: PAGE }, state.signal);
      if (request !== state.request) return;
      if (!quiet || JSON.stringify(page) !== state.shown) draw(state, page);
      state.shown = JSON.stringify(page);
      if (!page.unread) break;
    }
  } catch (error) {
    if (error.name === "AbortError" || request !== state.request) return;
    state.problems.replaceChildren(h("p", { class: "error", role: "alert" }, error.message));
  } finally {
    if (request === state.request) state.loading = false;
  }
}

function draw(state, page) {
  const { query } = state;
  const focused = document.activeElement?.closest?.("[data-row]")?.dataset.row;
  const sort = (column) => {
    const descending = query.sort === column ? query.descending !== "1" : !["task", "end"].includes(column);
    Object.assign(query, { sort: column, descending: descending ? "1" : "0", offset: "" });
    setParameters({ sort: column, descending: query.descending, offset: "" });
    load(state);
  };
  state.head.replaceChildren(h("tr", {}, COLUMNS.map(([column, text]) => {
    const on = column && query.sort === column;
    const arrow = on ? (query.descending === "1" ? " ↓" : " ↑") : "";
    const content = column ? h("button", { class: "sort", onclick: () => sort(column) }, text + arrow) : text;
    return h("th", { class: ["reward", "turns", "tokens"].includes(column) ? "number" : "", "aria-sort": on ? (query.descending === "1" ? "descending" : "ascending") : null }, content);
  })));
  state.body.replaceChildren(...page.rows.map((row) => line(state, row)));
  if (!page.rows.length && !page.unread) state.body.replaceChildren(h("tr", {}, h("td", { colspan: String(COLUMNS.length), class: "empty" }, "No episode matches.")));
  if (focused) state.body.querySelector(`[data-row="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  state.problems.replaceChildren(notes(page.problems) ?? "");
  const offset = Number(query.offset || 0);
  const range = page.rows.length ? `${number(offset + 1)} to ${number(offset + page.rows.length)}` : "0";
  const total = page.total === null ? (page.more ? " of more" : "") : ` of ${number(page.total)}`;
  state.status.replaceChildren(page.unread ? `reading: ${page.unread} files left …` : `episodes ${range}${total}`);
  const turn = (change) => {
    query.offset = String(Math.max(0, offset + change) || "");
    setParameters({ offset: query.offset });
    load(state).then(() => window.scrollTo(0, 0));
  };
  state.pager.replaceChildren(
    h("button", { disabled: offset === 0, onclick: () => turn(-PAGE), "data-previous": "" }, "‹ previous"),
    h("button", { disabled: !page.more, onclick: () => turn(PAGE), "data-next": "" }, "next ›"),
  );
}

/** The end of an episode as a badge. */
export function ending(row) {
  if (row.failure) return badge("failed", "failed");
  if (row.success) return badge("solved", "solved");
  return badge("unsolved", row.truncated ? "truncated" : "not solved");
}

function line(state, row) {
  const part = state.query.agent ? row.agents.find((agent) => agent.name === state.query.agent) : null;
  const target = link("episode", { run: state.run, episode: row.episode });
  return h(
    "tr",
    { "data-row": row.episode, tabindex: "-1", onclick: (event) => event.target.closest("a") || (location.hash = target) },
    h("td", {}, h("a", { href: target }, row.episode.replace(/#0$/, "")), row.tree && h("span", { class: "dim", title: "sampled as a tree" }, " tree")),
    h("td", { class: "task" }, row.task_id, row.scenario && h("span", { class: "dim" }, ` ${row.scenario}`)),
    h("td", { class: "dim" }, row.agents.map((agent) => `${agent.name}${agent.completions > 1 ? ` ×${agent.completions}` : ""}`).join(", ")),
    h("td", {}, ending(row), row.failed_candidates > 0 && h("span", { class: "dim" }, ` ${row.failed_candidates} candidates failed`), row.failure && h("div", { class: "cause" }, row.failure)),
    h("td", { class: "number" }, number(part ? part.reward : row.reward)),
    h("td", { class: "number" }, number(row.turns)),
    h("td", { class: "number" }, number(part ? part.tokens : row.tokens)),
  );
}

/** Episodes that failed, with their causes, if there are any. */
function failures(run, signal) {
  const section = h("section", {});
  const log = follow(run, "failures");
  log.update(signal).then(() => {
    if (!log.lines.length) return;
    const causes = new Map();
    for (const failure of log.lines) {
      const cause = String(failure.cause ?? failure.failure ?? JSON.stringify(failure)).split("\n")[0];
      causes.set(cause, (causes.get(cause) ?? 0) + 1);
    }
    const rows = [...causes].sort(([, a], [, b]) => b - a).slice(0, 20);
    section.replaceChildren(h("h2", {}, `Failures: ${number(log.lines.length)}`), h("table", { class: "grid" }, rows.map(([cause, count]) => h("tr", {}, h("td", { class: "number" }, number(count)), h("td", {}, cause)))));
  }).catch(() => {});
  return section;
}
