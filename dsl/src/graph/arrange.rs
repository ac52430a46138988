//! Our own layered layout: boxes in rows, lines between them, no box on another.
//!
//! Every layer of nodes is followed by one of labels, so that a condition is a box of its own that its line runs
//! through. A link that skips layers passes each of them at a spot without width, which all links to one node
//! share; a link that leads back up leaves to the right of everything. [`layers`](super::layers) says which node
//! stands in which layer, [`crossing`](super::crossing) where in it, [`route`](super::route) how the lines run.

use std::collections::HashMap;

use super::crossing;
use super::layers::{Layers, layers};
use super::route::{self, Wire};

/// Free room between two boxes of a layer.
const GAP: f64 = 26.0;

/// A rectangle by its left upper corner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rect {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

/// A link as the layout sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Join {
    pub from: usize,
    pub to: usize,
    /// Width and height of its label.
    pub label: Option<(f64, f64)>,
}

/// Where everything is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Arranged {
    pub nodes: Vec<Rect>,
    /// Per link: its label, where it has one.
    pub labels: Vec<Option<Rect>>,
    pub wires: Vec<Wire>,
    pub width: f64,
    pub height: f64,
}

/// Something that takes up room in a layer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Spot {
    pub kind: Kind,
    pub width: f64,
    pub height: f64,
    /// Of its middle.
    pub x: f64,
    /// Of its upper edge.
    pub y: f64,
    /// Spots of the layer above that lead here.
    pub above: Vec<usize>,
    /// Spots of the layer below that this leads to.
    pub below: Vec<usize>,
    /// The node above to which this leads back.
    pub back: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Node,
    /// The label of a link.
    Label,
    /// Where lines pass by.
    Pass,
}

/// The spots of all layers, before they have places.
pub(super) struct Scene {
    pub spots: Vec<Spot>,
    /// Those of even number hold nodes, the others labels.
    pub layers: Vec<Vec<usize>>,
    /// The layer of each spot.
    pub layer_of: Vec<usize>,
}

/// Arranges nodes of the given sizes. The first is on top, the last at the bottom.
pub(super) fn arrange(sizes: &[(f64, f64)], joins: &[Join]) -> Arranged {
    let (mut scene, label_spots) = scene(sizes, joins);
    crossing::order(&scene.spots, &mut scene.layers);
    crossing::place(&mut scene.spots, &scene.layers, GAP);
    let routed = route::route(&mut scene);
    let rect = |spot: &Spot| Rect {
        x: spot.x - spot.width / 2.0,
        y: spot.y,
        width: spot.width,
        height: spot.height,
    };
    Arranged {
        nodes: scene.spots[..sizes.len()].iter().map(rect).collect(),
        labels: label_spots
            .into_iter()
            .zip(joins)
            .map(|(spot, join)| join.label.and(spot).map(|spot| rect(&scene.spots[spot])))
            .collect(),
        wires: routed.wires,
        width: routed.width,
        height: routed.height,
    }
}

/// The spots with their neighbours, and per link the spot of its label or where it turns back.
fn scene(sizes: &[(f64, f64)], joins: &[Join]) -> (Scene, Vec<Option<usize>>) {
    let ends: Vec<(usize, usize)> = joins.iter().map(|join| (join.from, join.to)).collect();
    let Layers { of, back } = layers(sizes.len(), &ends);
    let count = of.iter().max().map_or(0, |lowest| 2 * lowest + 1);
    let mut scene = Scene { spots: Vec::new(), layers: vec![Vec::new(); count], layer_of: Vec::new() };
    for (size, layer) in sizes.iter().zip(&of) {
        scene.add(Kind::Node, *size, 2 * layer);
    }
    // Where lines to a node pass a layer.
    let mut passing: HashMap<(usize, usize), usize> = HashMap::new();
    let mut label_spots = Vec::with_capacity(joins.len());
    for (join, back) in joins.iter().zip(back) {
        let top = 2 * of[join.from];
        let target = 2 * of[join.to];
        let mut last = join.from;
        let mut next = top + 1;
        let own = back || join.label.is_some();
        label_spots.push(own.then_some(scene.spots.len()));
        if own {
            let label = scene.add(Kind::Label, join.label.unwrap_or_default(), next);
            scene.connect(last, label);
            if back {
                scene.spots[label].back = Some(join.to);
                continue;
            }
            (last, next) = (label, next + 1);
        }
        while next < target {
            let known = passing.get(&(join.to, next)).copied();
            let pass = known.unwrap_or_else(|| scene.add(Kind::Pass, (0.0, 0.0), next));
            passing.insert((join.to, next), pass);
            scene.connect(last, pass);
            // From here on the way is there already.
            if known.is_some() {
                break;
            }
            (last, next) = (pass, next + 1);
        }
        if next >= target {
            scene.connect(last, join.to);
        }
    }
    (scene, label_spots)
}

