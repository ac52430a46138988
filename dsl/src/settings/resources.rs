//! Settings of the blocks that name what a team is made from: plugins, models, servers, corpora.

use std::time::Duration;

use super::kind::{Choice, DefaultValue, Setting, SettingKind};
use super::rows::{in_head, seconds, setting, word};
use super::units::{GIB, KIB, MIB};
use crate::syntax::block_kind::BlockKind;

const DTYPES: &[Choice] = &[
    word("f32", "32 bits"),
    word("f16", "16 bits with a mantissa of 10 bits"),
    word("bf16", "16 bits with a mantissa of 7 bits and the range of f32"),
    word("q8", "8 bits in groups of 32 with a common scale, for weights that are not trained"),
    word("file", "as in the model's file, also in 4 to 8 bits, for weights that are not trained"),
];

const SERVER_KINDS: &[Choice] = &[
    word(
        "vllm",
        "vLLM, or another `pl-host serve`: token ids over `/inference/v1/generate`, adapters loaded at run time",
    ),
    word("sglang", "SGLang: token ids over `/generate`, adapters loaded at run time"),
    word("llamacpp", "llama.cpp's `llama-server`: for policies that are not trained"),
    word(
        "openai",
        "a hosted model over `/v1/chat/completions`: conversations in, text out, for policies that are not trained",
    ),
];

const LANGUAGES: &[Choice] = &[
    word("none", "words are compared as they are"),
    word("english", "without the endings of English"),
    word("danish", "without the endings of Danish"),
    word("dutch", "without the endings of Dutch"),
    word("finnish", "without the endings of Finnish"),
    word("french", "without the endings of French"),
    word("german", "without the endings of German"),
    word("hungarian", "without the endings of Hungarian"),
    word("italian", "without the endings of Italian"),
    word("norwegian", "without the endings of Norwegian"),
    word("portuguese", "without the endings of Portuguese"),
    word("romanian", "without the endings of Romanian"),
    word("russian", "without the endings of Russian"),
    word("spanish", "without the endings of Spanish"),
    word("swedish", "without the endings of Swedish"),
    word("turkish", "without the endings of Turkish"),
];

use BlockKind as B;

