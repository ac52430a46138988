//! A learner: one set of base weights and the policies that are trained on it.
//!
//! Either the base is frozen and each policy has an adapter (all of them go through one packed pass, and each
//! gets the gradient that training it alone would give), or one policy trains the weights themselves.
//!
//! The loss of a mini-batch is, per policy, the mean over the completion tokens of its transitions in that
//! mini-batch. What sequences of one policy begin with in common goes through the model once ([`crate::packing`]).
//! Memory: gradients exist for trained tensors alone, and the head runs in chunks ([`crate::head`]);
//! [`crate::memory`] says how much it comes to.

use pl_dsl::workflow::Train;
use pl_model::{Adapter, Config, Dtype, Gradients, Keep, Packed, Pass, Sequence as Tokens, Weights};
use pl_record::transition::Transition;
use tch::{Kind, TchError, Tensor};

use crate::base::Base;
use crate::error::Error;
use crate::head::{self, Kept, Rows};
use crate::loss::{Clip, clipped_policy_loss, k3};
use crate::metrics::{Tally, UpdateMetrics};
use crate::optimizer::AdamW;
use crate::packing::Batch;
use crate::plan::{self, Cut, MiniBatch, Sequence};

/// A transition and how good it was.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    /// What was sampled.
    pub transition: &'a Transition,
    /// Its advantage ([`crate::advantage`]).
    pub advantage: f64,
}

/// What an update needs to know of the `train` block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Bounds of the loss.
    pub clip: Clip,
    /// Epochs, mini-batches and token budget.
    pub cut: Cut,
    /// AdamW's weight decay.
    pub weight_decay: f64,
    /// Largest gradient norm of a policy; 0: any.
    pub max_grad_norm: f64,
    /// What a forward pass keeps for the backward one.
    pub keep: Keep,
    /// The run's seed.
    pub seed: u64,
}

impl Settings {
    /// The settings of a `train` block.
    pub fn new(train: &Train, seed: u64) -> Self {
        let cut = Cut {
            epochs: train.epochs,
            mini_batches: train.mini_batches,
            token_budget: train.token_budget as usize,
        };
        Settings {
            clip: Clip::from(train),
            cut,
            weight_decay: train.weight_decay,
            max_grad_norm: train.max_grad_norm,
            keep: if train.gradient_checkpointing { Keep::Inputs } else { Keep::Activations },
            seed,
        }
    }
}

/// A policy that a learner trains.
#[derive(Debug)]
pub struct Member {
    /// Index into the workflow's policies.
    pub policy: usize,
    /// Its name in the workflow.
    pub name: String,
    /// None: it trains the learner's weights themselves.
    pub adapter: Option<Adapter>,
    /// Counts the updates that changed it.
    pub version: u64,
    /// State of its optimiser.
    pub optimizer: AdamW,
}

/// A policy to be trained by its adapter: index into the workflow's policies, name, adapter.
pub type AdapterPolicy = (usize, String, Adapter);

/// One set of base weights and the policies trained on it.
#[derive(Debug)]
pub struct Learner {
    config: Config,
    base: Base,
    members: Vec<Member>,
    /// Sums of the current mini-batch, of the weights or of the members' adapters; zero between mini-batches.
    gradients: Gradients,
    settings: Settings,
}

/// An update that was checked and cut up, and has not run yet.
#[derive(Debug)]
pub struct Planned<'a> {
    step: u64,
    samples: Vec<Sample<'a>>,
    sequences: Vec<Sequence>,
    mini_batches: Vec<MiniBatch>,
}

impl Planned<'_> {
    /// Packed batches to run.
    pub fn batches(&self) -> u64 {
        self.mini_batches.iter().map(|mini_batch| mini_batch.batches.len() as u64).sum()
    }

    /// Tokens that will be fed to the model, over all passes; what sequences of a batch share counts once.
    pub fn fed_tokens(&self) -> u64 {
        let batches = self.mini_batches.iter().flat_map(|mini_batch| &mini_batch.batches);
        batches.map(|batch| batch.fed as u64).sum()
    }
}

