"""Exceptions that a plugin raises instead of returning a result."""


class Refusal(Exception):
    """The item cannot continue for a reason other than its settings or the task."""


class SettingsError(Refusal):
    """The item's settings are invalid: the host points to the item's block in the workflow."""


class TaskError(Refusal):
    """The environment can't read the task's record: the host points to its line."""
