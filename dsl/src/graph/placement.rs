//! Positions of nodes, labels and edges in a drawing.
//!
//! The layout is that of dagre: layers from top to bottom (Sugiyama, Tagawa and Toda 1981), network simplex ranks (Gansner
//! et al. 1993), horizontal coordinates by Brandes and Köpf (2001). The crate `dugong` computes it here; the JavaScript
//! library `dagre` computes the same in a browser. The result is deterministic.
//!
//! Edges are drawn as curves between layers and as vertical lines through layers, so that no edge crosses a box.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use dugong::graphlib::{EdgeKey, Graph, GraphOptions};
use dugong::{EdgeLabel, GraphLabel, LabelPos, NodeLabel};

/// Distance between two boxes of a layer.
const NODE_DISTANCE: f64 = 34.0;
/// Distance between two edges that pass through a layer.
const EDGE_DISTANCE: f64 = 18.0;
/// Distance between two layers of nodes. A layer of labels halves it.
const LAYER_DISTANCE: f64 = 68.0;
/// Smallest distance of an edge's end from the corners of its box.
const CORNER_DISTANCE: f64 = 16.0;
/// Distance between two ends of edges at a box, if there is room.
const PORT_DISTANCE: f64 = 26.0;
/// Length of the straight end of an edge, for the arrowhead.
const ARROW_LENGTH: f64 = 11.0;
/// Distance between a box and the label of an edge to itself.
const LOOP_DISTANCE: f64 = 24.0;
/// Length by which an edge stops short of its target, so that only the arrowhead touches the box.
const ARROW_GAP: f64 = 2.0;

/// Reason why a graph can't be drawn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the turn graph can't be arranged: {0}")]
pub struct PlacementError(#[from] dugong::LayoutError);

/// A rectangle by its upper left corner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rect {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

impl Rect {
    fn centered((x, y): (f64, f64), width: f64, height: f64) -> Rect {
        Rect { x: x - width / 2.0, y: y - height / 2.0, width, height }
    }

    pub fn center(&self) -> (f64, f64) {
        (self.x + self.width / 2.0, self.y + self.height / 2.0)
    }

    fn bottom(&self) -> f64 {
        self.y + self.height
    }

    fn right(&self) -> f64 {
        self.x + self.width
    }
}

/// An edge to place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct EdgeInput {
    pub from: usize,
    pub to: usize,
    /// Width and height of the label.
    pub label: Option<(f64, f64)>,
}

/// Positions of everything in a drawing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Placement {
    pub nodes: Vec<Rect>,
    pub edges: Vec<PlacedEdge>,
    pub width: f64,
    pub height: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlacedEdge {
    pub label: Option<Rect>,
    /// SVG path data from the border of the source to the border of the target.
    pub path: String,
}

