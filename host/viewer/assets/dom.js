// Building elements. Every text goes in as a text node: what a model wrote can't become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string" && !(element instanceof SVGElement)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Creates an HTML element. Attributes that begin with "on" are listeners. */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Creates an SVG element. */
export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** A number in few digits. */
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1e6 || (size < 1e-3 && size > 0)) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

export function percent(value) {
  return value === null || value === undefined ? "–" : `${number(Math.round(value * 1000) / 10)} %`;
}

/** Time since a moment, given in seconds since 1970. */
export function ago(seconds) {
  if (!seconds) return "–";
  const passed = Math.max(0, Date.now() / 1000 - seconds);
  for (const [size, name] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (passed >= size) return `${Math.floor(passed / size)} ${name} ago`;
  }
  return "now";
}

/** A text that is JSON, indented; any other text as it is. */
export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** A line of notes, if there are any. */
export function notes(list) {
  return list?.length ? h("ul", { class: "notes" }, list.map((note) => h("li", {}, note))) : null;
}

export function badge(kind, text) {
  return h("span", { class: `badge ${kind}` }, text);
}

/** A choice among few values. `values` has pairs of value and text. */
export function select(label, values, chosen, change) {
  const options = values.map(([value, text]) => h("option", { value, selected: value === chosen }, text));
  return h("label", { class: "field" }, h("span", {}, label), h("select", { onchange: (e) => change(e.target.value) }, options));
}

export function checkbox(label, checked, change) {
  return h("label", { class: "check" }, h("input", { type: "checkbox", checked, onchange: (e) => change(e.target.checked) }), label);
}
