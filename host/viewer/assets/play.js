// Playing an episode: from a task, or on from a turn of a recorded episode, shown while it is played.

import { ask, post } from "./api.js";
import { badge, h, notes, number, select } from "./dom.js";
import { conversation } from "./episode.js";
import { link } from "./navigation.js";
import { ending } from "./episodes.js";

export async function playPage({ element, parameters, signal }) {
  const run = parameters.get("run") ?? "";
  const name = parameters.get("episode");
  const { checkpoints } = await ask("workflow", { run }, signal);
  if (!checkpoints) throw new Error("This viewer plays no episodes: it does not listen on a loopback address. Start `pl-host view` with --play.");
  const episode = name ? await ask("episode", { run, episode: name }, signal) : null;
  const visit = episode?.visits.find((one) => String(one.node_visit) === parameters.get("visit")) ?? null;
  const state = { run, episode, visit, checkpoint: "", draw: 1, task: episode && !visit ? episode.task : "", prompts: new Map(), signal };
  state.output = h("div", { class: "conversation", "aria-live": "polite" });
  state.start = h("button", { class: "primary", onclick: () => start(state) }, "Play");
  state.cancel = h("button", { disabled: true, onclick: () => post("play/cancel", {}).catch(() => {}) }, "Cancel");
  state.status = h("span", { class: "dim", role: "status" });
  element.replaceChildren(
    h("div", { class: "title" }, h("h1", {}, "Play"), episode && visit && h("span", { class: "dim" }, "on from ", h("a", { href: link("episode", { run, episode: name }) }, `${episode.episode.replace(/#0$/, "")}, turn ${visit.node_visit + 1}`))),
    h(
      "section",
      { class: "card form" },
      h("div", { class: "controls" },
        select("Weights", [["", checkpoints.length ? "newest checkpoint" : "no checkpoint yet"], ...checkpoints.map((one) => [one, one])], "", (value) => (state.checkpoint = value)),
        visit && h("label", { class: "field small", title: "0 repeats the random numbers of the recording; others draw anew" }, h("span", {}, "Draw"), h("input", { type: "number", min: "0", value: "1", oninput: (e) => (state.draw = Number(e.target.value)) })),
      ),
      visit ? promptFields(state) : taskField(state),
      h("div", { class: "controls" }, state.start, state.cancel, state.status),
    ),
    state.output,
  );
}

function taskField(state) {
  return h("label", { class: "field" }, h("span", {}, "Task: a record as JSON, or a question in words. Empty for the environment's first task."), h("textarea", { rows: "4", "data-search": "", spellcheck: "false", oninput: (e) => (state.task = e.target.value) }, state.task));
}

function before(turns) {
  if (turns === 0) return "";
  return `${turns === 1 ? "The turn before is" : `The ${number(turns)} turns before are`} played again as recorded. `;
}

function promptFields(state) {
  const known = state.visit.prompts.filter((prompt) => prompt.text !== null);
  return [
    h("p", { class: "dim" }, `${before(state.visit.node_visit)}From this turn on, the model writes. Change its prompt, with the markers of the chat template, or leave it.`),
    known.map((prompt) => h("label", { class: "field" }, h("span", {}, `Prompt of ${prompt.agent}`), h("textarea", {
      rows: "12",
      spellcheck: "false",
      oninput: (e) => {
        if (e.target.value === prompt.text) state.prompts.delete(prompt.agent);
        else state.prompts.set(prompt.agent, e.target.value);
      },
    }, prompt.text))),
    known.length < state.visit.prompts.length && notes(["Prompts can't be shown, and so not be changed: the tokenizer is not on this machine."]),
  ];
}

async function start(state) {
  const { run, episode, visit, signal } = state;
  const begin = visit
    ? { turn: { episode: episode.episode, node_visit: visit.node_visit, prompts: Object.fromEntries(state.prompts), draw: state.draw } }
    : { task: state.task.trim() || null };
  state.start.disabled = true;
  state.output.replaceChildren();
  state.turns = new Map();
  try {
    const { id } = await post("play", { run, checkpoint: state.checkpoint || null, start: begin }, signal);
    state.cancel.disabled = false;
    await follow(state, id);
  } catch (error) {
    if (error.name === "AbortError") return;
    state.status.replaceChildren();
    state.output.append(h("p", { class: "error", role: "alert" }, error.message));
  } finally {
    state.start.disabled = false;
    state.cancel.disabled = true;
  }
}

/** Shows the events of an episode until it is over. */
async function follow(state, id) {
  for (let after = 0; ; ) {
    const progress = await ask("play", { id, after }, state.signal);
    after = progress.next;
    for (const event of progress.events) show(state, event);
    if (!progress.over) continue;
    if (progress.failure) {
      state.status.replaceChildren(progress.failure === "cancelled" ? "cancelled" : "");
      if (progress.failure !== "cancelled") state.output.append(h("p", { class: "error", role: "alert" }, progress.failure));
      return;
    }
    const { episode } = progress;
    state.status.replaceChildren(ending(episode), ` after ${number(episode.visits.length)} turns and ${number(episode.tokens)} tokens`);
    state.output.replaceChildren(
      notes(episode.notes) ?? "",
      conversation({ run: state.run, episode, tokens: () => null, play: () => null }),
      episode.failure ? h("div", { class: "error" }, episode.failure) : "",
    );
    return;
  }
}

function show(state, event) {
  if (event.kind === "loading") state.status.replaceChildren("loading the models …");
  if (event.kind === "prompted") {
    state.status.replaceChildren("playing …");
    const text = h("div", { class: "text" });
    state.turns.set(event.turn, text);
    state.output.append(h(
      "section",
      { class: "card" },
      h("div", { class: "visithead" }, h("b", {}, event.agent), h("span", { class: "dim" }, `visit ${event.visit + 1}`)),
      h("details", { class: "prompt" }, h("summary", {}, event.messages.length === 1 ? "sees a message" : `sees ${number(event.messages.length)} messages`), event.messages.map((message) => h("div", { class: `message ${message.role}` }, h("div", { class: "role" }, message.role), h("div", { class: "text" }, message.text)))),
      h("div", { class: "turn" }, text),
    ));
  }
  if (event.kind === "text") state.turns.get(event.turn)?.append(event.text);
  if (event.kind === "acted") state.output.append(h("div", { class: "action" }, h("b", {}, event.agent), h("span", { class: "dim" }, " does "), h("code", {}, event.action), " ", badge(event.success ? "solved" : "neutral", `earns ${number(event.reward)}`)));
}
