//! Placement of a workflow on this machine: the cores or the GPU of each pool of policies and of each learner.

use pl_dsl::workflow::{DeviceSet, Policy, Workflow};
use pl_kernels::cpu::affinity;
use tch::Device;

use crate::error::Error;
use crate::error::devices::DevicesUnavailable;

/// Devices of a run.
#[derive(Debug, Clone)]
pub(crate) struct Placement {
    /// Device that the models are trained on.
    pub train: Device,
    /// Device of what has no devices of its own.
    default: Device,
    /// Cores that this process may use. Empty if the system doesn't say.
    pub cores: Vec<u32>,
}

impl Placement {
    /// Finds the devices of the policies. `default` is the device of the run.
    ///
    /// # Errors
    /// [`Error::Devices`] if a policy names a core or a GPU that is not there.
    pub fn new(workflow: &Workflow, default: Device) -> Result<Placement, Error> {
        let cores = affinity::available_cores().unwrap_or_default();
        let mut placement = Placement { train: default, default, cores };
        for policy in &workflow.policies {
            let named = [&policy.devices.rollout, &policy.devices.train].into_iter().flatten();
            for devices in named {
                placement.verify(devices).map_err(|source| unavailable(policy, source))?;
            }
            if let Some(devices) = &policy.devices.train {
                placement.train = device(devices);
            }
        }
        Ok(placement)
    }

    fn verify(&self, devices: &DeviceSet) -> Result<(), DevicesUnavailable> {
        match devices {
            DeviceSet::Cpu(cores) => match cores.iter().find(|core| !self.cores.contains(core)) {
                Some(core) => Err(DevicesUnavailable::NoCore { core: *core, available: self.cores.clone() }),
                None => Ok(()),
            },
            DeviceSet::Cuda(number) if self.default == Device::Cpu => {
                Err(DevicesUnavailable::OnCpu { number: *number })
            }
            DeviceSet::Cuda(number) => match tch::Cuda::device_count() {
                count if i64::from(*number) < count => Ok(()),
                count => Err(DevicesUnavailable::NoGpu { number: *number, count }),
            },
        }
    }

    /// Returns the device of a pool, and its cores. No cores are all of them.
    pub fn pool<'d>(&self, devices: Option<&'d DeviceSet>) -> (Device, &'d [u32]) {
        match devices {
            Some(DeviceSet::Cpu(cores)) => (Device::Cpu, cores),
            Some(devices) => (device(devices), &[]),
            None => (self.default, &[]),
        }
    }
}

/// Returns the cores that a policy is trained on. Empty for all of them.
pub(crate) fn training_cores(policy: &Policy) -> &[u32] {
    match &policy.devices.train {
        Some(DeviceSet::Cpu(cores)) => cores,
        _ => &[],
    }
}

/// Error of a policy's devices.
fn unavailable(policy: &Policy, source: DevicesUnavailable) -> Error {
    Error::Devices { policy: policy.name.clone(), source }
}

fn device(devices: &DeviceSet) -> Device {
    match devices {
        DeviceSet::Cpu(_) => Device::Cpu,
        DeviceSet::Cuda(number) => Device::Cuda(*number as usize),
    }
}