impl Learner {
    /// A learner of adapters on a frozen base. `weights` may be shared;
    /// they are never changed.
    pub fn adapters(
        config: Config,
        weights: Weights,
        policies: Vec<AdapterPolicy>,
        settings: Settings,
    ) -> Result<Self, Error> {
        let members = policies
            .into_iter()
            .map(|(policy, name, adapter)| {
                let optimizer = AdamW::new(adapter.parameters(), settings.weight_decay)
                    .map_err(Error::torch(format!("optimiser of policy `{name}`")))?;
                Ok(Member { policy, name, adapter: Some(adapter), version: 0, optimizer })
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let adapters: Vec<&Adapter> = members.iter().filter_map(|member| member.adapter.as_ref()).collect();
        let gradients =
            Gradients::zeros(None, &adapters).map_err(Error::torch("gradients of the adapters"))?;
        Ok(Learner { config, base: Base::frozen(weights), members, gradients, settings })
    }

    /// A learner of one policy's weights, which are changed in place. `dtype` is the number format that they are
    /// in.
    pub fn full(
        config: Config,
        weights: Weights,
        dtype: Dtype,
        policy: usize,
        name: String,
        settings: Settings,
    ) -> Result<Self, Error> {
        let base = Base::trained(weights, dtype).map_err(Error::model(&name))?;
        let trained = base.masters().unwrap_or(base.working());
        let optimizer = AdamW::new(trained.parameters(), settings.weight_decay)
            .map_err(Error::torch(format!("optimiser of policy `{name}`")))?;
        let gradients = Gradients::zeros(Some(trained), &[])
            .map_err(Error::torch(format!("gradients of policy `{name}`")))?;
        let members = vec![Member { policy, name, adapter: None, version: 0, optimizer }];
        Ok(Learner { config, base, members, gradients, settings })
    }

    /// The policies, in the order given.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The policies' names, for messages.
    pub(crate) fn names(&self) -> String {
        let names: Vec<&str> = self.members.iter().map(|member| member.name.as_str()).collect();
        names.join("`, `")
    }

    /// The policies, to be restored from a checkpoint.
    pub(crate) fn members_mut(&mut self) -> &mut [Member] {
        &mut self.members
    }

    /// The base weights, frozen or trained.
    pub fn base(&self) -> &Base {
        &self.base
    }

    /// The model's measures.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Checks transitions of this learner's policies and plans an update over them; changes nothing. They are to
    /// be sorted by key.
    pub fn plan<'a>(&self, step: u64, samples: Vec<Sample<'a>>) -> Result<Planned<'a>, Error> {
        let sequences =
            samples.iter().map(|sample| self.sequence(step, sample)).collect::<Result<Vec<_>, Error>>()?;
        let names: Vec<&str> = self.members.iter().map(|member| member.name.as_str()).collect();
        let mini_batches = plan::plan(self.settings.seed, step, &names, &sequences, self.settings.cut);
        Ok(Planned { step, samples, sequences, mini_batches })
    }

    fn sequence(&self, step: u64, sample: &Sample<'_>) -> Result<Sequence, Error> {
        let t = sample.transition;
        let refuse = |problem: String| {
            let (task, agent) = (t.task_id.clone(), t.agent.clone());
            Error::Transition { step, task, agent, turn: t.turn, problem }
        };
        let Some(lane) = self.members.iter().position(|m| m.policy == t.policy as usize) else {
            return Err(refuse(format!("policy {} is not trained by this learner", t.policy)));
        };
        if t.prompt.is_empty() || t.completion.is_empty() {
            return Err(refuse("the prompt or the completion has no tokens".into()));
        }
        if t.completion.len() != t.logprobs.len() {
            let (tokens, logprobs) = (t.completion.len(), t.logprobs.len());
            return Err(refuse(format!("{tokens} completion tokens, but {logprobs} log-probabilities")));
        }
        let total = t.prompt.len() + t.completion.len();
        if total > self.config.max_positions {
            let most = self.config.max_positions;
            return Err(refuse(format!("{total} tokens, but the model has only {most} positions")));
        }
        if let Some(id) = t.prompt.iter().chain(&t.completion).find(|&&id| i64::from(id) >= self.config.vocab)
        {
            return Err(refuse(format!(
                "token {id} is outside of the model's vocabulary of {}",
                self.config.vocab
            )));
        }
        let numbers = t.logprobs.iter().all(|l| l.is_finite() && *l <= 1e-3)
            && sample.advantage.is_finite()
            && t.temperature.is_finite()
            && t.temperature >= 0.0;
        if !numbers {
            return Err(refuse(
                "a log-probability, the temperature or the advantage is not a number in its range".into(),
            ));
        }
        if let Some(kept) = &t.kept {
            if kept.len() != t.completion.len() {
                let (tokens, lists) = (t.completion.len(), kept.len());
                return Err(refuse(format!("{tokens} completion tokens, but {lists} lists of kept ids")));
            }
            for (id, kept) in t.completion.iter().zip(kept).filter(|(_, kept)| !kept.is_empty()) {
                if !kept.contains(id) || kept.iter().any(|&id| i64::from(id) >= self.config.vocab) {
                    return Err(refuse(format!(
                        "the ids that token {id} was drawn from are outside of the vocabulary or do not hold it"
                    )));
                }
            }
        }
        Ok(Sequence {
            // The last token of a completion predicts nothing that is trained on.
            tokens: t.prompt.iter().chain(&t.completion).take(total - 1).copied().collect(),
            prompt: t.prompt.len(),
            lane,
            targets: t.completion.len(),
            advantaged: sample.advantage != 0.0,
        })
    }

