"""Refusals: what a plugin raises instead of returning a result."""


class Refusal(Exception):
    """The item cannot go on, and neither the settings nor the task are to blame."""


class SettingsError(Refusal):
    """The item's settings do not mean anything: the host points to the item's block in the workflow."""


class TaskError(Refusal):
    """The task's record is not of a form that the environment reads: the host points to its line."""
