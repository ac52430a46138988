//! Data types that the crates exchange. No libtorch and no WebAssembly: a crate that only passes these types
//! on compiles without either.
//!
//! - [`redaction`]: addresses and cookies without their secrets, for recordings and messages.
//! - [`request`]: generation requests and completions, and the trait between rollouts and engines.
//! - [`sampling`]: the parameters of the distribution that tokens are drawn from.
//! - [`control`]: pauses of an engine, and new weights of whole models.
//! - [`dtype`]: number formats of a model's matrices.
//! - [`episode_id`]: names of episodes within a run.
//! - [`erased`]: values and futures whose parts the compiler need not look at.
//! - [`grammar`]: grammars that completions are constrained to.
//! - [`item`]: environments, agents and rewards as a plugin describes them.
//! - [`loopback`]: addresses of this machine alone.
//! - [`question`]: questions of plugins to policies, and the trait between plugins and what generates the answers.
//! - [`request_origin`]: origins of HTTP requests, by which servers refuse pages of other sites.
//! - [`retrieval`]: passages of a corpus, and the trait between plugins and what finds them.
//! - [`source_path`]: paths of files that are checked once they are open.
//! - [`task_key`]: names of tasks within a run.
//! - [`trained`]: what an update computed of each token.
//! - [`transition`]: the training data that a rollout produces and a learner consumes.
//! - [`version`]: versions of the weights within a completion.
//! - [`value_head`]: the weights by which an engine values the states that it samples in.
//! - [`hash`] and [`seed`]: the derivation of every random stream.

pub mod control;
pub mod dtype;
pub mod episode_id;
pub mod erased;
pub mod grammar;
pub mod hash;
pub mod item;
pub mod loopback;
pub mod question;
pub mod redaction;
pub mod request;
pub mod request_origin;
pub mod retrieval;
pub mod sampling;
pub mod seed;
pub mod source_path;
pub mod task_key;
pub mod trained;
pub mod transition;
pub mod value_head;
pub mod version;

pub use control::{PauseMode, WeightInfo, WeightSource};
pub use dtype::{Dtype, ModelDtype};
pub use episode_id::{EpisodeId, InvalidEpisodeId};
pub use grammar::Grammar;
pub use hash::PartHasher;
pub use item::{Fact, FactKind, Item, ItemKind};
pub use loopback::{is_loopback, is_loopback_host};
pub use question::{AnswerQuestions, Question, QuestionError, QuestionMessage, QuestionRole};
pub use redaction::{REDACTED, redact_address, redact_cookies};
pub use request::{Chunk, Completion, Finish, Generate, GenerateError, Request};
pub use request_origin::RequestOrigin;
pub use retrieval::{Passage, Retrieve, RetrieveError};
pub use sampling::{Sampling, SamplingOverrides};
pub use seed::{Phase, StreamKey};
pub use source_path::{CheckOpened, SourcePath, is_content_of, open_file};
pub use task_key::TaskKey;
pub use trained::{Clipping, Credit, TrainedCompletion};
pub use transition::{Group, Key, Transition};
pub use value_head::ValueHeadWeights;
pub use version::{VersionChange, version_spans};
