//! Checks that packed weights are not trained.

use super::resolver::{ResolvedModel, ResolvedPolicy, Resolver};
use crate::diagnostic::DiagnosticCode;

impl Resolver<'_, '_, '_> {
    /// Reports models whose matrices are packed and whose weights a policy or its critic trains.
    pub(super) fn packed_weights(&mut self, models: &[ResolvedModel], policies: &[ResolvedPolicy]) {
        for (index, resolved) in models.iter().enumerate() {
            let (Some(model), Some(location)) = (&resolved.model, resolved.dtype) else { continue };
            let Some(dtype) = model.dtype.filter(|dtype| dtype.tensors().is_none()) else { continue };
            let mut policies = policies.iter().filter_map(|one| one.policy.as_ref());
            let Some(policy) = policies.find(|policy| policy.trains_model(index)) else { continue };
            let message = format!(
                "the weights of `{}` are packed (`{dtype}`), and policy `{}` trains them",
                model.name, policy.name
            );
            self.reports
                .error(DiagnosticCode::PackedWeights, location, message, "")
                .help("train an adapter with a `lora` block, or set `dtype` to `f32`, `f16` or `bf16`");
        }
    }
}
