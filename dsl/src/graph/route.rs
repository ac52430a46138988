//! How lines run: straight down, sideways on a track between two layers, and back up on rails at the right.
//!
//! All lines that end at one spot share a track, so that they meet before its top; lines with other ends have
//! tracks of their own wherever they would lie on each other.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::arrange::{Kind, Scene};

/// Between two tracks, and between a track and what is above or below.
const TRACK: f64 = 13.0;
/// Between two rails.
const RAIL: f64 = 13.0;
/// Between the boxes and the first rail.
const ASIDE: f64 = 18.0;
/// Lines nearer than this would look like one.
const NEAR: f64 = 5.0;

/// A line, always along the axes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wire {
    pub points: Vec<(f64, f64)>,
    /// Whether it ends at a node, which it points at.
    pub arrow: bool,
}

pub(super) struct Routed {
    pub wires: Vec<Wire>,
    pub width: f64,
    pub height: f64,
}

/// What the lines of a track lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Goal {
    /// A spot of the layer below.
    Spot(usize),
    /// The rail up to a node.
    Rail(usize),
}

/// Lines between two layers that share a track.
struct Net {
    /// Where lines come down from above, each with its spot.
    tops: Vec<(f64, usize)>,
    /// The rail on which lines come from below.
    side: Option<f64>,
    /// Where they lead to.
    bottom: f64,
    track: Option<usize>,
}

impl Net {
    fn span(&self) -> (f64, f64) {
        let all = || self.tops.iter().map(|(x, _)| *x).chain(self.side).chain([self.bottom]);
        (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max))
    }
}

/// Finds all lines, and with them how far apart the layers are: sets every spot's height above.
pub(super) fn route(scene: &mut Scene) -> Routed {
    let right = scene.spots.iter().map(|spot| spot.x + spot.width / 2.0).fold(0.0, f64::max);
    let rails = rails(scene, right + ASIDE);
    let width = rails.values().fold(right, |most, x| most.max(*x));
    let mut gaps = nets(scene, &rails);
    // The room between layers follows from the tracks in it, and the layers' places from both.
    let mut y = 0.0;
    let mut tracks_at = Vec::with_capacity(gaps.len());
    for (at, layer) in scene.layers.iter().enumerate() {
        let height = layer.iter().map(|&spot| scene.spots[spot].height).fold(0.0, f64::max);
        for &spot in layer {
            let spot = &mut scene.spots[spot];
            match spot.kind {
                Kind::Pass => (spot.y, spot.height) = (y, height),
                _ => spot.y = y + (height - spot.height) / 2.0,
            }
        }
        y += height;
        let Some(nets) = gaps.get_mut(at) else { continue };
        let tracks = assign(nets);
        tracks_at.push(y);
        // Empty layers of labels need no room of their own; a node needs some for the arrow above it.
        y += match tracks {
            0 if at % 2 == 0 => TRACK,
            0 => 1.5 * TRACK,
            tracks => (tracks as f64 + if at % 2 == 0 { 1.0 } else { 1.5 }) * TRACK,
        };
    }
    let wires = draw(scene, &gaps, &tracks_at, &rails);
    Routed { wires, width, height: y }
}

/// The rail to each node that something leads back to. Rails that are not beside each other share a column.
fn rails(scene: &Scene, first: f64) -> HashMap<usize, f64> {
    let mut spans: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for (spot, layer) in scene.spots.iter().zip(&scene.layer_of) {
        if let Some(target) = spot.back {
            let top = scene.layer_of[target].saturating_sub(1);
            let (_, lowest) = spans.entry(target).or_insert((top, *layer));
            *lowest = (*lowest).max(*layer);
        }
    }
    let mut spans: Vec<(usize, (usize, usize))> = spans.into_iter().collect();
    spans.sort_by_key(|(_, (top, lowest))| lowest - top);
    let mut columns: Vec<Vec<(usize, usize)>> = Vec::new();
    let mut rails = HashMap::new();
    for (target, (top, lowest)) in spans {
        let free = |column: &Vec<(usize, usize)>| column.iter().all(|(t, l)| *l < top || lowest < *t);
        let at = columns.iter().position(free).unwrap_or_else(|| {
            columns.push(Vec::new());
            columns.len() - 1
        });
        columns[at].push((top, lowest));
        rails.insert(target, first + at as f64 * RAIL);
    }
    rails
}

