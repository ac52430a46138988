// Errors that a plugin throws instead of returning a result.

/** The item cannot continue for a reason other than its settings or the task. */
export class Refusal extends Error {
  kind = "internal";
}

/** The item's settings are invalid: the host points to the item's block in the workflow. */
export class SettingsError extends Refusal {
  kind = "settings";
}

/** The environment can't read the task's record: the host points to its line. */
export class TaskError extends Refusal {
  kind = "task";
}
