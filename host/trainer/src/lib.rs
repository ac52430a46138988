//! Advantages, losses, learners, schedules, checkpoints.
