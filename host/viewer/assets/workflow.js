// The workflow of a run: its graph, its settings, what it was started with, and its text.

import { ask, follow, workflow } from "./api.js";
import { h, notes, number, percent, s } from "./dom.js";
import { every } from "./navigation.js";
import { timeline } from "./timeline.js";

export async function workflowPage({ element, parameters, signal }) {
  const run = parameters.get("run") ?? "";
  const view = await workflow(run, signal);
  const settings = Object.entries(view.settings);
  const docs = await ask("settings", {}, signal).catch(() => []);
  const table = h("tbody", {});
  const clock = h("div", {});
  const drawClock = async () => {
    await follow(run, "timings").update(signal);
    clock.replaceChildren(timeline(follow(run, "timings").lines) ?? "");
  };
  const draw = (wanted) => {
    const found = settings.filter(([path, value]) => `${path} ${JSON.stringify(value)}`.toLowerCase().includes(wanted.toLowerCase()));
    table.replaceChildren(...found.map(([path, value]) => row(path, value, docOf(docs, path))));
  };
  draw("");
  element.replaceChildren(
    h("h1", {}, view.graph?.workflow ?? run),
    notes(view.notes) ?? "",
    ...graphs(view.graph).flatMap((graph) => [
      graph.scenario ? h("h2", {}, `Scenario ${graph.scenario}`) : "",
      h("div", { class: "scroll card" }, drawing(graph)),
    ]),
    view.graph ? policies(view.graph) : "",
    designs(view.designs),
    clock,
    view.plan ? plan(view.plan) : "",
    h("details", { class: "card", open: true }, h("summary", {}, "Text"), h("pre", { class: "source" }, view.text ?? "")),
    h("details", { class: "card" }, h("summary", {}, "Started with"), h("table", { class: "grid" }, h("tbody", {}, lockRows(view.lock ?? {})))),
    h("section", { class: "card" }, h("h2", {}, "Settings"), h("input", { type: "search", placeholder: "filter, such as train.", "data-search": "", "aria-label": "Filter settings", oninput: (e) => draw(e.target.value) }), h("p", { class: "dim small" }, "Open a setting to read what it does."), h("div", { class: "scroll" }, h("table", { class: "grid" }, table))),
  );
  await drawClock();
  every(5, signal, drawClock);
}

function row(name, value, doc) {
  const shown = typeof value === "string" ? value : JSON.stringify(value);
  return h("tr", {}, h("th", { scope: "row" }, doc ? h("details", { class: "setting" }, h("summary", {}, name), h("p", {}, doc)) : name), h("td", {}, shown));
}

/** Parts of paths in a stored workflow, and the blocks of the language that their settings are from. */
const BLOCKS = { agents: "agent", policies: "policy", models: "model", evaluations: "evaluate", environment: "environment", turns: "turns", reward: "reward", servers: "server", corpora: "corpus", plugins: "plugin", training: "train", objective: "train", optimizer: "train", train: "train", lora: "lora", critic: "critic", sandbox: "sandbox", docker: "sandbox", inference: "inference", grant: "grant" };

/** The description of a setting: of the innermost block on its path that has such a key. */
function docOf(docs, path) {
  const parts = path.split(".");
  const key = parts.at(-1);
  const blocks = parts.map((part) => BLOCKS[part]).filter(Boolean).reverse();
  for (const block of blocks) {
    const found = docs.find((doc) => doc.block === block && doc.key === key);
    if (found) return found.doc;
  }
  return undefined;
}

/** What the run was expected to use when it was started. */
function plan(view) {
  const bytes = (value) => (value >= 1 << 30 ? `${number(value / 2 ** 30)} GiB` : `${number(value / 2 ** 20)} MiB`);
  const rows = [];
  const add = (name, value) => value !== null && value !== undefined && rows.push([name, value]);
  const { training, memory, episode } = view;
  add("device", view.device);
  add("layout", `${view.layout}: ${view.layout_meaning}`);
  for (const policy of view.policies ?? []) add(`policy ${policy.name}`, policy.trained_parameters === null ? "size unknown" : `${number(policy.trained_parameters)} trained parameters`);
  if (memory) add("memory", `${bytes(memory.total)}: ${memory.parts.map((part) => `${part.part} ${bytes(part.bytes)}`).join(", ")}`);
  else add("memory", view.memory_unknown);
  const bounds = (object) => Object.entries(object ?? {}).filter(([, value]) => typeof value === "number").map(([name, value]) => `${name.replaceAll("_", " ")} ${number(value)}`).join(", ");
  add("an episode, at most", bounds(episode));
  if (training) {
    add("a step, at most", bounds(training.step));
    add("all steps, at most", `${number(training.steps)} steps, ${number(training.completions)} completions, ${number(training.tokens)} sampled tokens`);
    add("evaluations, at most", training.evaluation_tokens ? `${number(training.evaluation_tokens)} sampled tokens` : null);
    add("checkpoints", `${number(training.checkpoints.kept)} kept${training.checkpoints.bytes_each ? `, ${bytes(training.checkpoints.bytes_each)} each` : ""}`);
  }
  return h("details", { class: "card" }, h("summary", {}, "Plan"), h("div", { class: "scroll" }, h("table", { class: "grid" }, h("tbody", {}, rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, String(value))))))));
}