    /// Runs a planned update at learning rate `rate`. `progress` is called after each packed batch. Metrics come
    /// for every member that had transitions.
    ///
    /// After an error the learner is in no defined state; a run goes on from its last checkpoint.
    pub fn update(
        &mut self,
        planned: &Planned<'_>,
        rate: f64,
        progress: &mut dyn FnMut(),
    ) -> Result<Vec<UpdateMetrics>, Error> {
        let mut tallies = vec![Tally::default(); self.members.len()];
        for sequence in &planned.sequences {
            let tally = &mut tallies[sequence.lane];
            tally.tokens += sequence.targets as u64;
            tally.trained_tokens += if sequence.advantaged { sequence.targets as u64 } else { 0 };
        }
        for mini_batch in &planned.mini_batches {
            self.mini_batch(planned, mini_batch, rate, &mut tallies, progress).map_err(|source| {
                let names = self.names();
                match source {
                    pl_model::Error::Torch(source) => Error::Torch {
                        doing: format!("update of `{names}` in step {}", planned.step),
                        source,
                    },
                    source => Error::Model { policy: names, source },
                }
            })?;
        }
        let members = self.members.iter_mut().zip(tallies).filter(|(_, tally)| tally.tokens > 0);
        Ok(members
            .map(|(member, tally)| {
                member.version += u64::from(tally.steps > 0);
                tally.finish(&member.name, member.version, rate)
            })
            .collect())
    }

    fn mini_batch(
        &mut self,
        planned: &Planned<'_>,
        mini_batch: &MiniBatch,
        rate: f64,
        tallies: &mut [Tally],
        progress: &mut dyn FnMut(),
    ) -> Result<(), pl_model::Error> {
        for batch in &mini_batch.batches {
            self.pass(planned, mini_batch, batch, tallies)?;
            progress();
        }
        for (lane, member) in self.members.iter_mut().enumerate() {
            if !mini_batch.trains[lane] {
                continue;
            }
            let gradients = match &self.gradients.weights {
                Some(weights) => weights.parameters(),
                None => self.gradients.adapters[lane].parameters(),
            };
            let gradients = gradients.into_iter().map(|(_, gradient)| gradient).collect();
            let stepped = member.optimizer.step(gradients, rate, self.settings.max_grad_norm)?;
            let tally = &mut tallies[lane];
            tally.mini_batches += 1;
            if stepped.applied {
                tally.steps += 1;
                tally.norms += stepped.grad_norm;
            } else {
                tally.skipped += 1;
                tracing::warn!(
                    policy = member.name,
                    step = planned.step,
                    "the gradient is not finite; this optimiser step was left out"
                );
            }
        }
        self.base.publish()
    }

