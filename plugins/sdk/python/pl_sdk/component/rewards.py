"""The contract's interface `rewards`."""

from __future__ import annotations

from typing import Any

from wit_world.exports import rewards

from . import answer, registry
from ..values import Task


class Rewards:
    """See the contract."""

    def score(self, item: str, settings: str, transition: Any) -> Any:
        task = Task(transition.task.id, transition.task.data)
        actions = [(action.agent, action.action) for action in transition.actions]
        outcome = transition.outcome
        whole = (outcome.done, outcome.truncated, outcome.facts, outcome.evidence)

        def scored() -> Any:
            scores = registry().score(item, settings, task, actions, whole)
            local = [rewards.AgentScore(one.agent, one.reward, one.success) for one in scores.local]
            return rewards.Scores(scores.team, local, scores.success)

        return answer(scored)