function lockRows(lock) {
  return Object.entries(lock).flatMap(([name, value]) => (value && typeof value === "object" ? Object.entries(value).map(([key, inner]) => row(`${name}: ${key}`, inner)) : [row(name, value)]));
}

/** The graphs of all scenarios: one in a workflow without `scenario` blocks. */
function graphs(graph) {
  return graph ? (graph.scenarios ?? [graph]) : [];
}

function policies(graph) {
  const lora = (policy) => (policy.lora ? `LoRA, rank ${policy.lora.rank}` : "all weights");
  return h("div", { class: "scroll" }, h(
    "table",
    { class: "grid" },
    h("thead", {}, h("tr", {}, ["policy", "model", "adapter", "trained", "agents"].map((name) => h("th", {}, name)))),
    h("tbody", {}, graph.policies.map((policy) => {
      const agents = [...new Set(graphs(graph).flatMap((one) => one.nodes).flatMap((node) => node.agents ?? []).filter((agent) => agent.policy === policy.name).map((agent) => agent.name))];
      return h("tr", {}, [policy.name, policy.model, lora(policy), policy.trained ? "yes" : "no", agents.join(", ")].map((text) => h("td", {}, text ?? "")));
    })),
  ));
}

/** The best designs of a run with a designer. */
function designs(list) {
  if (!list?.length) return "";
  const result = ({ kind, success, tokens, bound, mistakes }) => {
    if (kind === "played") return `solved ${percent(success)}, ${number(tokens)} tokens an episode`;
    return kind === "costly" ? `not played: up to ${number(bound)} tokens an episode` : `wrong: ${mistakes.join("; ")}`;
  };
  const one = (design, index) => h(
    "details",
    { open: index === 0 },
    h("summary", {}, h("code", {}, design.hash), ` ${result(design.outcome)}`),
    design.graph ? h("div", { class: "scroll" }, drawing(design.graph)) : "",
    h("pre", { class: "source" }, design.design),
  );
  return h("section", { class: "card", "data-designs": "" }, h("h2", {}, "Best designs"), list.map(one));
}

/** Draws the graph at the positions that the program computed. */
export function drawing(graph) {
  const { width, height, nodes, links } = graph.drawing;
  const colours = new Map(graph.policies.map((policy, index) => [policy.name, index]));
  const root = s("svg", { width: width + 24, height: height + 24, viewBox: `-12 -12 ${width + 24} ${height + 24}`, class: "graph", role: "img", "aria-label": "Graph of turns" });
  root.append(s("defs", {}, s("marker", { id: "arrow", viewBox: "0 0 10 10", refX: 8, refY: 5, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, s("path", { class: "arrowhead", d: "M0 0L10 5L0 10z" }))));
  for (const one of links) {
    root.append(s("path", { class: "edge", d: one.path, "marker-end": "url(#arrow)" }));
    if (one.label) {
      const { x, y, width: w, height: tall } = one.label;
      root.append(s("rect", { class: "label", x, y, width: w, height: tall, rx: 4 }));
      one.lines.forEach((line, index) => root.append(s("text", { class: "tick", x: x + w / 2, y: y + ((index + 0.75) * tall) / one.lines.length, "text-anchor": "middle" }, line)));
    }
  }
  for (const place of nodes) {
    const node = graph.nodes.find((one) => one.id === place.id);
    const agents = node?.agents ?? [];
    const kind = agents.length ? `box c${(colours.get(agents[0].policy) ?? 0) % 8}` : "box start";
    root.append(s("rect", { class: kind, x: place.x, y: place.y, width: place.width, height: place.height, rx: agents.length ? 8 : place.height / 2 }));
    const lines = agents.length ? agents.flatMap((agent) => [[agent.name, "name"], [agent.policy, "tick"]]) : [[node?.kind ?? place.id, "name"]];
    lines.forEach(([text, name], index) => root.append(s("text", { class: name, x: place.x + place.width / 2, y: place.y + ((index + 0.5) * place.height) / lines.length + 4, "text-anchor": "middle" }, text)));
  }
  return root;
}
