"""A reward: a function that scores a step."""

from dataclasses import dataclass

from pl_sdk import AgentScore, Plugin, Reward, Scores, setting


@dataclass
class Settings:
    effort: float = setting(0.1, "Reward of a wrong answer (no answer gets 0).", minimum=0, maximum=1)


class Score(Reward, name="score", settings=Settings):
    """1 for the right answer, a little for any answer."""

    @staticmethod
    def score(settings, step):
        local = []
        for act in step.actions:
            answer = act.action.get("answer")
            success = answer is not None and answer.strip() == step.evidence["gold"]
            reward = 1.0 if success else 0.0 if answer is None else settings.effort
            local.append(AgentScore(act.agent, reward, success))
        success = any(score.success for score in local)
        return Scores(float(success), local, success)


plugin = Plugin(rewards=[Score])
