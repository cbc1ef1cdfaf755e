//! Every order of the steps of two or three threads, in both modes.

use loom::sync::Arc;
use loom::thread::JoinHandle;

use super::*;
use crate::gate::barrier::model;

const A: ThreadIndex = ThreadIndex::of(0);
const B: ThreadIndex = ThreadIndex::of(1);

/// Runs a model in each mode, with a gate that is open.
fn in_both_modes(model: fn(Arc<Counters>)) {
    for mode in [Mode::Fenced, Mode::Asymmetric] {
        loom::model(move || model(Arc::new(Counters::in_mode(mode))));
    }
}

/// Spawns the one thread that a heavy barrier can interrupt.
fn spawn<T: 'static>(gate: &Arc<Counters>, work: fn(&Counters) -> T) -> JoinHandle<T> {
    let gate = Arc::clone(gate);
    model::spawn(move || work(&gate))
}

// Invariant 3 of the gate. Fails when `enter` loads the state before it counts; in asymmetric mode also
// when `heavy` interrupts no thread.
#[test]
fn loom_closed_and_empty_is_final() {
    in_both_modes(|gate| {
        let late = spawn(&gate, |gate| gate.enter(A));
        gate.close();
        let seen_drained = gate.is_drained();
        let entered = late.join().unwrap();
        assert!(!(seen_drained && entered), "entered a drained gate");
        assert_eq!(gate.in_flight(), usize::from(entered));
    });
}

// The same for a third thread that asks while the gate is being closed. Fails in asymmetric mode when a
// gate counts as drained before the barrier is over.
#[test]
fn loom_a_gate_is_not_drained_before_the_barrier_is_over() {
    in_both_modes(|gate| {
        let late = spawn(&gate, |gate| gate.enter(A));
        // Not interruptible: it has one step only.
        let asks = loom::thread::spawn({
            let gate = Arc::clone(&gate);
            move || gate.is_drained()
        });
        gate.close();
        let (entered, seen_drained) = (late.join().unwrap(), asks.join().unwrap());
        assert!(!(seen_drained && entered), "entered a drained gate");
    });
}

// A pass is cloned on one thread while another thread sums: never zero.
// Fails when `sum` reads `entered` before `left`.
#[test]
fn loom_a_clone_is_never_missed() {
    in_both_modes(|gate| {
        assert!(gate.enter(A));
        gate.close();
        // The spawned thread sums: loom does not interrupt the loads of the first thread, and a
        // version of this model that had them there could not fail.
        let sums = spawn(&gate, Counters::is_drained);
        gate.enter_beside(B); // The clone,
        let _ = gate.leave(B); // and its parent, which was moved to this thread.
        assert!(!sums.join().unwrap(), "the clone is still inside");
        assert_eq!(gate.in_flight(), 1);
    });
}

// Either the waiter sees the last leave, or the thread that leaves sees that it must wake the waiter.
// Fails when `leave` loads the state before it counts; in asymmetric mode also when `heavy` interrupts no
// thread.
#[test]
fn loom_the_last_leave_is_not_missed() {
    in_both_modes(|gate| {
        assert!(gate.enter(A));
        let leaver = spawn(&gate, |gate| gate.leave(A));
        gate.close();
        let seen = gate.is_drained();
        let wakes = leaver.join().unwrap();
        assert!(seen || wakes, "the waiter would wait for ever");
    });
}