    /// One packed batch: forward, loss, backward. Gradients add up in the learner's.
    fn pass(
        &self,
        planned: &Planned<'_>,
        mini_batch: &MiniBatch,
        batch: &Batch,
        tallies: &mut [Tally],
    ) -> Result<(), pl_model::Error> {
        let weights = self.base.working();
        let device = weights.device();
        // Lanes are positions among the members, and so are the spans' adapters.
        let adapters: Vec<&Adapter> =
            self.members.iter().filter_map(|member| member.adapter.as_ref()).collect();
        let sequences: Vec<Tokens<'_>> = batch
            .members
            .iter()
            .map(|&index| {
                let Sequence { tokens, lane, .. } = &planned.sequences[index];
                Tokens { tokens, adapter: self.members[*lane].adapter.is_some().then_some(*lane) }
            })
            .collect();
        let (packed, rows_of) = Packed::forest(&sequences);
        let mut lanes = Vec::new();
        let (mut positions, mut tokens) = (Vec::new(), Vec::new());
        let (mut old, mut advantages) = (Vec::new(), Vec::new());
        let (mut shares, mut temperatures) = (Vec::new(), Vec::new());
        let mut kept = Kept::default();
        for (&index, rows_of) in batch.members.iter().zip(&rows_of) {
            let &Sequence { lane, targets, prompt, .. } = &planned.sequences[index];
            let Sample { transition: t, advantage } = planned.samples[index];
            positions.extend(rows_of[prompt - 1..].iter().map(|row| *row as i64));
            tokens.extend(t.completion.iter().map(|&id| i64::from(id)));
            old.extend_from_slice(&t.logprobs);
            let rows = || std::iter::repeat_n(1.0f32, targets);
            advantages.extend(rows().map(|one| one * advantage as f32));
            shares.extend(rows().map(|one| one / mini_batch.targets[lane] as f32));
            // Greedy completions carry log-probabilities of the plain softmax.
            let temperature = if t.temperature == 0.0 { 1.0 } else { t.temperature as f32 };
            temperatures.extend(rows().map(|one| one * temperature));
            match &t.kept {
                Some(lists) => lists.iter().for_each(|ids| kept.push(ids)),
                None => (0..targets).for_each(|_| kept.push(&[])),
            }
            lanes.extend(std::iter::repeat_n(lane, targets));
        }
        let column = |values: &[f32]| Tensor::f_from_slice(values)?.f_to_device(device);
        let positions = Tensor::f_from_slice(&positions)?.f_to_device(device)?;
        let tokens = Tensor::f_from_slice(&tokens)?.f_to_device(device)?;
        let (old, advantages, shares) = (column(&old)?, column(&advantages)?, column(&shares)?);
        let temperatures =
            if temperatures.iter().all(|&t| t == 1.0) { None } else { Some(column(&temperatures)?) };

        let pass = Pass::forward(&self.config, weights, &adapters, &packed, self.settings.keep)?;
        let hidden = pass.hidden().f_index_select(0, &positions)?;
        let rows = Rows {
            hidden: &hidden,
            tokens: &tokens,
            temperatures: temperatures.as_ref(),
            kept: kept.restricts().then_some(&kept),
        };
        let mut measured = Measured::default();
        let head = head::run(
            &rows,
            weights.unembed(),
            mini_batch.epoch == 0,
            head::CHUNK,
            self.gradients.weights.as_ref().map(Weights::unembed),
            |range, logp| {
                let part = |all: &Tensor| all.f_narrow(0, range.start, range.end - range.start);
                let old = part(&old)?;
                let leaf = logp.f_detach()?.f_set_requires_grad(true)?;
                let result = clipped_policy_loss(&leaf, &old, &part(&advantages)?, &self.settings.clip)?;
                let loss = result.loss.f_mul(&part(&shares)?)?;
                loss.f_sum(Kind::Float)?.f_backward()?;
                measured.loss.push(loss.f_detach()?);
                measured.clipped.push(result.clipped);
                measured.dual_clipped.push(result.dual_clipped);
                measured.kl.push(k3(logp, &old)?);
                measured.gap.push(logp.f_sub(&old)?.f_abs()?);
                leaf.f_grad()
            },
        )?;
        let mut gradient = pass.hidden().f_zeros_like()?;
        // Sequences may read one row: completions that begin alike.
        let _ = gradient.f_index_add_(0, &positions, &head.hidden_gradient)?;
        pass.backward(&gradient, &self.gradients)?;
        measured.entropy = head.entropy;
        Ok(measured.tally(&lanes, tallies)?)
    }
}

/// Per-token measurements of a pass, by chunks.
#[derive(Default)]
struct Measured {
    loss: Vec<Tensor>,
    clipped: Vec<Tensor>,
    dual_clipped: Vec<Tensor>,
    kl: Vec<Tensor>,
    gap: Vec<Tensor>,
    entropy: Option<Tensor>,
}

impl Measured {
    /// Adds each token to the tally of its lane, in order, in double precision.
    fn tally(&self, lanes: &[usize], tallies: &mut [Tally]) -> Result<(), TchError> {
        let numbers = |tensor: Tensor| Vec::<f64>::try_from(tensor.f_to_kind(Kind::Double)?);
        let all = |chunks: &[Tensor]| numbers(Tensor::f_cat(chunks, 0)?);
        let (loss, kl, gap) = (all(&self.loss)?, all(&self.kl)?, all(&self.gap)?);
        let (clipped, dual_clipped) = (all(&self.clipped)?, all(&self.dual_clipped)?);
        let entropy = self.entropy.as_ref().map(|e| numbers(e.shallow_clone())).transpose()?;
        for (row, &lane) in lanes.iter().enumerate() {
            let tally = &mut tallies[lane];
            tally.passed += 1;
            tally.loss += loss[row];
            tally.kl += kl[row];
            tally.clipped += clipped[row] as u64;
            tally.dual_clipped += dual_clipped[row] as u64;
            if let Some(entropy) = &entropy {
                tally.entropy.add(entropy[row]);
            }
            // Before the policy has moved, training and sampling should see the same distribution.
            if tally.steps + tally.skipped == 0 {
                tally.gap.add(gap[row]);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