/// The nets of the gap below each layer but the last.
fn nets(scene: &Scene, rails: &HashMap<usize, f64>) -> Vec<BTreeMap<Goal, Net>> {
    let mut gaps: Vec<BTreeMap<Goal, Net>> = Vec::new();
    for layer in scene.layers.iter().take(scene.layers.len().saturating_sub(1)) {
        let mut nets: BTreeMap<Goal, Net> = BTreeMap::new();
        for &upper in layer {
            let spot = &scene.spots[upper];
            let back = spot.back.and_then(|target| Some((rails.get(&target)?, Goal::Rail(target))));
            let mut goals: Vec<(f64, Goal)> =
                spot.below.iter().map(|&lower| (scene.spots[lower].x, Goal::Spot(lower))).collect();
            goals.extend(back.map(|(x, goal)| (*x, goal)));
            // Lines leave in the order in which they end, so that they do not cross at once.
            goals.sort_by(|a, b| a.0.total_cmp(&b.0));
            let share = spot.width / (goals.len() + 1) as f64;
            for (at, (bottom, goal)) in goals.into_iter().enumerate() {
                let x = spot.x - spot.width / 2.0 + share * (at + 1) as f64;
                let net =
                    nets.entry(goal).or_insert(Net { tops: Vec::new(), side: None, bottom, track: None });
                net.tops.push((x, upper));
            }
        }
        gaps.push(nets);
    }
    for (&target, &x) in rails {
        let gap = scene.layer_of[target].checked_sub(1).and_then(|gap| gaps.get_mut(gap));
        if let Some(nets) = gap {
            let bottom = scene.spots[target].x;
            let net = nets.entry(Goal::Spot(target)).or_insert(Net {
                tops: Vec::new(),
                side: None,
                bottom,
                track: None,
            });
            net.side = Some(x);
        }
    }
    gaps
}

/// Gives each net that goes sideways a track, and says how many there are.
fn assign(nets: &mut BTreeMap<Goal, Net>) -> usize {
    let goals: Vec<Goal> = order(nets);
    let before = above(nets);
    // By track, the spans that are taken.
    let mut taken: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut given: HashMap<Goal, usize> = HashMap::new();
    for goal in goals {
        let Some(net) = nets.get_mut(&goal) else { continue };
        let (left, right) = net.span();
        if right - left < 0.5 {
            continue;
        }
        let least = before.get(&goal).into_iter().flatten().filter_map(|other| given.get(other));
        let least = least.max().map_or(0, |track| track + 1);
        let free = |spans: &Vec<(f64, f64)>| spans.iter().all(|(l, r)| r + NEAR < left || right + NEAR < *l);
        let found = (least..taken.len()).find(|&track| free(&taken[track]));
        let track = found.unwrap_or_else(|| {
            taken.resize_with(taken.len().max(least) + 1, Vec::new);
            taken.len() - 1
        });
        taken[track].push((left, right));
        given.insert(goal, track);
        net.track = Some(track);
    }
    taken.len()
}

/// For each net the nets whose tracks have to be above its own: where one's line comes down just above the place
/// where the other ends, they would lie on each other.
fn above(nets: &BTreeMap<Goal, Net>) -> HashMap<Goal, Vec<Goal>> {
    let mut bottoms: Vec<(f64, Goal)> = nets
        .iter()
        .filter(|(goal, _)| matches!(goal, Goal::Spot(_)))
        .map(|(goal, net)| (net.bottom, *goal))
        .collect();
    bottoms.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut before: HashMap<Goal, Vec<Goal>> = HashMap::new();
    for (goal, net) in nets {
        for (x, _) in &net.tops {
            let from = bottoms.partition_point(|(bottom, _)| *bottom < x - NEAR);
            let near = bottoms[from..].iter().take_while(|(bottom, _)| *bottom <= x + NEAR);
            for (_, other) in near.filter(|(_, other)| other != goal) {
                before.entry(*other).or_default().push(*goal);
            }
        }
    }
    before
}

