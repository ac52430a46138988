// Requests to a model, as plain objects.

/** A message with one text part. */
export function message(role, text) {
  return { role, parts: [{ text }] };
}

/** A request with one user message and, if given, a system message, worked examples, stop strings and tools. */
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
