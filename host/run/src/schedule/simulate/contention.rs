//! Contention: how much longer episodes take beside others than alone.
//!
//! Episodes that share an engine share its arithmetic. Beside `n - 1` others, an episode is taken to need `1 + c (n - 1)`
//! times as long as alone: a step of the engine takes a fixed time and one for each sequence. With c = 0 episodes don't slow
//! each other down; with c = 1 the engine gives each an equal part of a fixed rate. The `c` of a run is the one with which
//! the tokens of its episodes are most nearly in proportion to the work that was done for them.

/// An episode of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecordedEpisode {
    /// Seconds on the clock of the run.
    pub start: f64,
    pub end: f64,
    /// Sampled tokens.
    pub tokens: f64,
}

/// Smallest contention above 0 that is tried.
const SMALLEST: f64 = 0.005;

/// Number of contentions that are tried, each larger than the one before by a factor of √2.
const TRIED: i32 = 21;

/// Returns the contention of a run's episodes.
pub fn contention(episodes: &[RecordedEpisode]) -> f64 {
    let tried = (0..TRIED).map(|power| SMALLEST * 2f64.powf(f64::from(power) / 2.0));
    let mut best = (0.0, misfit(episodes, 0.0));
    for contention in tried {
        let own = misfit(episodes, contention);
        if own < best.1 {
            best = (contention, own);
        }
    }
    best.0
}

/// Returns the seconds that each episode would have taken alone.
pub fn seconds_alone(episodes: &[RecordedEpisode], contention: f64) -> Vec<f64> {
    let mut moments: Vec<(f64, i64)> =
        episodes.iter().flat_map(|own| [(own.start, 1), (own.end, -1)]).collect();
    moments.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Work of an episode that has run since the first start, at each moment.
    let mut done = Vec::with_capacity(moments.len());
    let (mut work, mut running, mut last) = (0.0, 0, f64::NEG_INFINITY);
    for (moment, change) in &moments {
        if running > 0 {
            work += (moment - last) / slowdown(contention, running);
        }
        done.push(work);
        (running, last) = (running + change, *moment);
    }
    let at = |time: f64| {
        let after = moments.partition_point(|(moment, _)| *moment <= time);
        after.checked_sub(1).and_then(|index| done.get(index)).copied().unwrap_or(0.0)
    };
    episodes.iter().map(|own| at(own.end) - at(own.start)).collect()
}

/// Returns how many times longer than alone each of `running` episodes takes.
pub fn slowdown(contention: f64, running: i64) -> f64 {
    1.0 + contention * (running - 1).max(0) as f64
}

/// Returns the part of the squares of the tokens that no rate of tokens a second explains.
fn misfit(episodes: &[RecordedEpisode], contention: f64) -> f64 {
    let alone = seconds_alone(episodes, contention);
    let pairs = || episodes.iter().map(|own| own.tokens).zip(&alone);
    let products: f64 = pairs().map(|(tokens, seconds)| tokens * seconds).sum();
    let squares: f64 = alone.iter().map(|seconds| seconds * seconds).sum();
    let rate = if squares > 0.0 { products / squares } else { 0.0 };
    pairs().map(|(tokens, seconds)| (tokens - rate * seconds).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays episodes that need `alone` seconds alone, all at once, and records them.
    fn play(alone: &[f64], own: f64) -> Vec<RecordedEpisode> {
        let mut order: Vec<usize> = (0..alone.len()).collect();
        order.sort_by(|a, b| alone[*a].total_cmp(&alone[*b]));
        let mut ends = vec![0.0; alone.len()];
        let (mut now, mut done) = (0.0, 0.0);
        for (ended, index) in order.into_iter().enumerate() {
            now += (alone[index] - done) * slowdown(own, (alone.len() - ended) as i64);
            done = alone[index];
            ends[index] = now;
        }
        let episode = |(end, alone): (f64, &f64)| RecordedEpisode { start: 0.0, end, tokens: 40.0 * alone };
        ends.into_iter().zip(alone).map(episode).collect()
    }

    #[test]
    fn the_contention_of_a_run_is_found() {
        let alone = [1.0, 2.5, 3.0, 0.5, 7.0, 4.0];
        for own in [0.0, SMALLEST * 8.0, SMALLEST * 64.0] {
            let recorded = play(&alone, own);
            assert!((contention(&recorded) - own).abs() < 1e-9, "{own}");
            for (found, alone) in seconds_alone(&recorded, own).iter().zip(alone) {
                assert!((found - alone).abs() < 1e-9);
            }
        }
        assert_eq!(contention(&[]), 0.0);
        // Nothing to tell them apart by.
        assert_eq!(contention(&play(&[2.0], 1.0)), 0.0);
    }
}
