// A sampled tree: at each node visit the K candidates with their rewards, and the one that the episode continued
// from.

import { branchBlocks, drawingBlock, lineDifference, promptBlock } from "./conversation.js";
import { h, number, s } from "./dom.js";

// The layout needs no library: node visits are columns in order, candidates are rows, and all boxes have one size.
const BOX = { width: 132, height: 46, column: 190, row: 58 };
const TOP = 34;

export function treeView(context) {
  const { visits } = context.episode;
  const columns = visits.filter((visit) => visit.branches.length);
  const rows = Math.max(1, ...columns.map((visit) => visit.branches.length));
  const width = 90 + columns.length * BOX.column;
  const height = TOP + rows * BOX.row + 8;
  const root = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "tree" });
  const detail = h("div", { class: "card treedetail" }, h("p", { class: "dim" }, "Choose a candidate."));
  let selected = null;
  const middle = TOP + ((rows - 1) * BOX.row) / 2;
  let from = { x: 58, y: middle + BOX.height / 2 };
  root.append(s("rect", { class: "box start", x: 8, y: middle + 8, width: 50, height: 30, rx: 15 }), s("text", { x: 33, y: middle + 27, "text-anchor": "middle" }, "task"));
  columns.forEach((visit, column) => {
    const x = 90 + column * BOX.column;
    const agents = [...new Set(visit.prompts.map((prompt) => prompt.agent))].join(", ");
    root.append(s("text", { class: "head", x: x + BOX.width / 2, y: 18, "text-anchor": "middle" }, `turn ${visit.node_visit + 1} · ${agents}`));
    const top = TOP + ((rows - visit.branches.length) * BOX.row) / 2;
    let next = null;
    visit.branches.forEach((branch, index) => {
      const y = top + index * BOX.row;
      const chosen = branch.branch === visit.chosen && !branch.fault;
      const end = y + BOX.height / 2;
      root.append(s("path", { class: chosen ? "edge chosen" : "edge", d: `M${from.x} ${from.y}C${from.x + 22} ${from.y} ${x - 24} ${end} ${x} ${end}` }));
      if (chosen) next = { x: x + BOX.width, y: end };
      const box = candidate(branch, { x, y, chosen });
      box.addEventListener("click", () => choose(visit, branch, box));
      box.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          event.stopPropagation();
          choose(visit, branch, box);
        }
      });
      root.append(box);
    });
    from = next ?? from;
  });
  const choose = (visit, branch, box) => {
    selected?.classList.remove("selected");
    selected = box;
    box.classList.add("selected");
    detail.replaceChildren(...details(context, visit, branch));
  };
  const recorded = visits.some((visit) => visit.branches.some((branch) => branch.rewards.some((one) => one.advantage !== null)));
  const second = recorded ? "the advantage that it was trained with" : "its difference from the mean of the siblings, from which group-relative objectives compute the advantage";
  const legend = h("p", { class: "dim" }, `Each box: reward, and ${second}. The line leads through the candidates that the episode continued from.`);
  const view = h("div", {}, h("div", { class: "scroll card" }, root), legend, detail);
  root.querySelector(".candidate.chosen")?.dispatchEvent(new Event("click"));
  return view;
}

function candidate(branch, { x, y, chosen }) {
  const reward = branch.rewards.reduce((sum, one) => sum + one.reward, 0) / Math.max(1, branch.rewards.length);
  const advantage = branch.rewards[0]?.advantage ?? null;
  const relative = advantage ?? branch.rewards[0]?.relative;
  const kind = branch.fault ? "fault" : reward > 0 ? "good" : reward < 0 ? "bad" : "zero";
  const sign = relative > 0 ? "+" : relative < 0 ? "−" : "±";
  const text = branch.fault ? "failed" : branch.rewards.length ? `${number(reward)}   ${advantage === null ? "" : "A "}${sign}${number(Math.abs(relative ?? 0))}` : "not scored";
  const tokens = branch.turns.reduce((sum, turn) => sum + turn.tokens, 0);
  return s(
    "g",
    { class: `candidate ${kind} ${chosen ? "chosen" : ""}`, tabindex: "0", role: "button", "data-row": `${x} ${y}` },
    s("title", {}, branch.turns.map((turn) => turn.text.slice(0, 300)).join("\n")),
    s("rect", { class: "box", x, y, width: BOX.width, height: BOX.height, rx: 8 }),
    s("text", { class: "value", x: x + 10, y: y + 19 }, text),
    s("text", { class: "tick", x: x + 10, y: y + 36 }, `${branch.branch + 1}${branch.retry ? `, attempt ${branch.retry + 1}` : ""} · ${number(tokens)} tokens`),
  );
}

/** The drawing of the state that a turn began with, if there is one. */
function drawingBefore(visits, visit) {
  if (visit.drawing) return visit.drawing;
  const before = visits.findLast((one) => one.node_visit < visit.node_visit);
  return before?.branches.find((one) => one.branch === (before.chosen ?? one.branch) && !one.fault)?.drawing;
}

function details(context, visit, branch) {
  const chosen = visit.branches.find((one) => one.branch === visit.chosen && !one.fault);
  const text = (one) => one.turns.map((turn) => turn.text).join("\n");
  const earlier = context.episode.visits.filter((one) => one.node_visit < visit.node_visit).flatMap((one) => one.prompts);
  return [
    h("h2", {}, `Turn ${visit.node_visit + 1}, candidate ${branch.branch + 1}`),
    branch.drawing && drawingBlock(drawingBefore(context.episode.visits, visit), "the state before this turn"),
    ...visit.prompts.map((prompt) => promptBlock(prompt, earlier.findLast((one) => one.agent === prompt.agent))),
    ...branchBlocks(context, visit, branch),
    chosen && chosen !== branch && h("details", {}, h("summary", {}, "difference from the candidate that the episode continued from"), lineDifference(text(chosen), text(branch))),
  ].filter(Boolean);
}
