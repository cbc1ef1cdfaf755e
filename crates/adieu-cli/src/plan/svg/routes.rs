//! The lines from phase to phase: between the boxes, never through a box. Lines share a lane only if
//! they come from the same phase or go to the same phase.

use std::collections::{BTreeMap, BTreeSet};

use super::{HEAD, HEIGHT, MARGIN, Place, WIDTH};

/// The distance between two lanes.
const LANE: usize = 6;
/// The room for arrows in a gap, in addition to its lanes.
const GAP_Y: usize = 24;
const GAP_X: usize = 28;
/// The distance from the middle of a phase at which bent lines leave and arrive, so that they do not
/// cover lines that go straight down.
const ASIDE: usize = 14;

/// A line from a phase to a phase that waits for it.
#[derive(Clone, Copy)]
pub(super) struct Edge {
    pub(super) from: Place,
    pub(super) to: Place,
}

/// The coordinates of all rows, columns and lanes.
pub(super) struct Routes {
    /// The start of rows and columns.
    rows: Vec<usize>,
    columns: Vec<usize>,
    /// Below each row: the lane of each phase in that row from which a line bends.
    below: BTreeMap<Place, usize>,
    /// Beside each column: the lane of each phase into which a line comes from the side.
    beside: BTreeMap<(Side, Place), usize>,
    size: (usize, usize),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Left,
    Right,
}

impl Edge {
    fn is_straight(&self) -> bool {
        self.from.column == self.to.column && self.from.row + 1 == self.to.row
    }

    /// Returns the side at which the line arrives, if it goes farther than to the next row.
    fn side(&self) -> Option<Side> {
        let is_far = self.from.row + 1 != self.to.row;
        let side = if self.from.column < self.to.column { Side::Left } else { Side::Right };
        is_far.then_some(side)
    }
}

impl Routes {
    pub(super) fn new<'a>(
        places: impl Iterator<Item = &'a Place> + Clone,
        edges: impl Iterator<Item = &'a Edge> + Clone,
    ) -> Self {
        let row_count = places.clone().map(|place| place.row + 1).max().unwrap_or(1);
        let column_count = places.map(|place| place.column + 1).max().unwrap_or(1);
        let bent = edges.clone().filter(|edge| !edge.is_straight());
        let (below, in_gap) = lanes(bent.map(|edge| (edge.from.row, edge.from)));
        // The gutter to the left of a column is the gutter to the right of the column before it.
        let sides = edges.filter_map(|edge| Some((edge.side()?, edge.to)));
        let (beside, in_gutter) = lanes(sides.map(|(side, to)| {
            let gutter = if side == Side::Left { to.column } else { to.column + 1 };
            (gutter, (side, to))
        }));

        let gutter = |column: usize| {
            let lanes = in_gutter.get(&column).copied().unwrap_or(0);
            let outer = column == 0 || column == column_count;
            // The outer gutters include the margin.
            if outer { lanes * LANE } else { GAP_X + lanes * LANE }
        };
        let mut x = MARGIN + gutter(0);
        let mut columns = Vec::new();
        for column in 0..column_count {
            columns.push(x);
            x += WIDTH + gutter(column + 1);
        }
        let mut y = MARGIN + HEAD;
        let mut rows = Vec::new();
        for row in 0..row_count {
            rows.push(y);
            y += HEIGHT + GAP_Y + LANE * in_gap.get(&row).copied().unwrap_or(0);
        }
        let size = ((x + MARGIN).max(420), y - GAP_Y + MARGIN);
        Self { rows, columns, below, beside, size }
    }

    pub(super) fn size(&self) -> (usize, usize) {
        self.size
    }

    pub(super) fn corner(&self, place: Place) -> (usize, usize) {
        let at = |all: &[usize], number: usize| all.get(number).copied().unwrap_or(0);
        (at(&self.columns, place.column), at(&self.rows, place.row))
    }

    pub(super) fn path(&self, edge: &Edge) -> String {
        let Edge { from, to } = *edge;
        let ((from_x, from_y), (to_x, to_y)) = (self.corner(from), self.corner(to));
        let y = from_y + HEIGHT;
        if edge.is_straight() {
            return format!("M{} {y}V{to_y}", from_x + WIDTH / 2);
        }
        let lane = self.below.get(&from).copied().unwrap_or(0);
        let (leave, bend) = (from_x + WIDTH / 2 - ASIDE, y + 8 + LANE * lane);
        let Some(side) = edge.side() else {
            return format!("M{leave} {y}V{bend}H{}V{to_y}", to_x + WIDTH / 2 + ASIDE);
        };
        let lane = 10 + LANE * self.beside.get(&(side, to)).copied().unwrap_or(0);
        // Lines from the left arrive above the middle, lines from the right below it, because one
        // gutter may have both.
        let (gutter, into, height) = match side {
            Side::Left => {
                // Lanes are counted from the left edge of the gutter.
                let before = to.column.checked_sub(1).and_then(|column| self.columns.get(column));
                (before.map_or(lane, |before| before + WIDTH + lane), to_x, HEIGHT / 2 - 6)
            }
            Side::Right => (to_x + WIDTH + lane, to_x + WIDTH, HEIGHT / 2 + 6),
        };
        format!("M{leave} {y}V{bend}H{gutter}V{}H{into}", to_y + height)
    }
}

