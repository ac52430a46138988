// Addresses within the page, which can be sent to others, and work that repeats until a page is left.

/** The page and its parameters from the address: `#episodes?run=math`. */
export function address() {
  const [page, query] = location.hash.slice(1).split("?");
  return { page: page || "runs", parameters: new URLSearchParams(query ?? "") };
}

/** An address within the page. */
export function link(page, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return query ? `#${page}?${query}` : `#${page}`;
}

/** Changes parameters of the address without leaving the page. */
export function setParameters(changes) {
  const { page, parameters } = address();
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === null || value === "" || value === false) parameters.delete(name);
    else parameters.set(name, value === true ? "1" : String(value));
  }
  const query = parameters.toString();
  history.replaceState(null, "", query ? `#${page}?${query}` : `#${page}`);
}

export function go(target) {
  location.hash = target;
}

/** Calls a function every few seconds until its page is left. Nothing is asked while the page is hidden. */
export function every(seconds, signal, work) {
  const timer = setInterval(async () => {
    if (document.hidden) return;
    try {
      await work();
    } catch (error) {
      if (error.name !== "AbortError") console.warn(error.message);
    }
  }, seconds * 1000);
  signal.addEventListener("abort", () => clearInterval(timer));
}
