//! The plugin contract on top of the engine: environments, agents, rewards.
