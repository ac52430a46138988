// Requests to a model, as plain objects.

/** A message of one text part. */
export function message(role, text) {
  return { role, parts: [{ text }] };
}

/** A request of one user message, with what else it takes: a system message, worked examples in front, stop strings. */
export function request(text, { system, examples = [], stop = [], tools = [] } = {}) {
  return {
    messages: [
      ...(system === undefined ? [] : [message("system", system)]),
      ...examples.flatMap(([question, answer]) => [message("user", question), message("assistant", answer)]),
      message("user", text),
    ],
    tools,
    stop,
  };
}
