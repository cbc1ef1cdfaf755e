//! Sorts phases or steps so that each comes after its dependencies, or returns a cycle.
//!
//! One depth-first search does both. It starts from the nodes that no other node depends on, so
//! independent chains are not interleaved, in whatever order their members were declared. A graph
//! library would sort as well, but would not return the cycle as a path.

/// Sorts `0..edges.len()`, where `edges[i]` are the nodes that `i` depends on. Returns a cycle as an
/// error, with its first node repeated at its end.
pub(crate) fn sort(edges: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let mut needed = vec![false; edges.len()];
    for &dependency in edges.iter().flatten() {
        needed[dependency] = true;
    }
    // Roots first, then every node, because a cycle may have no root.
    let roots = (0..edges.len()).filter(|&node| !needed[node]).chain(0..edges.len());

    let mut search = Search { edges, marks: vec![Mark::Unseen; edges.len()], sorted: Vec::new() };
    for root in roots {
        search.visit(root)?;
    }
    Ok(search.sorted)
}

#[derive(Clone, Copy, PartialEq)]
enum Mark {
    Unseen,
    OnPath,
    Sorted,
}

struct Search<'a> {
    edges: &'a [Vec<usize>],
    marks: Vec<Mark>,
    sorted: Vec<usize>,
}

impl Search<'_> {
    /// Visits all nodes that `root` depends on. Iterative, because recursion into a long chain would
    /// overflow the stack.
    fn visit(&mut self, root: usize) -> Result<(), Vec<usize>> {
        if self.marks[root] != Mark::Unseen {
            return Ok(());
        }
        self.marks[root] = Mark::OnPath;
        let mut path = vec![(root, 0)];
        while let Some((node, next)) = path.last_mut() {
            let node = *node;
            let Some(&dependency) = self.edges[node].get(*next) else {
                self.marks[node] = Mark::Sorted;
                self.sorted.push(node);
                path.pop();
                continue;
            };
            *next += 1;
            match self.marks[dependency] {
                Mark::Sorted => {}
                Mark::Unseen => {
                    self.marks[dependency] = Mark::OnPath;
                    path.push((dependency, 0));
                }
                Mark::OnPath => {
                    let from = path.iter().position(|&(on, _)| on == dependency).unwrap_or(0);
                    let mut cycle: Vec<usize> = path[from..].iter().map(|&(on, _)| on).collect();
                    cycle.push(dependency);
                    return Err(cycle);
                }
            }
        }
        Ok(())
    }
}