impl Scene {
    fn add(&mut self, kind: Kind, (width, height): (f64, f64), layer: usize) -> usize {
        let spot = self.spots.len();
        let (above, below) = (Vec::new(), Vec::new());
        self.spots.push(Spot { kind, width, height, x: 0.0, y: 0.0, above, below, back: None });
        self.layers[layer].push(spot);
        self.layer_of.push(layer);
        spot
    }

    fn connect(&mut self, upper: usize, lower: usize) {
        self.spots[upper].below.push(lower);
        self.spots[lower].above.push(upper);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn overlap(a: &Rect, b: &Rect) -> bool {
        a.x + 0.5 < b.x + b.width
            && b.x + 0.5 < a.x + a.width
            && a.y + 0.5 < b.y + b.height
            && b.y + 0.5 < a.y + a.height
    }

    /// Whether a line runs through the inside of a rectangle.
    fn cuts(wire: &Wire, rect: &Rect) -> bool {
        wire.points.windows(2).any(|pair| {
            let (x, y) = (pair[0].0.min(pair[1].0), pair[0].1.min(pair[1].1));
            let line = Rect {
                x: x - 0.5,
                y: y - 0.5,
                width: (pair[0].0 - pair[1].0).abs() + 1.0,
                height: (pair[0].1 - pair[1].1).abs() + 1.0,
            };
            let inner =
                Rect { x: rect.x + 1.0, y: rect.y + 1.0, width: rect.width - 2.0, height: rect.height - 2.0 };
            overlap(&line, &inner)
        })
    }

    fn sound(sizes: &[(f64, f64)], joins: &[Join]) {
        let arranged = arrange(sizes, joins);
        let boxes: Vec<&Rect> = arranged.nodes.iter().chain(arranged.labels.iter().flatten()).collect();
        for (at, one) in boxes.iter().enumerate() {
            assert!(one.x >= -0.5 && one.x + one.width <= arranged.width + 0.5, "{one:?} is outside");
            assert!(one.y >= -0.5 && one.y + one.height <= arranged.height + 0.5, "{one:?} is outside");
            for other in &boxes[at + 1..] {
                assert!(!overlap(one, other), "{one:?} is on {other:?}");
            }
            for wire in &arranged.wires {
                assert!(!cuts(wire, one), "{wire:?} runs through {one:?}");
            }
        }
        for wire in &arranged.wires {
            for (x, y) in &wire.points {
                assert!(
                    *x >= -0.5 && *x <= arranged.width + 0.5 && *y >= -0.5 && *y <= arranged.height + 0.5
                );
            }
        }
    }

    prop_compose! {
        fn graphs()(count in 2usize..14)(
            sizes in prop::collection::vec((40.0..300.0, 20.0..90.0), count),
            joins in prop::collection::vec(
                (0..count - 1, 1..count, prop::option::of((20.0..200.0, 10.0..40.0))), 1..30),
        ) -> (Vec<(f64, f64)>, Vec<Join>) {
            let joins = joins.into_iter().map(|(from, to, label)| Join { from, to, label }).collect();
            (sizes, joins)
        }
    }

    proptest! {
        #[test]
        fn nothing_lies_on_anything((sizes, joins) in graphs()) {
            sound(&sizes, &joins);
        }
    }

    #[test]
    fn two_hundred_nodes_with_many_links_are_arranged_in_time() {
        let sizes = vec![(120.0, 50.0); 202];
        let mut joins = vec![Join { from: 0, to: 1, label: None }];
        for from in 1..201 {
            for step in [1, 2, 7, 63, 150] {
                let to = (from + step) % 201 + 1;
                joins.push(Join { from, to, label: Some((60.0, 16.0)) });
            }
        }
        let before = std::time::Instant::now();
        arrange(&sizes, &joins);
        assert!(before.elapsed().as_secs() < 20, "{:?}", before.elapsed());
    }
}
