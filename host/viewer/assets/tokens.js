// A completion token by token, coloured by the probability with which each was sampled.

import { ask } from "./api.js";
import { h, notes, number, percent } from "./dom.js";
import { link } from "./navigation.js";

export async function tokensPage({ element, parameters, signal }) {
  const [run, episode, agent] = ["run", "episode", "agent"].map((name) => parameters.get(name) ?? "");
  const [visit, branch] = [parameters.get("visit") ?? "0", parameters.get("branch") ?? "0"];
  const view = await ask("tokens", { run, episode, agent, visit, branch }, signal);
  const detail = h("div", { class: "card tokendetail" }, h("p", { class: "dim" }, "Point at a token, or walk with j and k."));
  const flow = h("div", { class: "card tokenflow" }, view.tokens.map((token, index) => span(token, index, detail)));
  element.replaceChildren(
    h("div", { class: "title" }, h("h1", {}, `Tokens of ${agent}`), h("a", { href: link("episode", { run, episode }) }, episode.replace(/#0$/, "")), h("span", { class: "dim" }, `turn ${Number(visit) + 1}, candidate ${Number(branch) + 1}`)),
    notes(view.notes) ?? "",
    summary(view),
    h("div", { class: "tokenscale dim" }, "probability when sampled: ", [["p0", "< 1 %"], ["p1", "< 10 %"], ["p2", "< 50 %"], ["p3", "< 90 %"], ["p4", "≥ 90 %"]].map(([kind, text]) => h("span", { class: `token ${kind}` }, text))),
    flow,
    detail,
  );
}

function kind(logprob) {
  if (logprob === null) return "";
  const p = Math.exp(logprob);
  return p < 0.01 ? "p0" : p < 0.1 ? "p1" : p < 0.5 ? "p2" : p < 0.9 ? "p3" : "p4";
}

function span(token, index, detail) {
  const show = () => detail.replaceChildren(details(token, index));
  const text = token.text === null ? ` ${token.id} ` : token.text || "∅";
  const visible = text.replace(/\n/g, "↵\n").replace(/\t/g, "⇥");
  return h("span", { class: `token ${kind(token.logprob)}`, tabindex: "-1", "data-row": String(index), onmouseenter: show, onfocus: show }, visible);
}

function details(token, index) {
  const rows = [
    ["token", `${index + 1}: ${JSON.stringify(token.text ?? "")}`],
    ["id", String(token.id)],
    ["log-prob when sampled", number(token.logprob)],
    ["probability", token.logprob === null ? "–" : percent(Math.exp(token.logprob))],
    ["drawn from", token.support === null ? "the whole vocabulary" : `${number(token.support)} tokens`],
  ];
  const alternatives = token.alternatives.length ? h("div", { class: "alternatives" }, token.alternatives.map((text) => h("code", {}, JSON.stringify(text)))) : null;
  return h("div", {}, h("dl", { class: "inline" }, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])), alternatives);
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
      ["version of the policy", number(recorded.version)],
      ["versions at the start", recorded.versions.map(number).join(", ")],
      ["temperature", number(recorded.temperature)],
      ["prompt", `${number(recorded.prompt_tokens)} tokens`],
      ["limit", recorded.max_tokens ? `${number(recorded.max_tokens)} tokens${recorded.cut_off ? ", cut off" : ""}` : "–"],
      ["continued from", recorded.chosen ? "yes" : "no"],
    );
  }
  return h("dl", { class: "card facts inline" }, entries.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}
