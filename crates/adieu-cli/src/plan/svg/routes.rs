//! How lines go from phase to phase: between the boxes, never through one, and each where it can be
//! followed. Lines share a lane only if they come from the same phase or go to the same one.

use std::collections::{BTreeMap, BTreeSet};

use super::{HEAD, HEIGHT, MARGIN, Place, WIDTH};

/// Between two lanes.
const LANE: usize = 6;
/// What a gap has besides its lanes: room for arrows.
const GAP_Y: usize = 24;
const GAP_X: usize = 28;
/// Bent lines leave a phase beside the middle and come in on the other side of it, so that they do
/// not lie on those that go straight down.
const ASIDE: usize = 14;

/// From a phase to one that waits for it.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) from: Place,
    pub(super) to: Place,
}

/// Where everything is.
pub(super) struct Routes {
    /// Where rows and columns begin.
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

impl Way {
    fn is_straight(&self) -> bool {
        self.from.column == self.to.column && self.from.row + 1 == self.to.row
    }

    /// The side from which it comes in, if it goes farther than to the next row.
    fn side(&self) -> Option<Side> {
        let is_far = self.from.row + 1 != self.to.row;
        let side = if self.from.column < self.to.column { Side::Left } else { Side::Right };
        is_far.then_some(side)
    }
}

impl Routes {
    pub(super) fn new<'a>(
        places: impl Iterator<Item = &'a Place> + Clone,
        ways: impl Iterator<Item = &'a Way> + Clone,
    ) -> Self {
        let row_count = places.clone().map(|place| place.row + 1).max().unwrap_or(1);
        let column_count = places.map(|place| place.column + 1).max().unwrap_or(1);
        let bent = ways.clone().filter(|way| !way.is_straight());
        let (below, in_gap) = lanes(bent.map(|way| (way.from.row, way.from)));
        // The gutter on the left of a column is that on the right of the one before it.
        let sides = ways.filter_map(|way| Some((way.side()?, way.to)));
        let (beside, in_gutter) = lanes(sides.map(|(side, to)| {
            let gutter = if side == Side::Left { to.column } else { to.column + 1 };
            (gutter, (side, to))
        }));

        let gutter = |column: usize| {
            let lanes = in_gutter.get(&column).copied().unwrap_or(0);
            let outer = column == 0 || column == column_count;
            // At the edge there is the margin, too.
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

    pub(super) fn path(&self, way: &Way) -> String {
        let Way { from, to } = *way;
        let ((from_x, from_y), (to_x, to_y)) = (self.corner(from), self.corner(to));
        let y = from_y + HEIGHT;
        if way.is_straight() {
            return format!("M{} {y}V{to_y}", from_x + WIDTH / 2);
        }
        let lane = self.below.get(&from).copied().unwrap_or(0);
        let (leave, bend) = (from_x + WIDTH / 2 - ASIDE, y + 8 + LANE * lane);
        let Some(side) = way.side() else {
            return format!("M{leave} {y}V{bend}H{}V{to_y}", to_x + WIDTH / 2 + ASIDE);
        };
        let lane = 10 + LANE * self.beside.get(&(side, to)).copied().unwrap_or(0);
        let (gutter, into) = match side {
            Side::Left => {
                // Lanes are counted from the left edge of the gutter.
                let before = to.column.checked_sub(1).and_then(|column| self.columns.get(column));
                (before.map_or(lane, |before| before + WIDTH + lane), to_x)
            }
            Side::Right => (to_x + WIDTH + lane, to_x + WIDTH),
        };
        format!("M{leave} {y}V{bend}H{gutter}V{}H{into}", to_y + HEIGHT / 2)
    }
}

/// Numbers the keys of each gap, and says how many there are in it.
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
