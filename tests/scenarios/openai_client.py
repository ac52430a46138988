"""Calls a server with OpenAI's client: `openai_client.py URL`. The server has the policies `first` and `second` and the team."""

import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="unused", max_retries=0)

assert [model.id for model in client.models.list()] == ["first", "second", "team"]
assert client.models.retrieve("first").id == "first"

conversation = [{"role": "user", "content": "rain"}]


def chat(**more):
    return client.chat.completions.create(model="first", messages=conversation, max_tokens=6, seed=3, **more)


answer = chat(n=2, logprobs=True, top_logprobs=2)
assert len(answer.choices) == 2 and answer.usage.completion_tokens > 0
for choice in answer.choices:
    assert choice.finish_reason in ("stop", "length") and choice.message.role == "assistant"
    for token in choice.logprobs.content:
        assert token.logprob <= 0 and len(token.top_logprobs) == 2

whole = chat().choices[0]
text, finish, usage = "", None, None
for chunk in chat(stream=True, stream_options={"include_usage": True}):
    for choice in chunk.choices:
        text += choice.delta.content or ""
        finish = choice.finish_reason or finish
    usage = chunk.usage or usage
assert (text, finish) == (whole.message.content, whole.finish_reason)
assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens

completion = client.completions.create(model="second", prompt="rain", max_tokens=4, logprobs=1, seed=3)
assert len(completion.choices[0].logprobs.token_logprobs) == completion.usage.completion_tokens
parts = client.completions.create(model="second", prompt="rain", max_tokens=4, seed=3, stream=True)
assert "".join(part.choices[0].text for part in parts) == completion.choices[0].text

team = client.chat.completions.create(model="team", messages=[{"role": "user", "content": '{"topic": "rain"}'}], seed=3)
assert len(team.model_extra["turns"]) >= 2 and team.choices[0].message.content is not None


def refusal(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


missing = refusal(openai.NotFoundError, lambda: client.chat.completions.create(model="gpt", messages=conversation))
assert missing.code == "model_not_found" and "`first`" in missing.message
tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
assert refusal(openai.BadRequestError, lambda: chat(tools=[tool])).param == "tools"
assert refusal(openai.BadRequestError, lambda: chat(response_format={"type": "json_object"})).param == "response_format"
assert refusal(openai.BadRequestError, lambda: chat(logit_bias={"x": 1})).param == "logit_bias"

print("all calls were understood")
