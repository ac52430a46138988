//! Checks `devices` blocks: that of the file, and those of policies.

use std::collections::BTreeSet;

use super::block::BlockSettings;
use super::resolver::{ResolvedPolicy, Resolver};
use crate::diagnostic::DiagnosticCode;
use crate::source::Location;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::tree::File;
use crate::workflow::{DeviceSet, Policy};

/// Largest number of a core.
const MAX_CORE: u32 = 4095;

/// Mistake in a list of devices.
enum BadDevices<'n> {
    Unknown(&'n str),
    Twice(u32),
    Mixed,
    SeveralGpus,
}

impl BadDevices<'_> {
    /// Returns the message and its help.
    fn describe(&self) -> (String, &'static str) {
        match self {
            BadDevices::Unknown(name) => (
                format!("`{name}` is not a device"),
                "a core is `cpu:0`, a range of cores `cpu:0-3`, all cores `cpu`, and a GPU `cuda:0`",
            ),
            BadDevices::Twice(core) => (format!("core {core} is listed twice"), "list each core once"),
            BadDevices::Mixed => ("a list has cores or a GPU, not both".to_owned(), "choose one of them"),
            BadDevices::SeveralGpus => (
                "several GPUs can't work as one".to_owned(),
                "list one; policies on different GPUs have `devices` of their own",
            ),
        }
    }
}

/// Parses the names of devices.
fn parse(names: &[String]) -> Result<DeviceSet, BadDevices<'_>> {
    let (mut cores, mut gpu, mut all) = (BTreeSet::new(), None, false);
    for name in names {
        let unknown = || BadDevices::Unknown(name);
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse::<u32>().ok()).flatten().filter(|number| *number <= MAX_CORE)
        };
        match name.split_once(':') {
            None if name == "cpu" => all = true,
            Some(("cuda", text)) => {
                let number = number(text).ok_or_else(unknown)?;
                if gpu.replace(number).is_some() {
                    return Err(BadDevices::SeveralGpus);
                }
            }
            Some(("cpu", text)) => {
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                let (first, last) = number(first).zip(number(last)).ok_or_else(unknown)?;
                if first > last {
                    return Err(unknown());
                }
                for core in first..=last {
                    if !cores.insert(core) {
                        return Err(BadDevices::Twice(core));
                    }
                }
            }
            _ => return Err(unknown()),
        }
    }
    match (gpu, cores) {
        (Some(gpu), cores) if cores.is_empty() && !all => Ok(DeviceSet::Cuda(gpu)),
        (Some(_), _) => Err(BadDevices::Mixed),
        (None, cores) if all => match cores.first() {
            Some(core) => Err(BadDevices::Twice(*core)),
            None => Ok(DeviceSet::Cpu(Vec::new())),
        },
        (None, cores) => Ok(DeviceSet::Cpu(cores.into_iter().collect())),
    }
}

/// Devices of a setting, with its location.
type Chosen = Option<(DeviceSet, Location)>;

impl Resolver<'_, '_, '_> {
    /// Checks the devices of the file and of each policy, and gives them to the policies.
    pub(super) fn devices(&mut self, file: &File, policies: &mut [ResolvedPolicy]) {
        let of_file = self.implied(file, BlockKind::Devices);
        let [rollout, train] = ["rollout", "train"].map(|key| self.chosen_devices(&of_file, key));
        let trains = file.blocks.iter().any(|block| block.kind == BlockKind::Train);
        let mut trained: Vec<(&Policy, DeviceSet, Location)> = Vec::new();
        for ResolvedPolicy { policy, devices, .. } in policies {
            let own = ["rollout", "train"]
                .map(|key| devices.as_ref().and_then(|own| self.chosen_devices(own, key)));
            let Some(policy) = policy else { continue };
            if let (Some(_), [Some((_, location)), _]) = (policy.server, &own) {
                let message = format!("a server generates for policy `{}`", policy.name);
                self.no_devices(*location, message, "rollout");
            }
            if let (false, [_, Some((_, location))]) = (policy.train, &own) {
                let message = format!("policy `{}` is not trained", policy.name);
                self.no_devices(*location, message, "train");
            }
            let [own_rollout, own_train] = own;
            if policy.server.is_none() {
                policy.devices.rollout = own_rollout.or_else(|| rollout.clone()).map(|(devices, _)| devices);
            }
            if let (true, true, Some((devices, location))) =
                (policy.train, trains, own_train.or_else(|| train.clone()))
            {
                policy.devices.train = Some(devices.clone());
                trained.push((policy, devices, location));
            }
        }
        self.shared_learners(&trained);
    }

    /// Returns the devices of a setting. A mistake in it is reported.
    fn chosen_devices(&mut self, own: &BlockSettings, key: &str) -> Chosen {
        let (names, location) = own.words(key).zip(own.location(key))?;
        match parse(&names) {
            Ok(devices) => Some((devices, location)),
            Err(mistake) => {
                let (message, help) = mistake.describe();
                self.reports.error(DiagnosticCode::BadSetting, location, message, "").help(help);
                None
            }
        }
    }

    fn no_devices(&mut self, location: Location, why: String, key: &str) {
        let message = format!("{why}, so `{key}` has no effect");
        self.reports.error(DiagnosticCode::NoEffect, location, message, "").help("remove it");
    }

    /// Reports policies that are trained together on different devices.
    fn shared_learners(&mut self, trained: &[(&Policy, DeviceSet, Location)]) {
        for (index, (policy, devices, location)) in trained.iter().enumerate() {
            let together = |(other, theirs, _): &&(&Policy, DeviceSet, Location)| {
                let one_model = other.model == policy.model && other.lora.is_some() && policy.lora.is_some();
                let gpus = matches!((theirs, devices), (DeviceSet::Cuda(_), DeviceSet::Cuda(_)));
                theirs != devices && (one_model || gpus)
            };
            let Some((other, theirs, _)) = trained[..index].iter().find(together) else { continue };
            let (why, help) = match devices {
                DeviceSet::Cuda(_) => ("and a run trains on one GPU", "give both the same"),
                DeviceSet::Cpu(_) => (
                    "but they are adapters on one model and are updated together",
                    "give both the same, or load the model a second time under another name",
                ),
            };
            let message = format!(
                "policies `{}` and `{}` train on {theirs} and on {devices}, {why}",
                other.name, policy.name
            );
            self.reports.error(DiagnosticCode::BadSetting, *location, message, "").help(help);
            return;
        }
    }
}
