//! The order within layers, so that few lines cross, and places that keep it.

use super::arrange::Spot;

/// Rounds of ordering and of placing; more change little.
const ROUNDS: usize = 8;

/// Which neighbours a round looks at.
#[derive(Clone, Copy)]
enum Side {
    Above,
    Below,
}

impl Side {
    fn of(self, spot: &Spot) -> &[usize] {
        match self {
            Side::Above => &spot.above,
            Side::Below => &spot.below,
        }
    }
}

/// Orders each layer by the means of where its spots' neighbours stand (the barycentre heuristic of Sugiyama,
/// Tagawa and Toda 1981), downwards and upwards in turn.
pub(super) fn order(spots: &[Spot], layers: &mut [Vec<usize>]) {
    let mut rank = vec![0.0; spots.len()];
    let number = |layer: &[usize], rank: &mut [f64]| {
        for (at, &spot) in layer.iter().enumerate() {
            rank[spot] = at as f64;
        }
    };
    for layer in layers.iter() {
        number(layer, &mut rank);
    }
    for round in 0..ROUNDS {
        let side = if round % 2 == 0 { Side::Below } else { Side::Above };
        for step in 0..layers.len() {
            let at = if round % 2 == 0 { layers.len() - 1 - step } else { step };
            let wish = |spot: usize| {
                // What leads back leaves to the right, so it has its place there.
                if matches!(side, Side::Below) && spots[spot].back.is_some() {
                    return f64::INFINITY;
                }
                let near = side.of(&spots[spot]);
                if near.is_empty() {
                    return rank[spot];
                }
                near.iter().map(|&other| rank[other]).sum::<f64>() / near.len() as f64
            };
            let mut wishes: Vec<(f64, bool, usize)> =
                layers[at].iter().map(|&spot| (wish(spot), spots[spot].back.is_some(), spot)).collect();
            // Stable: equals keep their order.
            wishes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            layers[at] = wishes.into_iter().map(|(_, _, spot)| spot).collect();
            number(&layers[at], &mut rank);
        }
    }
}

/// Moves spots sideways to where their neighbours are, as far as the order and `gap` between them allow. The
/// leftmost edge is 0 afterwards.
pub(super) fn place(spots: &mut [Spot], layers: &[Vec<usize>], gap: f64) {
    for layer in layers {
        let mut x = 0.0;
        for &spot in layer {
            x += spots[spot].width / 2.0;
            spots[spot].x = x;
            x += spots[spot].width / 2.0 + gap;
        }
    }
    for round in 0..2 * ROUNDS {
        let downwards = round % 2 == 0;
        let side = if downwards { Side::Above } else { Side::Below };
        for step in 0..layers.len() {
            let at = if downwards { step } else { layers.len() - 1 - step };
            settle(spots, &layers[at], side, gap);
        }
    }
    let left = spots.iter().map(|spot| spot.x - spot.width / 2.0).fold(f64::INFINITY, f64::min);
    for spot in spots {
        spot.x -= left;
    }
}

/// Puts a layer as near as possible, by squares, to where each spot would be on its own: neighbours that would
/// come too close move as one block (pool adjacent violators).
fn settle(spots: &mut [Spot], layer: &[usize], side: Side, gap: f64) {
    // (sum of wishes, their number, spots of the block)
    let mut blocks: Vec<(f64, f64, usize)> = Vec::new();
    // Where a spot would stand if all before it stood close together from 0 on.
    let mut shifts = Vec::with_capacity(layer.len());
    let mut shift = 0.0;
    for (at, &spot) in layer.iter().enumerate() {
        if let Some(&before) = at.checked_sub(1).and_then(|at| layer.get(at)) {
            shift += (spots[before].width + spots[spot].width) / 2.0 + gap;
        }
        shifts.push(shift);
        let near = side.of(&spots[spot]);
        let wish = match near.len() {
            0 => spots[spot].x,
            count => near.iter().map(|&other| spots[other].x).sum::<f64>() / count as f64,
        };
        // A long line that bends is worse than a box that is off its middle.
        let weight = if spots[spot].width == 0.0 { 4.0 } else { 1.0 };
        blocks.push((weight * (wish - shift), weight, 1));
        while let [.., (sum, weight, count), (next, more, others)] = blocks.as_slice()
            && sum / weight > next / more
        {
            let joined = (sum + next, weight + more, count + others);
            blocks.truncate(blocks.len() - 2);
            blocks.push(joined);
        }
    }
    let places = blocks.iter().flat_map(|(sum, weight, count)| std::iter::repeat_n(sum / weight, *count));
    for ((&spot, shift), place) in layer.iter().zip(shifts).zip(places) {
        spots[spot].x = place + shift;
    }
}
