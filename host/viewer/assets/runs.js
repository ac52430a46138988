// All runs: their list, curves of the chosen ones, and how their settings differ.

import { ask, followCurves, workflow } from "./api.js";
import { Chart } from "./chart.js";
import { ago, badge, checkbox, h, notes, number, percent, s, select } from "./dom.js";
import { every, link, setParameters } from "./navigation.js";
import { band, curves, isShare, order, section, smooth, title } from "./series.js";

/** Seconds between requests for new lines. */
const INTERVAL = 3;

export async function runsPage({ element, parameters, signal }) {
  const state = {
    runs: await ask("runs", {}, signal),
    chosen: null,
    smoothing: Number(parameters.get("smooth") ?? 0),
    axis: parameters.get("x") === "time" ? "time" : "step",
    log: parameters.get("log") === "1",
    bands: parameters.get("bands") !== "0",
    search: parameters.get("q") ?? "",
    from: parameters.get("from") ?? "",
    to: parameters.get("to") ?? "",
    charts: new Map(),
    headings: new Map(),
    signal,
  };
  const given = parameters.get("runs")?.split(",").map(decodeURIComponent);
  const known = new Set(state.runs.map((run) => run.name));
  const newest = [...state.runs].sort((a, b) => (b.changed ?? 0) - (a.changed ?? 0)).slice(0, 6).map((run) => run.name);
  state.chosen = new Set((given ?? newest).filter((name) => known.has(name)));

  state.list = h("div", { class: "runlist" });
  state.grid = h("div", { class: "charts" });
  state.differences = h("section", { class: "differences" });
  state.problems = h("div", {});
  element.replaceChildren(
    h("aside", {}, h("h1", {}, "Runs"), state.list),
    h("div", { class: "content" }, controls(state), state.problems, state.grid, state.differences),
  );
  drawList(state);
  await update(state, true);
  every(INTERVAL, signal, async () => {
    state.runs = await ask("runs", {}, signal);
    drawList(state);
    await update(state, false);
  });
}

function controls(state) {
  // Steps that were merged get their own points when fewer are shown.
  let timer = null;
  const zoom = (changes) => {
    Object.assign(state, changes);
    setParameters(changes);
    clearTimeout(timer);
    timer = setTimeout(() => update(state, true).catch(() => {}), 250);
  };
  const inputs = {};
  const range = (name, label) => {
    inputs[name] = h("input", { type: "number", min: "0", value: state[name], oninput: (e) => zoom({ [name]: e.target.value }) });
    return h("label", { class: "field small" }, h("span", {}, label), inputs[name]);
  };
  state.zoom = (from, to) => {
    [inputs.from.value, inputs.to.value] = [from, to];
    zoom({ from: String(from), to: String(to) });
  };
  const change = (name, value, address) => {
    state[name] = value;
    setParameters(address);
    drawCharts(state);
  };
  return h(
    "div",
    { class: "controls" },
    h("label", { class: "field grow" }, h("span", {}, "Charts"), h("input", { type: "search", placeholder: "filter, such as entropy", value: state.search, "data-search": "", oninput: (e) => change("search", e.target.value, { q: e.target.value }) })),
    h("label", { class: "field" }, h("span", {}, "Smoothing"), h("input", { type: "range", min: "0", max: "0.95", step: "0.05", value: String(state.smoothing), oninput: (e) => change("smoothing", Number(e.target.value), { smooth: e.target.value === "0" ? "" : e.target.value }) })),
    select("Axis", [["step", "steps"], ["time", "minutes"]], state.axis, (value) => change("axis", value, { x: value === "step" ? "" : value })),
    range("from", "From step"),
    range("to", "To step"),
    checkbox("log scale", state.log, (on) => change("log", on, { log: on })),
    checkbox("seeds as a band", state.bands, (on) => change("bands", on, { bands: on ? "" : "0" })),
  );
}

/** The colour of a run: its position among all. */
const colour = (state, name) => state.runs.findIndex((run) => run.name === name);

