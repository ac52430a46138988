// A completion token by token: the numbers of sampling and of the update, and why a token got its gradient.

import { ask } from "./api.js";
import { h, notes, number, percent, select } from "./dom.js";
import { address, go, link, setParameters } from "./navigation.js";

/** Colourings: the class of a token, and the legend. */
const COLOURINGS = {
  probability: {
    title: "probability when sampled",
    of: ({ token }) => (token.logprob === null ? "" : level(Math.exp(token.logprob), [0.01, 0.1, 0.5, 0.9], "p")),
    legend: [["p0", "< 1 %"], ["p1", "< 10 %"], ["p2", "< 50 %"], ["p3", "< 90 %"], ["p4", "≥ 90 %"]],
  },
  ratio: {
    title: "ratio, training to sampling",
    of: ({ ratio }) => (ratio === undefined ? "" : level(ratio, [0.8, 0.98, 1.02, 1.25], "r")),
    legend: [["r0", "< 0.8"], ["r1", "< 0.98"], ["r2", "about 1"], ["r3", "> 1.02"], ["r4", "> 1.25"]],
  },
  advantage: {
    title: "advantage",
    of: ({ advantage }) => (advantage === undefined ? "" : level(advantage, [-1, -1e-9, 1e-9, 1], "r")),
    legend: [["r0", "< −1"], ["r1", "negative"], ["r2", "0"], ["r3", "positive"], ["r4", "> 1"]],
  },
  entropy: {
    title: "entropy (nats)",
    of: ({ entropy }) => (entropy === undefined ? "" : level(-entropy, [-3, -2, -1, -0.2], "p")),
    legend: [["p0", "> 3"], ["p1", "> 2"], ["p2", "> 1"], ["p3", "> 0.2"], ["p4", "≤ 0.2"]],
  },
};

function level(value, bounds, prefix) {
  const index = bounds.findIndex((bound) => value < bound);
  return `${prefix}${index < 0 ? bounds.length : index}`;
}

const CLIPPED = ["no", "yes: outside of the range of ratios", "yes: at the bound for negative advantages"];