/// Settings of these blocks, block by block.
pub(super) const RESOURCES: &[Setting] = &[
    in_head(
        B::Plugin,
        "path",
        SettingKind::Path,
        "Path of the WebAssembly component, relative to the workflow file. A file name alone may also be that of a plugin that is \
         shipped with the program, such as `math.wasm`.",
    ),
    in_head(
        B::Model,
        "source",
        SettingKind::Source,
        "Name of a built-in model (`smollm2-135m`), `hf:ORGANISATION/NAME`, or the path of a Hugging Face \
         folder or a GGUF file.",
    ),
    setting(
        B::Model,
        "dtype",
        SettingKind::Choice(DTYPES),
        DefaultValue::Absent(
            "`file` on a CPU, or `f32` if the weights themselves are trained; `bf16` on a GPU",
        ),
        "Number format of the weight matrices. Norms, biases, adapters and all sums stay f32. Narrower weights \
         take less memory and generate faster. Generation and training compute with the same numbers. `q8` and \
         `file` are for CPUs and for weights that are not trained themselves: generation and training share one \
         copy, and `file` computes exactly what `f32` does. A policy that is trained without an adapter keeps f32 \
         master weights. On a CPU, f16 is more precise than bf16; GPUs compute in bf16.",
    ),
    in_head(
        B::Server,
        "addresses",
        SettingKind::Addresses,
        "Address of the server, or a list of several that serve the same models. Requests go to the server that \
         had a prompt with the same beginning last, unless it has much more to do than another.",
    ),
    setting(
        B::Server,
        "kind",
        SettingKind::Choice(SERVER_KINDS),
        DefaultValue::Word("vllm"),
        "API of the servers. `vllm` by default: it takes new adapters during a run.",
    ),
    setting(
        B::Server,
        "key_variable",
        SettingKind::Text,
        DefaultValue::Absent("no key is sent"),
        "Environment variable with the key that requests carry, which the user must allow (`--allow-env`). The key itself \
         never stands in a file. Without `https`, it crosses the network readably.",
    ),
    setting(
        B::Server,
        "timeout",
        SettingKind::Duration { min: seconds(1), max: seconds(86_400) },
        DefaultValue::Duration(seconds(300)),
        "Maximum time of one request, from sending it to the end of its answer. 300s is enough for thousands of \
         tokens on a busy server. A request that takes longer is sent to another server.",
    ),
    setting(
        B::Server,
        "connections",
        SettingKind::Integer { min: 1, max: 65_536 },
        DefaultValue::Integer(100),
        "Maximum number of requests in progress per server; further ones wait here. 100 fills the batch of a \
         server with one GPU. It affects speed, not results.",
    ),
    setting(
        B::Server,
        "retries",
        SettingKind::Integer { min: 0, max: 100 },
        DefaultValue::Integer(3),
        "Number of times that a request is sent again after a wrong answer, an error or a timeout of a server, before \
         its episode fails. Servers that can't be reached or are busy don't count: requests wait for them.",
    ),
    setting(
        B::Server,
        "hedge_after",
        SettingKind::Duration { min: Duration::from_millis(10), max: seconds(86_400) },
        DefaultValue::Absent("each request is sent to one server at a time"),
        "Time after which a request without an answer is also sent to another server that has room. The first right \
         answer counts; the other request is cancelled. It shortens the wait for a server that hangs, at the cost of \
         tokens that are generated twice.",
    ),
    setting(
        B::Server,
        "sleep",
        SettingKind::Integer { min: 0, max: 2 },
        DefaultValue::Integer(0),
        "Level at which the servers sleep while policies are trained, for servers on the device of the trainer. At 1 they \
         free their KV caches, and vLLM moves its weights to the host's memory; at 2 vLLM drops them and reads them again \
         when it wakes up. Only with `kind = vllm` and `schedule = sync`, and for servers that no other run uses.",
    ),
    in_head(
        B::Corpus,
        "source",
        SettingKind::Corpus,
        "Path of the passages, or the address of a retrieval server (`http://…`). A file `*.json` is one object \
         `{TITLE: [SENTENCE, …]}`; every other file is JSONL with one passage per line. A server gets \
         `POST /retrieve` as Search-R1's has it, or the path of the address. An episode that uses a server is not \
         reproducible and is marked so; `replay` gives it the recorded passages.",
    ),
    setting(
        B::Corpus,
        "id",
        SettingKind::Text,
        DefaultValue::Text("id"),
        "Field with the id of a passage, in JSONL. Passages without it are named by their number, from 0. Repeated \
         ids are refused.",
    ),
    setting(
        B::Corpus,
        "title",
        SettingKind::Text,
        DefaultValue::Text("title"),
        "Field with the title, in JSONL. The title is searched like the text, and is the first line of the passage. \
         Passages may lack it.",
    ),
    setting(
        B::Corpus,
        "text",
        SettingKind::Text,
        DefaultValue::Absent("`text`, or `contents` where that is missing"),
        "Field with the text, in JSONL.",
    ),
    setting(
        B::Corpus,
        "language",
        SettingKind::Choice(LANGUAGES),
        DefaultValue::Word("english"),
        "Language whose endings are removed before words are compared: `cats` finds `cat`. Use `none` for a language \
         that is not listed, and for names or codes. Case and accents never count.",
    ),
    setting(
        B::Corpus,
        "key_variable",
        SettingKind::Text,
        DefaultValue::Absent("no key is sent"),
        "Environment variable with the key that requests to a server carry, which the user must allow (`--allow-env`). The \
         key itself never stands in a file.",
    ),
    setting(
        B::Corpus,
        "timeout",
        SettingKind::Duration { min: seconds(1), max: seconds(3600) },
        DefaultValue::Duration(seconds(30)),
        "Maximum time of one request to a server. A search takes well under a second; 30s has room for a queue.",
    ),
    setting(
        B::Corpus,
        "retries",
        SettingKind::Integer { min: 0, max: 100 },
        DefaultValue::Integer(5),
        "Number of times that a request to a server is sent again after a failure, before its episode fails. With the \
         waiting times between them, 5 outlast a restart of 15 seconds.",
    ),
    setting(
        B::Plugin,
        "memory",
        SettingKind::Bytes { min: 64 * KIB, max: 4 * GIB },
        DefaultValue::Bytes(64 * MIB),
        "Maximum linear memory of one instance. 64MiB holds the state of any text environment; an interpreter \
         inside a plugin may need more. If a plugin requests more, its episode fails.",
    ),
    setting(
        B::Plugin,
        "fuel",
        SettingKind::Integer { min: 10_000, max: i64::MAX },
        DefaultValue::Integer(2_000_000_000),
        "Maximum work of one call, about one unit per instruction. 2e9 units take about a second: far more \
         than a normal call needs, and short enough to stop an endless loop. Fuel is counted, not timed, so \
         the limit is the same on every machine.",
    ),
    setting(
        B::Plugin,
        "timeout",
        SettingKind::Duration { min: Duration::from_millis(10), max: seconds(3600) },
        DefaultValue::Duration(seconds(10)),
        "Maximum wall-clock time of one call, as a safety net if fuel doesn't stop it. 10s is several times \
         what the default fuel takes. If the timeout strikes, the run is marked as not reproducible.",
    ),
    setting(
        B::Grant,
        "read",
        SettingKind::Texts,
        DefaultValue::Absent("no folder"),
        "Folders that the plugin may read, relative to the workflow file. The plugin sees the folder \
         `data/tables` as `/tables`. The files are read once, when the plugin is loaded, and `lock.json` \
         records their hashes. A folder outside of the workflow's own needs the user's permission (`--allow-read`).",
    ),
    setting(
        B::Grant,
        "http",
        SettingKind::Texts,
        DefaultValue::Absent("no host"),
        "Hosts that the plugin may contact over HTTP: `api.example.org` (HTTPS on port 443), or \
         `localhost:8080` for that port, encrypted or not. A name that leads to a private address is refused \
         unless the grant has that address itself. The user must allow each (`--allow-net`). An episode that contacts a host is not \
         reproducible and is marked so; `replay` gives it the recorded responses.",
    ),
    setting(
        B::Grant,
        "policies",
        SettingKind::PolicyNames,
        DefaultValue::Absent("no policy"),
        "Policies that the plugin's rewards may ask, for example as a judge of answers; they must have `train = false`. A \
         policy answers with the most likely tokens, so that equal questions have equal answers. Every question costs the \
         time of a generation. Questions and answers are recorded, and `replay` gives the recorded answers.",
    ),
];