function drawList(state) {
  const focused = document.activeElement?.closest?.("[data-run]")?.dataset.run;
  state.list.replaceChildren(...state.runs.map((run) => {
    const toggle = (event) => {
      if (event.target.checked) state.chosen.add(run.name);
      else state.chosen.delete(run.name);
      setParameters({ runs: [...state.chosen].map(encodeURIComponent).join(",") });
      update(state, true);
    };
    const done = run.steps ? Math.min(1, run.step / run.steps) : 0;
    const success = run.evaluation ? `${percent(run.evaluation[1])} ${run.evaluation[0]}` : percent(run.success);
    return h(
      "div",
      { class: "run", "data-row": "", "data-run": run.name, tabindex: "-1" },
      h("label", {}, h("input", { type: "checkbox", checked: state.chosen.has(run.name), onchange: toggle, "aria-label": `Curves of ${run.name}` }), s("svg", { class: "key", width: 12, height: 12 }, s("circle", { class: `dot c${colour(state, run.name) % 8}`, cx: 6, cy: 6, r: 5 }))),
      h(
        "div",
        { class: "about" },
        h("a", { href: link("episodes", { run: run.name }), title: run.folder }, run.name),
        h("div", { class: "dim" }, badge(run.state, run.state), ` step ${number(run.step)}${run.steps ? ` of ${number(run.steps)}` : ""} · ${ago(run.changed)}`),
        h("progress", { max: 1, value: done, title: percent(done), "aria-label": "Progress" }),
        run.problem && h("div", { class: "error" }, run.problem),
      ),
      h("div", { class: "result" }, success),
    );
  }));
  if (focused) state.list.querySelector(`[data-run="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

/** Reads what is new of the chosen runs. */
async function update(state, draw) {
  const problems = [];
  let changed = draw;
  for (const name of state.chosen) {
    for (const log of ["metrics", "timings"]) {
      try {
        const lines = followCurves(name, log, state);
        changed = (await lines.update(state.signal)) || changed;
        problems.push(...lines.problems.slice(0, 3));
      } catch (error) {
        if (error.name === "AbortError") throw error;
        problems.push(`${name}: ${error.message}`);
      }
    }
  }
  state.problems.replaceChildren(notes(problems) ?? "");
  if (!changed) return;
  state.settings = await settingsOf(state);
  drawCharts(state);
  drawDifferences(state);
}

async function settingsOf(state) {
  const found = new Map();
  for (const name of state.chosen) {
    try {
      const { settings, lock } = await workflow(name, state.signal);
      found.set(name, { ...settings, seed: lock?.seed });
    } catch (error) {
      if (error.name === "AbortError") throw error;
    }
  }
  return found;
}

/** Groups of runs that have the same settings except the seed. Without bands, each run is a group. */
function groups(state) {
  const result = new Map();
  for (const name of state.chosen) {
    const settings = { ...state.settings?.get(name) };
    delete settings.seed;
    const key = state.bands && state.settings?.has(name) ? JSON.stringify(settings) : name;
    result.set(key, [...(result.get(key) ?? []), name]);
  }
  return [...result.values()];
}

function drawCharts(state) {
  const grouped = groups(state);
  const curvesOf = (means) => (name) => [name, curves(...["metrics", "timings"].map((log) => followCurves(name, log, state).lines), state.axis, means)];
  const byRun = new Map([...state.chosen].map(curvesOf(false)));
  // Smoothing starts from the means of steps that were merged.
  const means = state.smoothing ? new Map([...state.chosen].map(curvesOf(true))) : byRun;
  const wanted = state.search.trim().toLowerCase();
  const names = order(new Set([...byRun.values()].flatMap((charts) => [...charts.keys()]))).filter(
    (chart) => !wanted || title(chart).toLowerCase().includes(wanted) || chart.includes(wanted),
  );
  const shown = [];
  let last = null;
  for (const name of names) {
    const lines = linesOf(state, name, grouped, byRun, means);
    if (lines.every((line) => line.points.every((point) => point.y === 0)) && !wanted && name !== "success") continue;
    const key = `${name} ${state.axis}`;
    if (!state.charts.has(key)) {
      state.charts.set(key, new Chart({ title: title(name), xName: state.axis === "time" ? "minute" : "step", share: isShare(name), zoom: state.axis === "time" ? null : state.zoom }));
    }
    const chart = state.charts.get(key);
    chart.set(lines, state.log);
    const heading = section(name);
    if (heading !== last) {
      if (!state.headings.has(heading)) state.headings.set(heading, h("h2", {}, heading));
      shown.push(state.headings.get(heading));
      last = heading;
    }
    shown.push(chart.element);
  }
  if (!shown.length) shown.push(h("p", { class: "empty" }, state.chosen.size ? "No numbers yet." : "Choose a run on the left."));
  // Elements that stay are not moved: a pointer over a chart keeps its values.
  const same = state.grid.children.length === shown.length && shown.every((child, index) => state.grid.children[index] === child);
  if (!same) state.grid.replaceChildren(...shown);
}

function linesOf(state, chart, grouped, byRun, means) {
  const parts = [...new Set([...byRun.values()].flatMap((charts) => [...(charts.get(chart)?.keys() ?? [])]))];
  // Training has the first colour, or the solid line.
  parts.sort((a, b) => (b === "training") - (a === "training"));
  const lines = [];
  for (const runs of grouped) {
    for (const [index, part] of parts.entries()) {
      const found = runs.map((run) => byRun.get(run).get(chart)?.get(part)).filter(Boolean);
      if (!found.length) continue;
      const joined = found.length > 1;
      const points = joined ? band(found) : found[0];
      const mean = runs.map((run) => means.get(run).get(chart)?.get(part)).filter(Boolean);
      const average = (joined ? band(mean) : mean[0]) ?? points;
      const averaged = smooth(average, state.smoothing);
      const smoothed = averaged === average ? points : averaged;
      const run = joined ? `${runs[0]} and ${found.length - 1} more` : runs[0];
      lines.push({
        name: grouped.length === 1 && !joined ? part : parts.length === 1 ? run : `${run}: ${part}`,
        // One run: a colour for each part. Several: a colour for each run, and dashes for the parts.
        colour: grouped.length === 1 ? index : colour(state, runs[0]),
        dash: grouped.length === 1 ? 0 : index,
        points: smoothed,
        raw: smoothed === points ? [] : points,
        bars: !joined,
      });
    }
  }
  return lines;
}

function drawDifferences(state) {
  const names = [...state.chosen].filter((name) => state.settings.has(name));
  const paths = [...new Set(names.flatMap((name) => Object.keys(state.settings.get(name))))].sort();
  const text = (value) => (value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value));
  const differing = paths.filter((path) => new Set(names.map((name) => text(state.settings.get(name)[path]))).size > 1);
  if (names.length < 2) return state.differences.replaceChildren();
  state.differences.replaceChildren(
    h("h2", {}, "Differences of settings"),
    differing.length === 0
      ? h("p", { class: "empty" }, "These runs have the same settings.")
      : h("div", { class: "scroll" }, h(
          "table",
          { class: "grid" },
          h("thead", {}, h("tr", {}, h("th", {}, "setting"), names.map((name) => h("th", {}, name)))),
          h("tbody", {}, differing.map((path) => h("tr", {}, h("th", {}, path), names.map((name) => h("td", {}, text(state.settings.get(name)[path])))))),
        )),
  );
}
