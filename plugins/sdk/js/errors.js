// Refusals: what a plugin throws instead of returning a result.

/** The item cannot go on, and neither the settings nor the task are to blame. */
export class Refusal extends Error {
  kind = "internal";
}

/** The item's settings do not mean anything: the host points to the item's block in the workflow. */
export class SettingsError extends Refusal {
  kind = "settings";
}

/** The task's record is not of a form that the environment reads: the host points to its line. */
export class TaskError extends Refusal {
  kind = "task";
}