/// Numbers the keys of each gap, and returns how many each gap has.
fn lanes<K: Ord + Copy>(
    keys: impl Iterator<Item = (usize, K)>,
) -> (BTreeMap<K, usize>, BTreeMap<usize, usize>) {
    let (mut lanes, mut counts) = (BTreeMap::new(), BTreeMap::new());
    for (gap, key) in keys.collect::<BTreeSet<_>>() {
        let count = counts.entry(gap).or_insert(0);
        lanes.insert(key, *count);
        *count += 1;
    }
    (lanes, counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Point = (usize, usize);

    /// Returns the straight pieces of a path such as `M1 2V3H4`.
    fn pieces(path: &str) -> Vec<(Point, Point)> {
        let (start, mut rest) = path[1..].split_at(path[1..].find(['V', 'H']).unwrap());
        let (x, y) = start.split_once(' ').unwrap();
        let mut at: Point = (x.parse().unwrap(), y.parse().unwrap());
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let end = rest[1..].find(['V', 'H']).map_or(rest.len(), |end| end + 1);
            let to = rest[1..end].parse().unwrap();
            let next = if rest.starts_with('V') { (at.0, to) } else { (to, at.1) };
            pieces.push((at, next));
            (at, rest) = (next, &rest[end..]);
        }
        pieces
    }

    /// Returns whether the interval between `a` and `b` overlaps the one between `c` and `d`.
    fn overlap((a, b): (usize, usize), (c, d): (usize, usize)) -> bool {
        a.min(b) < c.max(d) && c.min(d) < a.max(b)
    }

    fn lie_on_each_other(one: (Point, Point), other: (Point, Point)) -> bool {
        let ((a, b), (c, d)) = (one, other);
        (a.0 == b.0 && c.0 == d.0 && a.0 == c.0 && overlap((a.1, b.1), (c.1, d.1)))
            || (a.1 == b.1 && c.1 == d.1 && a.1 == c.1 && overlap((a.0, b.0), (c.0, d.0)))
    }

    #[test]
    fn no_line_crosses_a_phase_or_lies_on_one_that_it_has_nothing_to_do_with() {
        let mut random = 7_u64;
        let mut below = |most: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % most
        };
        for _ in 0..200 {
            let (rows, columns) = (2 + below(6), 1 + below(5));
            let row = |row| (0..columns).map(move |column| Place { row, column });
            let places: Vec<_> = (0..rows).flat_map(row).collect();
            let edges: Vec<_> = (0..below(30))
                .map(|_| {
                    let from = Place { row: below(rows - 1), column: below(columns) };
                    let row = from.row + 1 + below(rows - 1 - from.row);
                    Edge { from, to: Place { row, column: below(columns) } }
                })
                .collect();
            let routes = Routes::new(places.iter(), edges.iter());
            let (width, height) = routes.size();
            let drawn: Vec<_> =
                edges.iter().map(|edge| (edge, pieces(&routes.path(edge)))).collect();
            for (edge, pieces) in &drawn {
                for (from, to) in pieces {
                    assert!(from.0.max(to.0) < width && from.1.max(to.1) < height);
                    for place in &places {
                        let (x, y) = routes.corner(*place);
                        // The edge belongs to the phase.
                        let inside = (x + 1, x + WIDTH - 1);
                        let crosses = overlap((from.0.min(to.0), from.0.max(to.0) + 1), inside)
                            && overlap(
                                (from.1.min(to.1), from.1.max(to.1) + 1),
                                (y + 1, y + HEIGHT - 1),
                            );
                        assert!(!crosses, "{}", routes.path(edge));
                    }
                }
                for (other, others) in &drawn {
                    if edge.from == other.from || edge.to == other.to {
                        continue;
                    }
                    for (one, another) in
                        pieces.iter().flat_map(|one| others.iter().map(move |other| (one, other)))
                    {
                        let (path, other) = (routes.path(edge), routes.path(other));
                        assert!(!lie_on_each_other(*one, *another), "{path} and {other}");
                    }
                }
            }
        }
    }
}
