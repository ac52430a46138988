//! Which node stands above which: layers by the longest way from `start`, and the links that lead back up.

/// Layers of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layers {
    /// Per node, counted from the top.
    pub of: Vec<usize>,
    /// Per link: whether it leads to its own layer or back up.
    pub back: Vec<bool>,
}

/// Layers of the nodes `0..count`, of which the first stands on top and the last below all others.
pub(super) fn layers(count: usize, links: &[(usize, usize)]) -> Layers {
    let mut leaving = vec![Vec::new(); count];
    for (link, (from, _)) in links.iter().enumerate() {
        leaving[*from].push(link);
    }
    let (back, finished) = walk(&leaving, links);
    let mut of = vec![0; count];
    // What is finished last depends on nothing that is finished before: the longest way is known from there on.
    for &node in finished.iter().rev() {
        for &link in leaving[node].iter().filter(|link| !back[**link]) {
            let (_, to) = links[link];
            of[to] = of[to].max(of[node] + 1);
        }
    }
    if count > 1 {
        let lowest = of[..count - 1].iter().max().copied().unwrap_or(0);
        of[count - 1] = lowest + 1;
    }
    Layers { of, back }
}

/// Goes along the links in order of writing, deep first: the links that close a loop, and the nodes in the order
/// in which all behind them had been seen.
fn walk(leaving: &[Vec<usize>], links: &[(usize, usize)]) -> (Vec<bool>, Vec<usize>) {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        OnTheWay,
        Done,
    }
    let mut seen = vec![Seen::No; leaving.len()];
    let mut back = vec![false; links.len()];
    let mut finished = Vec::with_capacity(leaving.len());
    for root in 0..leaving.len() {
        if seen[root] != Seen::No {
            continue;
        }
        seen[root] = Seen::OnTheWay;
        // Nodes on the way, each with how many of its links are done.
        let mut way = vec![(root, 0)];
        while let Some((node, done)) = way.last_mut() {
            let node = *node;
            let Some(&link) = leaving[node].get(*done) else {
                seen[node] = Seen::Done;
                finished.push(node);
                way.pop();
                continue;
            };
            *done += 1;
            let (_, to) = links[link];
            match seen[to] {
                Seen::No => {
                    seen[to] = Seen::OnTheWay;
                    way.push((to, 0));
                }
                Seen::OnTheWay => back[link] = true,
                Seen::Done => {}
            }
        }
    }
    (back, finished)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_follow_the_longest_way_and_loops_lead_back() {
        // start -> a -> b -> c -> end, a -> c, c -> a, c -> c
        let links = [(0, 1), (1, 3), (1, 2), (2, 3), (3, 4), (3, 1), (3, 3)];
        let found = layers(5, &links);
        assert_eq!(found.of, [0, 1, 2, 3, 4]);
        assert_eq!(found.back, [false, false, false, false, false, true, true]);
    }

    #[test]
    fn the_last_node_is_the_lowest() {
        let found = layers(4, &[(0, 1), (1, 3), (1, 2), (2, 1)]);
        assert_eq!(found.of, [0, 1, 2, 3]);
    }
}