/// Places nodes of the given widths and heights, and edges with distinct ends.
///
/// # Errors
/// The layout library fails, which is a bug in it.
pub(super) fn place(sizes: &[(f64, f64)], edges: &[EdgeInput]) -> Result<Placement, PlacementError> {
    let mut graph = Graph::new(GraphOptions { directed: true, multigraph: true, compound: false });
    graph.set_graph(GraphLabel {
        nodesep: NODE_DISTANCE,
        edgesep: EDGE_DISTANCE,
        ranksep: LAYER_DISTANCE,
        ..GraphLabel::default()
    });
    for (index, (width, height)) in sizes.iter().enumerate() {
        let label = NodeLabel { width: *width, height: *height, ..NodeLabel::default() };
        graph.set_node(index.to_string(), label);
    }
    for (index, edge) in edges.iter().enumerate() {
        let (width, height) = edge.label.unwrap_or_default();
        let label = EdgeLabel { width, height, labelpos: LabelPos::C, weight: 1.0, ..EdgeLabel::default() };
        let name = Some(index.to_string());
        graph.set_edge_named(edge.from.to_string(), edge.to.to_string(), name, Some(label));
    }
    dugong::layout(&mut graph)?;

    let center = |x: Option<f64>, y: Option<f64>| (x.unwrap_or_default(), y.unwrap_or_default());
    let nodes: Vec<Rect> = sizes
        .iter()
        .enumerate()
        .map(|(index, (width, height))| {
            let label = graph.node(&index.to_string());
            let (x, y) = label.map_or((None, None), |label| (label.x, label.y));
            Rect::centered(center(x, y), *width, *height)
        })
        .collect();
    let routed: Vec<Option<&EdgeLabel>> = edges
        .iter()
        .enumerate()
        .map(|(index, edge)| {
            let (v, w) = (edge.from.to_string(), edge.to.to_string());
            graph.edge_by_key(&EdgeKey { v, w, name: Some(index.to_string()) })
        })
        .collect();
    let label_centers: Vec<(f64, f64)> = edges
        .iter()
        .zip(&routed)
        .map(|(edge, routed)| {
            let (x, y) = routed.map_or((0.0, 0.0), |routed| center(routed.x, routed.y));
            if edge.from != edge.to {
                return (x, y);
            }
            // dagre may leave more space than necessary; nothing else is between a box and its loop.
            let width = edge.label.map_or(LOOP_DISTANCE, |(width, _)| width);
            (x.min(nodes[edge.from].right() + LOOP_DISTANCE + width / 2.0), y)
        })
        .collect();
    let labels: Vec<Option<Rect>> = edges
        .iter()
        .zip(&label_centers)
        .map(|(edge, center)| edge.label.map(|(width, height)| Rect::centered(*center, width, height)))
        .collect();
    let points: Vec<Vec<(f64, f64)>> = routed
        .iter()
        .map(|routed| {
            routed.map_or_else(Vec::new, |routed| {
                routed.points.iter().map(|point| (point.x, point.y)).collect()
            })
        })
        .collect();
    let ports = ports(&nodes, edges, &points);
    let bands = Bands::new(nodes.iter().chain(labels.iter().flatten()));
    let mut placed = Vec::with_capacity(edges.len());
    for (index, (edge, label)) in edges.iter().zip(labels).enumerate() {
        let (source, target) = (&nodes[edge.from], &nodes[edge.to]);
        let path = if edge.from == edge.to {
            loop_path(source, label_centers[index], label)
        } else {
            path((source, target), ports[index], &points[index], &bands)
        };
        placed.push(PlacedEdge { label, path });
    }
    let boxes = || nodes.iter().chain(placed.iter().filter_map(|edge| edge.label.as_ref()));
    let width = boxes().map(Rect::right).fold(graph.graph().width, f64::max);
    let height = boxes().map(Rect::bottom).fold(graph.graph().height, f64::max);
    Ok(Placement { nodes, edges: placed, width, height })
}

/// Heights of the layers, by the vertical position of their center.
struct Bands(HashMap<i64, f64>);

impl Bands {
    fn new<'a>(boxes: impl Iterator<Item = &'a Rect>) -> Bands {
        let mut bands = HashMap::new();
        for rect in boxes {
            let height = bands.entry(Bands::key(rect.center().1)).or_insert(0.0_f64);
            *height = height.max(rect.height);
        }
        Bands(bands)
    }

    #[allow(clippy::cast_possible_truncation, reason = "a drawing is far smaller than the range of i64")]
    fn key(y: f64) -> i64 {
        (y * 4.0).round() as i64
    }

    /// Half of the height of the layer at `y`.
    fn half_height(&self, y: f64) -> f64 {
        self.0.get(&Bands::key(y)).copied().unwrap_or_default() / 2.0
    }
}

/// End of an edge at a side of a box.
struct EdgeEnd {
    /// Horizontal position at which the edge continues.
    continues_at: f64,
    /// Index of the edge.
    edge: usize,
    is_start: bool,
}

/// Horizontal positions of the start and end of each edge. The ends on one side of a box are in the order in which their
/// edges continue, as close as possible to the position of the next point.
fn ports(nodes: &[Rect], edges: &[EdgeInput], points: &[Vec<(f64, f64)>]) -> Vec<(f64, f64)> {
    let mut sides: BTreeMap<(usize, bool), Vec<EdgeEnd>> = BTreeMap::new();
    for (index, (edge, points)) in
        edges.iter().zip(points).enumerate().filter(|(_, (edge, _))| edge.from != edge.to)
    {
        let down = nodes[edge.from].center().1 <= nodes[edge.to].center().1;
        let inner = points.get(1..points.len().saturating_sub(1)).unwrap_or_default();
        let next = inner.first().map_or(nodes[edge.to].center().0, |point| point.0);
        let previous = inner.last().map_or(nodes[edge.from].center().0, |point| point.0);
        sides.entry((edge.from, down)).or_default().push(EdgeEnd {
            continues_at: next,
            edge: index,
            is_start: true,
        });
        sides.entry((edge.to, !down)).or_default().push(EdgeEnd {
            continues_at: previous,
            edge: index,
            is_start: false,
        });
    }
    let mut ports = vec![(0.0, 0.0); edges.len()];
    for ((node, _), mut ends) in sides {
        ends.sort_by(|a, b| a.continues_at.total_cmp(&b.continues_at).then(a.edge.cmp(&b.edge)));
        let rect = &nodes[node];
        let margin = CORNER_DISTANCE.min(rect.width / 2.0);
        let (left, right) = (rect.x + margin, rect.right() - margin);
        let distance = PORT_DISTANCE.min((right - left) / ends.len() as f64);
        // From the left, each end moves right until it is far enough from the previous one; then from the right.
        let mut positions: Vec<f64> = ends.iter().map(|end| end.continues_at.clamp(left, right)).collect();
        let mut least = left;
        for x in &mut positions {
            *x = x.max(least);
            least = *x + distance;
        }
        let mut most = right;
        for x in positions.iter_mut().rev() {
            *x = x.min(most);
            most = *x - distance;
        }
        for (EdgeEnd { edge, is_start, .. }, x) in ends.into_iter().zip(positions) {
            let port = &mut ports[edge];
            *(if is_start { &mut port.0 } else { &mut port.1 }) = x;
        }
    }
    ports
}

