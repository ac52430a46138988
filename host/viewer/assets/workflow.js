// The workflow of a run: its graph, its settings, what it was started with, and its text.

import { workflow } from "./api.js";
import { h, notes, s } from "./dom.js";

export async function workflowPage({ element, parameters, signal }) {
  const run = parameters.get("run") ?? "";
  const view = await workflow(run, signal);
  const settings = Object.entries(view.settings);
  const table = h("tbody", {});
  const draw = (wanted) => {
    const found = settings.filter(([path, value]) => `${path} ${JSON.stringify(value)}`.toLowerCase().includes(wanted.toLowerCase()));
    table.replaceChildren(...found.map(([path, value]) => row(path, value)));
  };
  draw("");
  element.replaceChildren(
    h("h1", {}, view.graph?.workflow ?? run),
    notes(view.notes) ?? "",
    view.graph ? h("div", { class: "scroll card" }, drawing(view.graph)) : "",
    view.graph ? policies(view.graph) : "",
    h("details", { class: "card", open: true }, h("summary", {}, "Text"), h("pre", { class: "source" }, view.text ?? "")),
    h("details", { class: "card" }, h("summary", {}, "Started with"), h("table", { class: "grid" }, h("tbody", {}, lockRows(view.lock ?? {})))),
    h("section", { class: "card" }, h("h2", {}, "Settings"), h("input", { type: "search", placeholder: "filter, such as train.", "data-search": "", "aria-label": "Filter settings", oninput: (e) => draw(e.target.value) }), h("div", { class: "scroll" }, h("table", { class: "grid" }, table))),
  );
}

function row(name, value) {
  return h("tr", {}, h("th", {}, name), h("td", {}, typeof value === "string" ? value : JSON.stringify(value)));
}

function lockRows(lock) {
  return Object.entries(lock).flatMap(([name, value]) => (value && typeof value === "object" ? Object.entries(value).map(([key, inner]) => row(`${name}: ${key}`, inner)) : [row(name, value)]));
}

function policies(graph) {
  const lora = (policy) => (policy.lora ? `LoRA, rank ${policy.lora.rank}` : "all weights");
  return h("div", { class: "scroll" }, h(
    "table",
    { class: "grid" },
    h("thead", {}, h("tr", {}, ["policy", "model", "adapter", "trained", "agents"].map((name) => h("th", {}, name)))),
    h("tbody", {}, graph.policies.map((policy) => {
      const agents = [...new Set(graph.nodes.flatMap((node) => node.agents ?? []).filter((agent) => agent.policy === policy.name).map((agent) => agent.name))];
      return h("tr", {}, [policy.name, policy.model, lora(policy), policy.trained ? "yes" : "no", agents.join(", ")].map((text) => h("td", {}, text ?? "")));
    })),
  ));
}

/** Draws the graph at the positions that the program computed. */
function drawing(graph) {
  const { width, height, nodes, links } = graph.drawing;
  const colours = new Map(graph.policies.map((policy, index) => [policy.name, index]));
  const root = s("svg", { width: width + 24, height: height + 24, viewBox: `-12 -12 ${width + 24} ${height + 24}`, class: "graph", role: "img" });
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