/// The nets in an order in which each comes behind those that have to be above it, where that is possible.
fn order(nets: &BTreeMap<Goal, Net>) -> Vec<Goal> {
    let before = above(nets);
    let mut waiting: HashMap<Goal, usize> = nets.keys().map(|goal| (*goal, 0)).collect();
    let mut behind: HashMap<Goal, Vec<Goal>> = HashMap::new();
    for (goal, others) in &before {
        waiting.insert(*goal, others.len());
        for other in others {
            behind.entry(*other).or_default().push(*goal);
        }
    }
    let mut left: Vec<Goal> = nets.keys().copied().collect();
    left.sort_by(|a, b| nets[a].span().0.total_cmp(&nets[b].span().0));
    let mut ready: Vec<Goal> = left.iter().rev().filter(|goal| waiting[goal] == 0).copied().collect();
    let mut ordered = Vec::with_capacity(left.len());
    let mut done: HashSet<Goal> = HashSet::new();
    let mut rest = left.into_iter();
    // A ring has no right order: it is cut at its leftmost net.
    while let Some(goal) = ready.pop().or_else(|| rest.find(|goal| !done.contains(goal))) {
        if !done.insert(goal) {
            continue;
        }
        ordered.push(goal);
        for other in behind.get(&goal).into_iter().flatten() {
            if let Some(count) = waiting.get_mut(other) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    ready.push(*other);
                }
            }
        }
    }
    ordered
}

/// The lines themselves. `tops` is where each gap begins.
fn draw(scene: &Scene, gaps: &[BTreeMap<Goal, Net>], tops: &[f64], rails: &HashMap<usize, f64>) -> Vec<Wire> {
    let track_of = |gap: usize, net: &Net| tops[gap] + (net.track.unwrap_or(0) + 1) as f64 * TRACK;
    let mut wires = Vec::new();
    for (gap, nets) in gaps.iter().enumerate() {
        for (goal, net) in nets {
            let track = track_of(gap, net);
            for (x, upper) in &net.tops {
                let upper = &scene.spots[*upper];
                let mut points = vec![(*x, upper.y + upper.height)];
                match goal {
                    Goal::Spot(lower) => {
                        let lower = &scene.spots[*lower];
                        points.extend([(*x, track), (net.bottom, track)]);
                        // A line that passes by goes on to the other side of the layer.
                        let y = if lower.kind == Kind::Pass { lower.y + lower.height } else { lower.y };
                        points.push((net.bottom, y));
                        wires.push(wire(points, lower.kind == Kind::Node));
                    }
                    Goal::Rail(target) => {
                        let above = scene.layer_of[*target].saturating_sub(1);
                        let back = gaps.get(above).and_then(|nets| nets.get(&Goal::Spot(*target)));
                        let (Some(rail), Some(back)) = (rails.get(target), back) else { continue };
                        let (track_above, node) = (track_of(above, back), &scene.spots[*target]);
                        points.extend([(*x, track), (*rail, track), (*rail, track_above)]);
                        points.extend([(node.x, track_above), (node.x, node.y)]);
                        wires.push(wire(points, true));
                    }
                }
            }
        }
    }
    wires
}

/// A line without points that change nothing.
fn wire(points: Vec<(f64, f64)>, arrow: bool) -> Wire {
    let same = |a: f64, b: f64| (a - b).abs() < 0.5;
    let mut kept: Vec<(f64, f64)> = Vec::with_capacity(points.len());
    for point in points {
        if let [.., before, last] = kept.as_slice()
            && ((same(before.0, last.0) && same(last.0, point.0))
                || (same(before.1, last.1) && same(last.1, point.1)))
        {
            kept.pop();
        }
        kept.push(point);
    }
    Wire { points: kept, arrow }
}
