// The frame of the page: addresses, keyboard, colours, and which page is shown.

import { ask } from "./api.js";
import { h } from "./dom.js";
import { address, go, link } from "./navigation.js";
import { runsPage } from "./runs.js";
import { episodesPage } from "./episodes.js";
import { episodePage } from "./episode.js";
import { tokensPage } from "./tokens.js";
import { workflowPage } from "./workflow.js";
import { playPage } from "./play.js";

const PAGES = { runs: runsPage, episodes: episodesPage, episode: episodePage, tokens: tokensPage, workflow: workflowPage, play: playPage };
const THEMES = { auto: "◐", light: "☀", dark: "☾" };

let current = null;
let runs = [];

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
}

function nextTheme() {
  const names = Object.keys(THEMES);
  setTheme(names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length]);
  drawBar();
}

function drawBar() {
  const { page, parameters } = address();
  const run = parameters.get("run") ?? "";
  const theme = document.documentElement.dataset.theme;
  const tab = (name, text, target, pages) =>
    h("a", { href: target, class: pages.includes(page) ? "tab on" : "tab", "data-tab": name }, text);
  const perRun = run || runs[0]?.name;
  const choose = h(
    "select",
    { class: "run", title: "Run", "aria-label": "Run", onchange: (e) => go(link(["workflow", "play"].includes(page) ? page : "episodes", { run: e.target.value })) },
    runs.map((one) => h("option", { value: one.name, selected: one.name === run }, one.name)),
  );
  document.getElementById("bar").replaceChildren(
    h("a", { class: "brand", href: "#runs" }, h("b", {}, "pl"), "host"),
    h(
      "nav",
      {},
      tab("runs", "Runs", "#runs", ["runs"]),
      perRun && tab("episodes", "Episodes", link("episodes", { run: perRun }), ["episodes", "episode", "tokens"]),
      perRun && tab("workflow", "Workflow", link("workflow", { run: perRun }), ["workflow"]),
      perRun && tab("play", "Play", link("play", { run: perRun }), ["play"]),
    ),
    page === "runs" ? h("span", { class: "space" }) : choose,
    h("button", { class: "icon", title: `Colours: ${theme}`, "aria-label": "Colours", onclick: nextTheme }, THEMES[theme]),
    h("button", { class: "icon", title: "Keys (?)", "aria-label": "Keys", onclick: showHelp }, "?"),
  );
}

async function show() {
  current?.abort();
  const controller = new AbortController();
  current = controller;
  const { parameters, page: wanted } = address();
  const page = PAGES[wanted] ? wanted : "runs";
  drawBar();
  const element = document.getElementById("page");
  element.className = page;
  const context = { element, parameters, signal: controller.signal };
  try {
    await PAGES[page](context);
  } catch (error) {
    if (error.name === "AbortError" || controller.signal.aborted) return;
    element.replaceChildren(h("p", { class: "error", role: "alert" }, error.message));
  }
}

const KEYS = [
  ["j / k", "next or previous row, turn or token"],
  ["Enter", "open the row"],
  ["[ / ]", "previous or next episode"],
  ["/", "search"],
  ["1 2 3 4", "runs, episodes, workflow, play"],
  ["u", "back"],
  ["?", "these keys"],
];

function showHelp() {
  const dialog = document.getElementById("help");
  const rows = KEYS.map(([keys, text]) => h("tr", {}, h("th", {}, h("kbd", {}, keys)), h("td", {}, text)));
  dialog.replaceChildren(
    h("h2", {}, "Keys"),
    h("table", {}, rows),
    h("form", { method: "dialog" }, h("button", {}, "Close")),
  );
  dialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    dialog.close();
  });
  dialog.showModal();
}

/** Moves among the elements that the page marks with `data-row`. */
function moveRow(change) {
  const rows = [...document.querySelectorAll("[data-row]")];
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement?.closest?.("[data-row]"));
  const next = rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? 0 : at + change))];
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

function press(selector) {
  document.querySelector(selector)?.click();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("help").open) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox";
  if (typing) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const actions = {
    j: () => moveRow(1),
    k: () => moveRow(-1),
    Enter: () => document.activeElement?.closest?.("[data-row]")?.querySelector("a")?.click(),
    "[": () => press("[data-previous]"),
    "]": () => press("[data-next]"),
    "/": () => document.querySelector("[data-search]")?.focus(),
    1: () => press("[data-tab=runs]"),
    2: () => press("[data-tab=episodes]"),
    3: () => press("[data-tab=workflow]"),
    4: () => press("[data-tab=play]"),
    u: () => history.back(),
    "?": showHelp,
  };
  const action = actions[event.key];
  if (!action) return;
  // A link that has the focus opens by itself.
  if (event.key === "Enter" && /^(A|BUTTON|SUMMARY)$/.test(event.target.tagName)) return;
  event.preventDefault();
  action();
});

setTheme(localStorage.getItem("theme") in THEMES ? localStorage.getItem("theme") : "auto");
window.addEventListener("hashchange", show);
runs = await ask("runs").catch(() => []);
show();
