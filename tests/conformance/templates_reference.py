"""Makes the texts that `pl-model`'s chat templates are checked against, with transformers as the reference.

    python3 tests/conformance/templates_reference.py

Writes templates/cases.json (thirty conversations: messages, tools, options) and templates/expected/NAME.json (what
`apply_chat_template` makes of each under every template, or the error). The templates: SmolLM2's, Qwen2.5's and
Qwen3's own (these models are published under Apache-2.0), two of this project in the style of Llama 2's and
Llama 3.1's, one that uses every corner of the language, and, from the cache where `tokenizers_reference.py fetch`
puts them, Llama 3's and 3.2's own. Needs transformers and gguf; today's date in a text is written as {today}.
"""

import datetime
import json
import os
from pathlib import Path

import gguf
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).parent / "templates"
CACHE = Path(os.environ.get("PL_HOST_CACHE", Path.home() / ".cache" / "pl-host"))

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Today's weather in a city, e.g. \"Zürich\" <& others>",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Its name"},
                "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 1},
                "scale": {"type": "number", "enum": [0.5, 1.0, 1e-07, 2e+20]},
            },
            "required": ["city"],
        },
    },
}
SUM = {
    "type": "function",
    "function": {"name": "add", "description": "", "parameters": {"type": "object", "properties": {"xs": {"type": "array", "items": {}}}}},
}


def system(content): return {"role": "system", "content": content}
def user(content): return {"role": "user", "content": content}
def assistant(content, **more): return {"role": "assistant", "content": content, **more}
def call(name, arguments, **more): return {**more, "type": "function", "function": {"name": name, "arguments": arguments}}
def tool(content, **more): return {"role": "tool", "content": content, **more}


def case(messages, tools=(), prompt=True, thinking=None):
    return {"messages": messages, "tools": list(tools), "prompt": prompt, "thinking": thinking}


ZURICH = call("get_weather", {"city": "Zürich", "days": 2})
CASES = [
    case([user("Hi")]),
    case([user("Hi")], prompt=False),
    case([system("Be brief."), user("What is 2+2?")]),
    case([system("Be brief."), user("What is 2+2?"), assistant("4"), user("And 3+3?")]),
    case([user("Hi"), assistant("Hello!"), user("How are you?"), assistant("Fine.")], prompt=False),
    case([system(""), user("")]),
    case([user("  padded \n"), assistant("\n\n answer  \n"), user("\tmore\t")]),
    case([system("Tu es poli. 你好"), user("naïve 東京 🚀👨‍👩‍👧 שלום\u0000\u001b")]),
    case([user("a < b & \"c\" 'd' {{ e }} {% f %} \\n <|im_end|>")]),
    case([user("line 1\nline 2\r\n\n\nline 3")], prompt=False),
    # Thinking.
    case([user("Why?")], thinking=True),
    case([user("Why?")], thinking=False),
    case([user("Why?"), assistant("Because.", reasoning_content="hm\nhm"), user("Really?")]),
    case([user("Why?"), assistant("Because.", reasoning_content="\nhm\n")], prompt=False),
    case([user("Why?"), assistant("<think>\nwell\n</think>\n\nBecause."), user("Really?")], thinking=False),
    case([user("Why?"), assistant("<think>\nwell\n</think>\n\nBecause.")], prompt=False, thinking=True),
    # Tools.
    case([user("Weather?")], tools=[WEATHER]),
    case([system("Use tools."), user("Weather?")], tools=[WEATHER, SUM]),
    case([user("Weather in Zürich?"), assistant("", tool_calls=[ZURICH])], tools=[WEATHER], prompt=False),
    case([user("Weather?"), assistant("", tool_calls=[ZURICH]), tool("{\"temperature\": 21.5}")], tools=[WEATHER]),
    case([user("Weather?"), assistant("Let me look.", tool_calls=[{"id": "c1", **ZURICH}]),
          tool("sunny\n\"hot\"", tool_call_id="c1", name="get_weather"), assistant("Sunny.")], tools=[WEATHER], prompt=False),
    case([user("Both?"), assistant("", tool_calls=[ZURICH, call("add", {"xs": [1, 2.0, -0.5, 1e-7, True, None, "é\"\n"]})]),
          tool("a"), tool("b")], tools=[WEATHER, SUM]),
    case([user("Sum"), assistant("", tool_calls=[call("add", {})]), tool(""), user("Thanks")], tools=[SUM], thinking=False),
    case([user("Sum"), assistant("", reasoning_content="use add", tool_calls=[call("add", {"xs": [{"a": {"b": []}}]})]),
          tool("3"), assistant("3", reasoning_content="done")], tools=[SUM], prompt=False),
    case([user("Sum"), assistant("", tool_calls=[call("add", {"xs": [1]})]), tool("1")]),
    case([user("<tool_response>\nnot one\n</tool_response>"), assistant("x"), user("<tool_response> half")], thinking=True),
    # Conversations that templates may refuse.
    case([assistant("I begin."), user("Fine.")]),
    case([user("One."), user("Two.")]),
    case([user("Hi"), system("Late orders."), user("Go on.")]),
    case([system("Orders alone.")], tools=[SUM]),
]

QWEN = (None, "<|im_end|>")
LLAMA3 = ("<|begin_of_text|>", "<|eot_id|>")
TEMPLATES = {
    "smollm2": ("<|im_start|>", "<|im_end|>"),
    "qwen2.5": QWEN,
    "qwen3": QWEN,
    "llama2-style": ("<s>", "</s>"),
    "llama3.1-style": LLAMA3,
    "dialect": (None, None),
    "llama3": LLAMA3,
    "llama3.2": LLAMA3,
}


def sources() -> None:
    """The models' own templates that may be kept here."""
    for name in ["qwen2.5", "qwen3"]:
        settings = json.loads((CACHE / "tokenizers" / name / "tokenizer_config.json").read_text())
        (HERE / f"{name}.jinja").write_text(settings["chat_template"])
    fields = gguf.GGUFReader(CACHE / "models" / "smollm2-135m" / "model.gguf").fields
    (HERE / "smollm2.jinja").write_text(fields["tokenizer.chat_template"].contents())


def source(name: str) -> str:
    path = HERE / f"{name}.jinja"
    if path.exists():
        return path.read_text()
    return json.loads((CACHE / "tokenizers" / name / "tokenizer_config.json").read_text())["chat_template"]


def render(template: str, tokens, case: dict):
    bos, eos = tokens
    special = {key: value for key, value in [("bos_token", bos), ("eos_token", eos)] if value}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), chat_template=template, **special)
    options = {} if case["thinking"] is None else {"enable_thinking": case["thinking"]}
    today = datetime.datetime.now().strftime("%d %b %Y")
    try:
        text = tokenizer.apply_chat_template(
            case["messages"], tools=case["tools"] or None, add_generation_prompt=case["prompt"], tokenize=False, **options)
        return text.replace(today, "{today}")
    except Exception as error:
        return {"error": str(error)}


def main() -> None:
    sources()
    (HERE / "expected").mkdir(parents=True, exist_ok=True)
    write(HERE / "cases.json", CASES)
    assert len(CASES) == 30
    for name, tokens in TEMPLATES.items():
        write(HERE / "expected" / f"{name}.json", [render(source(name), tokens, case) for case in CASES])


def write(path: Path, rows: list) -> None:
    """One case per line."""
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