export async function tokensPage({ element, parameters, signal }) {
  const names = ["run", "episode", "agent", "visit", "branch", "call"];
  const position = Object.fromEntries(names.map((name) => [name, parameters.get(name) ?? (name === "visit" || name === "branch" ? "0" : "")]));
  const view = await ask("tokens", position, signal);
  const state = { position, view, signal, pass: Math.min(view.passes.length - 1, Number(parameters.get("pass") ?? 0)), colour: parameters.get("colour") ?? "probability", selected: null };
  if (!COLOURINGS[state.colour]) state.colour = "probability";
  state.detail = h("div", { class: "card tokendetail", "aria-live": "polite" }, h("p", { class: "dim" }, "Point at a token, or walk with j and k. Enter explains its gradient."));
  state.body = h("div", {});
  const { run, episode, agent, visit, branch } = position;
  element.replaceChildren(
    h("div", { class: "title" }, h("h1", {}, `Tokens of ${agent}`), h("a", { href: link("episode", { run, episode }) }, episode.replace(/#0$/, "")), h("span", { class: "dim" }, `turn ${Number(visit) + 1}, candidate ${Number(branch) + 1}${view.calls > 1 ? `, call ${view.call + 1}` : ""}`)),
    notes(view.notes) ?? "",
    summary(view),
    state.body,
    state.detail,
  );
  draw(state);
}

/** The numbers of a token in the chosen pass. */
function numbers(state, index) {
  const pass = state.view.passes[state.pass];
  return {
    token: state.view.tokens[index],
    pass,
    trained: pass?.logprobs?.[index],
    ratio: pass?.ratios?.[index],
    entropy: pass?.entropies?.[index],
    advantage: pass?.advantages[index],
    clipped: pass?.clipped?.[index] ?? 0,
    reference: pass?.reference_logprobs?.[index],
    weight: pass?.importance_weights?.[index],
  };
}

function draw(state) {
  const { view } = state;
  const colouring = COLOURINGS[state.colour];
  const change = (name, value) => {
    state[name] = value;
    setParameters({ [name]: value });
    draw(state);
  };
  const passes = view.passes.map((pass, index) => [String(index), `${pass.epoch + 1}, after ${number(pass.optimizer_steps)} optimiser steps`]);
  const calls = Array.from({ length: view.calls }, (_, call) => [String(call), `${call + 1} of ${view.calls}`]);
  // Another completion: its page.
  const openCall = (call) => go(link("tokens", { ...Object.fromEntries(address().parameters), call }));
  state.body.replaceChildren(
    h(
      "div",
      { class: "controls" },
      calls.length > 1 && select("Model call", calls, String(view.call), openCall),
      view.passes.length > 0 && select("Colour", Object.entries(COLOURINGS).map(([name, one]) => [name, one.title]), state.colour, (value) => change("colour", value)),
      passes.length > 1 && select("Pass of the update", passes, String(state.pass), (value) => change("pass", Number(value))),
      h("div", { class: "tokenscale dim" }, `${colouring.title}: `, colouring.legend.map(([kind, text]) => h("span", { class: `token ${kind}` }, text)), view.passes.length > 0 && h("span", { class: "token clipped" }, "clipped")),
    ),
    h("div", { class: "card tokenflow" }, view.tokens.map((token, index) => span(state, index, colouring))),
  );
}

function span(state, index, colouring) {
  const own = numbers(state, index);
  const show = () => {
    if (state.selected === index) return;
    state.selected = index;
    state.detail.replaceChildren(details(state, index));
  };
  const text = own.token.text === null ? ` ${own.token.id} ` : own.token.text || "∅";
  const visible = text.replace(/\n/g, "↵\n").replace(/\t/g, "⇥");
  const explained = (event) => {
    if (event.key && event.key !== "Enter") return;
    event.stopPropagation();
    show();
    explain(state, index);
  };
  return h("span", { class: `token ${colouring.of(own)} ${own.clipped ? "clipped" : ""}`, tabindex: "-1", "data-row": String(index), onmouseenter: show, onfocus: show, onclick: explained, onkeydown: explained }, visible);
}

function details(state, index) {
  const own = numbers(state, index);
  const { token } = own;
  const rows = [
    ["token", `${index + 1}: ${JSON.stringify(token.text ?? "")}, id ${token.id}`],
    ["log-prob when sampled", `${number(token.logprob)}${token.logprob === null ? "" : ` (${percent(Math.exp(token.logprob))})`}`],
    ["drawn from", token.support === null ? "the whole vocabulary" : `${number(token.support)} tokens`],
  ];
  if (own.pass) {
    rows.push(["advantage", own.pass.masked ? `${number(own.advantage)}, left out` : number(own.advantage)]);
    if (own.trained !== undefined) {
      rows.splice(2, 0, ["log-prob in training", `${number(own.trained)} (${percent(Math.exp(own.trained))})`], ["ratio", number(own.ratio)]);
      rows.push(["clipped", CLIPPED[own.clipped]], ["entropy", own.entropy === undefined ? "measured in the first pass" : `${number(own.entropy)} nats`]);
    } else rows.push(["in training", "not computed: no token of the completion has a gradient"]);
    if (own.reference !== undefined) rows.push(["log-prob of the reference", number(own.reference)]);
    if (own.weight !== undefined) rows.push(["importance weight", number(own.weight)]);
  }
  const alternatives = token.alternatives.length ? h("div", { class: "alternatives" }, token.alternatives.map((text) => h("code", {}, JSON.stringify(text)))) : null;
  return h(
    "div",
    {},
    h("dl", { class: "inline" }, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    alternatives,
    own.pass && h("div", { class: "why" }, h("button", { onclick: () => explain(state, index) }, "Why this gradient?")),
  );
}

/** Shows the formula of the objective with the token's numbers. */
async function explain(state, index) {
  const pass = state.view.passes[state.pass];
  if (!pass) return;
  let shown;
  try {
    const answer = await ask("gradient", { ...state.position, epoch: pass.epoch, token: index }, state.signal);
    shown = explanation(answer);
  } catch (error) {
    if (error.name === "AbortError") return;
    shown = h("p", { class: "error", role: "alert" }, error.message);
  }
  if (state.selected !== index) return;
  const place = state.detail.querySelector(".why");
  place?.replaceChildren(shown);
}

function explanation({ terms, derivative, summary, algorithm }) {
  const row = (term) => h("tr", {}, h("th", { scope: "row" }, term.name), h("td", {}, h("code", {}, term.formula), term.numbers && h("div", { class: "dim" }, h("code", {}, `= ${term.numbers}`))), h("td", { class: "number" }, number(term.value)));
  return h(
    "div",
    { class: "explanation" },
    h("p", {}, summary),
    h("table", { class: "grid" }, h("tbody", {}, terms.map(row))),
    algorithm.formula && h("details", {}, h("summary", {}, `the formula of ${algorithm.word} as published (${algorithm.source})`), h("pre", {}, algorithm.formula)),
    h("p", { class: "dim small" }, `Gradient descent moves the log-probability against the derivative, ${number(derivative)}.`),
  );
}

/** Versions that a completion was sampled with. */
function versions({ version, version_changes: changes }) {
  return [number(version), ...changes.map((change) => `${number(change.version)} from token ${number(change.token)} on`)].join(", ");
}

function summary(view) {
  const logprobs = view.tokens.map((token) => token.logprob).filter((value) => value !== null);
  const mean = logprobs.reduce((sum, value) => sum + value, 0) / Math.max(1, logprobs.length);
  const recorded = view.recorded;
  const entries = [["tokens", number(view.tokens.length)]];
  if (logprobs.length) entries.push(["mean log-prob", number(mean)], ["perplexity", number(Math.exp(-mean))], ["lowest", number(Math.min(...logprobs))]);
  if (recorded) {
    entries.push(
      ["reward", `${number(recorded.reward)} (team ${number(recorded.team_reward)}, own ${number(recorded.local_reward)})`],
      ["version of the policy", versions(recorded)],
      ["versions at the start", recorded.versions.map(number).join(", ")],
      ["temperature", number(recorded.temperature)],
      ["prompt", `${number(recorded.prompt_tokens)} tokens`],
      ["limit", recorded.max_tokens ? `${number(recorded.max_tokens)} tokens${recorded.cut_off ? ", cut off" : ""}` : "–"],
      ["continued from", recorded.chosen ? "yes" : "no"],
    );
  }
  const clipped = view.passes.reduce((sum, pass) => sum + (pass.clipped?.filter(Boolean).length ?? 0), 0);
  if (view.passes.some((pass) => pass.clipped)) entries.push(["clipped", `${clipped === 1 ? "a token" : `${number(clipped)} tokens`}${view.passes.length > 1 ? ` in ${number(view.passes.length)} passes` : ""}`]);
  return h("dl", { class: "card facts inline summary" }, entries.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}