/// Path of an edge from port to port through `points`, of which the first and last are on the borders of its boxes and the
/// others in the centers of layers.
fn path(
    (source, target): (&Rect, &Rect),
    (start, end): (f64, f64),
    points: &[(f64, f64)],
    bands: &Bands,
) -> String {
    let inner = points.get(1..points.len().saturating_sub(1)).unwrap_or_default();
    let down = if source.center().1 <= target.center().1 { 1.0 } else { -1.0 };
    let edge_of = |rect: &Rect, direction: f64| rect.center().1 + direction * rect.height / 2.0;
    let edge_of_band = |y: f64, direction: f64| y + direction * bands.half_height(y);
    let mut pen = Pen::start(start, edge_of(source, down));
    pen.vertical(edge_of_band(source.center().1, down));
    for &(x, y) in inner {
        pen.curve(x, edge_of_band(y, -down));
        pen.vertical(edge_of_band(y, down));
    }
    pen.curve(end, edge_of_band(target.center().1, -down) - down * ARROW_LENGTH);
    pen.vertical(edge_of(target, -down) - down * ARROW_GAP);
    pen.data
}

/// Path of an edge from a node to itself: out of its right side, behind the label, and back.
fn loop_path(node: &Rect, (x, y): (f64, f64), label: Option<Rect>) -> String {
    let outside = label.map_or(4.0, |label| label.height / 2.0 + 6.0);
    let reach = outside.min(node.height / 2.0 - 8.0).max(4.0);
    let radius = reach.min(10.0);
    let (left, top, bottom) = (node.right(), y - reach, y + reach);
    format!(
        "M{left:.1} {top:.1}H{:.1}Q{x:.1} {top:.1} {x:.1} {:.1}V{:.1}Q{x:.1} {bottom:.1} {:.1} {bottom:.1}H{:.1}",
        x - radius,
        top + radius,
        bottom - radius,
        x - radius,
        left + ARROW_GAP,
    )
}

/// Writer of SVG path data.
struct Pen {
    data: String,
    x: f64,
    y: f64,
}

impl Pen {
    fn start(x: f64, y: f64) -> Pen {
        Pen { data: format!("M{x:.1} {y:.1}"), x, y }
    }

    fn vertical(&mut self, y: f64) {
        if (y - self.y).abs() > 0.05 {
            let _ = write!(self.data, "V{y:.1}");
            self.y = y;
        }
    }

