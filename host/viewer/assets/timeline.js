// The last steps of a run on a clock: what was played and what was trained, and when.

import { h, number, s } from "./dom.js";

const LANES = [["rollouts", ["play", "evaluate"]], ["training", ["train"]]];
const ROW = 34;
const LEFT = 74;
const STEPS = 6;

/** Draws the last steps of `timings.jsonl`. Returns `null` if they have no times. */
export function timeline(lines) {
  const timed = lines.filter((line) => line.timeline?.length);
  // A run that was resumed starts its clock anew: only the newest clock is shown.
  let first = timed.length;
  let end = Infinity;
  while (first > 0 && timed.length - first < STEPS && timed[first - 1].timeline[0].start <= end) {
    first -= 1;
    end = timed[first].timeline[0].start;
  }
  const shown = timed.slice(first);
  if (!shown.length) return null;
  const parts = shown.flatMap((line) => line.timeline.map((part) => ({ step: line.step, ...part })));
  const from = Math.min(...parts.map((part) => part.start));
  const to = Math.max(...parts.map((part) => part.end));
  const width = 900;
  const height = LANES.length * ROW + 26;
  const x = (seconds) => LEFT + ((seconds - from) / Math.max(1e-9, to - from)) * (width - LEFT - 8);
  const root = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "timeline", role: "img", "aria-label": "Timeline of the last steps" });
  LANES.forEach(([name, kinds], row) => {
    const y = row * ROW + 4;
    root.append(s("text", { class: "tick", x: 4, y: y + 18 }, name));
    for (const part of parts.filter((one) => kinds.includes(one.part))) {
      const wide = Math.max(1.5, x(part.end) - x(part.start));
      root.append(s(
        "g",
        {},
        s("title", {}, `${part.part}, step ${part.step}: ${number(part.end - part.start)} s`),
        s("rect", { class: `part ${part.part}`, x: x(part.start), y, width: wide, height: ROW - 8, rx: 4 }),
        wide > 26 && s("text", { class: "partname", x: x(part.start) + wide / 2, y: y + 18, "text-anchor": "middle" }, wide > 74 ? `${part.part} ${part.step}` : String(part.step)),
      ));
    }
  });
  root.append(
    s("text", { class: "tick", x: LEFT, y: height - 6 }, `${number(Math.round(from))} s`),
    s("text", { class: "tick", x: width - 8, y: height - 6, "text-anchor": "end" }, `${number(Math.round(to))} s`),
  );
  const wait = shown.reduce((sum, line) => sum + (line.seconds?.wait ?? 0), 0);
  const busy = shown.reduce((sum, line) => sum + (line.seconds?.train ?? 0), 0);
  return h(
    "section",
    { class: "card" },
    h("h2", {}, `Timeline of the last ${number(shown.length)} steps`),
    h("div", { class: "scroll" }, root),
    h("p", { class: "dim small" }, `Seconds since the run was started or resumed. Training took ${number(busy)} s of these steps, and waited ${number(wait)} s for rollouts.`),
  );
}
