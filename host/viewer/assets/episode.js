// One episode: as a conversation, and as a tree if it was sampled as one.

import { ask, workflow } from "./api.js";
import { branchBlocks, drawingBlock, faultBlock, logBlocks, promptBlock } from "./conversation.js";
import { ending } from "./episodes.js";
import { h, notes, number, pretty } from "./dom.js";
import { link, setParameters } from "./navigation.js";
import { treeView } from "./tree.js";
import { drawing } from "./workflow.js";

export async function episodePage({ element, parameters, signal }) {
  const run = parameters.get("run") ?? "";
  const episode = await ask("episode", { run, episode: parameters.get("episode") ?? "" }, signal);
  const view = parameters.get("view") ?? "conversation";
  const { checkpoints } = await workflow(run, signal);
  const context = {
    run,
    episode,
    // The address has no number of the attempt: it leads to the last one at the candidate.
    tokens: (turn, visit, branch, call) => {
      const isRepeated = visit.branches.some((other) => other.branch === branch.branch && other.retry > branch.retry);
      return isRepeated ? null : link("tokens", { run, episode: episode.episode, agent: turn.agent, visit: visit.node_visit, branch: branch.branch, call });
    },
    // Where episodes are played, a turn that a model wrote can be played again.
    play: (visit) => (checkpoints && visit.prompts.length ? link("play", { run, episode: episode.episode, visit: visit.node_visit }) : null),
  };
  const content = h("div", {});
  const show = (name) => {
    content.replaceChildren(name === "tree" ? treeView(context) : conversation(context));
    for (const button of element.querySelectorAll(".views button")) button.className = button.dataset.view === name ? "on" : "";
    setParameters({ view: name === "conversation" ? "" : name });
  };
  const move = (name, text, mark) => h("a", { class: name ? "button" : "button off", href: name ? link("episode", { run, episode: name, view: parameters.get("view") }) : null, [mark]: "" }, text);
  element.replaceChildren(
    h(
      "div",
      { class: "title" },
      h("h1", {}, episode.episode.replace(/#0$/, "")),
      ending(episode),
      h("span", { class: "dim" }, `${episode.set === "train" ? `training step ${number(episode.step)}` : `${episode.set} after step ${number(episode.step)}`}${episode.scenario ? ` · scenario ${episode.scenario}` : ""} · task ${episode.task_id} · ${episode.visits.length === 1 ? "a turn" : `${number(episode.visits.length)} turns`} · ${number(episode.tokens)} tokens`),
      h("span", { class: "space" }),
      episode.tree && h("span", { class: "views" }, ["conversation", "tree"].map((name) => h("button", { "data-view": name, onclick: () => show(name) }, name))),
      move(episode.previous, "‹", "data-previous"),
      move(episode.next, "›", "data-next"),
    ),
    notes(episode.notes) ?? "",
    taskBlock(episode.task),
    episode.design ? h("section", { class: "card task" }, h("div", { class: "role" }, "design"), episode.design_graph ? h("div", { class: "scroll" }, drawing(episode.design_graph)) : "", h("pre", {}, episode.design)) : "",
    content,
    episode.failure ? h("div", { class: "error" }, episode.failure) : "",
    checkpoints && h("p", {}, h("a", { href: link("play", { run, episode: episode.episode }) }, "Play this task")),
    h("p", { class: "dim" }, "Replay: ", h("code", {}, `pl-host replay ${episode.folder} ${episode.episode}`)),
  );
  show(episode.tree ? view : "conversation");
}

function taskBlock(task) {
  let fields;
  try {
    fields = JSON.parse(task);
  } catch {
    fields = null;
  }
  if (!fields || typeof fields !== "object" || Array.isArray(fields)) return h("section", { class: "card task" }, h("div", { class: "role" }, "task"), h("pre", {}, pretty(task)));
  const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  return h("section", { class: "card task" }, h("div", { class: "role" }, "task"), h("dl", {}, Object.entries(fields).map(([name, value]) => [h("dt", {}, name), h("dd", {}, text(value))])));
}

export function conversation(context) {
  const last = new Map();
  return h("div", { class: "conversation" }, context.episode.visits.map((visit) => {
    const before = new Map(last);
    for (const prompt of visit.prompts) last.set(prompt.agent, prompt);
    return visitCard(context, visit, before);
  }));
}

/** A node visit: its prompts, then one of its branches, at first the one that the episode continued from. */
function visitCard(context, visit, previous = new Map()) {
  const body = h("div", {});
  const chosen = Math.max(0, visit.branches.findIndex((branch) => branch.branch === visit.chosen && !branch.fault));
  const tabs = visit.branches.length > 1 ? h("div", { class: "branches" }) : null;
  const show = (index) => {
    const branch = visit.branches[index];
    if (!branch) return;
    body.replaceChildren(...branchBlocks(context, visit, branch));
    tabs?.replaceChildren(...visit.branches.map((one, at) => h(
      "button",
      { class: `branch ${at === index ? "on" : ""}`, onclick: () => show(at), title: one.branch === visit.chosen ? "the episode continued from this one" : "a sibling" },
      `${one.branch === visit.chosen && !one.fault ? "★ " : ""}${one.branch + 1}${one.retry ? `, attempt ${one.retry + 1}` : ""}`,
      h("span", { class: "dim" }, one.fault ? " failed" : one.rewards.map((reward) => ` ${number(reward.reward)}`).join("")),
    )));
  };
  show(chosen);
  const agents = [...new Set([...visit.prompts.map((prompt) => prompt.agent), ...visit.skipped])];
  return h(
    "section",
    { class: "card", "data-row": String(visit.node_visit), tabindex: "-1" },
    h("div", { class: "visithead" }, h("span", { class: "turnnumber" }, `turn ${visit.node_visit + 1}`), h("b", {}, agents.join(", ")), h("span", { class: "space" }), tabs, context.play(visit) && h("a", { href: context.play(visit), class: "small" }, "play from here")),
    drawingBlock(visit.drawing, "the state at the start"),
    visit.skipped.map((agent) => h("div", { class: "dim" }, `${agent} skips this turn`)),
    visit.prompts.map((prompt) => [visit.prompts.length > 1 && h("b", {}, prompt.agent), promptBlock(prompt, previous.get(prompt.agent))]),
    body,
    logBlocks(visit.logs),
    faultBlock(visit.fault),
  );
}