    /// Curve that is vertical at both ends.
    fn curve(&mut self, x: f64, y: f64) {
        if (x - self.x).abs() < 0.5 {
            return self.vertical(y);
        }
        let middle = f64::midpoint(self.y, y);
        let _ = write!(self.data, "C{:.1} {middle:.1} {x:.1} {middle:.1} {x:.1} {y:.1}", self.x);
        (self.x, self.y) = (x, y);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn overlap(a: &Rect, b: &Rect) -> bool {
        a.x + 0.5 < b.right() && b.x + 0.5 < a.right() && a.y + 0.5 < b.bottom() && b.y + 0.5 < a.bottom()
    }

    /// Points of a path as the corners of the convex hulls of its segments.
    fn segments(path: &str) -> Vec<Vec<(f64, f64)>> {
        let mut segments = Vec::new();
        let mut last = (0.0, 0.0);
        let spaced: String = path
            .chars()
            .flat_map(|one| if one.is_ascii_alphabetic() { vec![' ', one, ' '] } else { vec![one] })
            .collect();
        let mut words = spaced.split_whitespace().peekable();
        while let Some(command) = words.next() {
            let mut numbers = Vec::new();
            while let Some(number) =
                words.next_if(|word| !word.starts_with(|one: char| one.is_ascii_alphabetic()))
            {
                numbers.push(number.parse::<f64>().unwrap());
            }
            let points: Vec<(f64, f64)> = match command {
                "V" => vec![(last.0, numbers[0])],
                "H" => vec![(numbers[0], last.1)],
                _ => numbers.chunks(2).map(|pair| (pair[0], pair[1])).collect(),
            };
            if command != "M" {
                segments.push(std::iter::once(last).chain(points.iter().copied()).collect());
            }
            last = *points.last().unwrap();
        }
        segments
    }

    /// True if the convex hull of a segment may cross the inside of a rectangle.
    fn crosses(segment: &[(f64, f64)], rect: &Rect) -> bool {
        let bound = |of: fn(&(f64, f64)) -> f64, fold: fn(f64, f64) -> f64, start: f64| {
            segment.iter().map(of).fold(start, fold)
        };
        let (left, right) =
            (bound(|p| p.0, f64::min, f64::INFINITY), bound(|p| p.0, f64::max, f64::NEG_INFINITY));
        let (top, bottom) =
            (bound(|p| p.1, f64::min, f64::INFINITY), bound(|p| p.1, f64::max, f64::NEG_INFINITY));
        left < rect.right() - 1.0
            && rect.x + 1.0 < right
            && top < rect.bottom() - 1.0
            && rect.y + 1.0 < bottom
    }

    prop_compose! {
        fn graphs()(count in 2usize..14)(
            sizes in prop::collection::vec((40.0..300.0, 30.0..90.0), count),
            edges in prop::collection::vec(
                (0..count, 0..count, prop::option::of((20.0..200.0, 10.0..40.0))), 1..30),
        ) -> (Vec<(f64, f64)>, Vec<EdgeInput>) {
            let edges: BTreeMap<(usize, usize), _> =
                edges.into_iter().map(|(from, to, label)| ((from, to), label)).collect();
            let edges = edges.into_iter().map(|((from, to), label)| EdgeInput { from, to, label }).collect();
            (sizes, edges)
        }
    }

    proptest! {
        /// No box overlaps another, no edge crosses a box, and all is within the drawing.
        #[test]
        fn nothing_overlaps((sizes, edges) in graphs()) {
            let placement = place(&sizes, &edges).unwrap();
            let labels = placement.edges.iter().filter_map(|edge| edge.label.as_ref());
            let boxes: Vec<&Rect> = placement.nodes.iter().chain(labels).collect();
            for (index, one) in boxes.iter().enumerate() {
                prop_assert!(one.x >= -0.5 && one.right() <= placement.width + 0.5, "{:?} is outside", one);
                prop_assert!(one.y >= -0.5 && one.bottom() <= placement.height + 0.5, "{:?} is outside", one);
                for other in &boxes[index + 1..] {
                    prop_assert!(!overlap(one, other), "{:?} overlaps {:?}", one, other);
                }
            }
            for (edge, placed) in edges.iter().zip(&placement.edges) {
                prop_assert!(placed.path.starts_with('M'), "no path");
                if edge.from == edge.to {
                    continue;
                }
                let other_labels = placement.edges.iter().filter(|other| !std::ptr::eq(*other, placed));
                let other_labels: Vec<&Rect> = other_labels.filter_map(|other| other.label.as_ref()).collect();
                for segment in segments(&placed.path) {
                    for rect in placement.nodes.iter().chain(other_labels.iter().copied()) {
                        prop_assert!(!crosses(&segment, rect), "{} crosses {:?}", placed.path, rect);
                    }
                }
            }
            prop_assert_eq!(place(&sizes, &edges).unwrap(), placement);
        }
    }

    #[test]
    fn five_hundred_nodes_are_placed() {
        let sizes = vec![(120.0, 50.0); 502];
        let mut edges = vec![EdgeInput { from: 0, to: 1, label: None }];
        for from in 1..501 {
            for step in [1, 7] {
                let to = (from + step) % 501 + 1;
                edges.push(EdgeInput { from, to, label: Some((60.0, 16.0)) });
            }
        }
        assert_eq!(place(&sizes, &edges).unwrap().nodes.len(), 502);
    }
}
