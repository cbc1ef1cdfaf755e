//! Every example runs, succeeds, and prints the expected output.

use std::process::Command;

use expect_test::{Expect, expect};

fn check(program: &str, expected: Expect) {
    let output = Command::new(program).env("ADIEU__KILL_AFTER", "none").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    expected.assert_eq(&String::from_utf8(output.stdout).unwrap());
}

#[test]
fn first() {
    check(
        env!("CARGO_BIN_EXE_01_first"),
        expect![[r#"
        open for two seconds, or until you press Ctrl-C
        no new guests
        the last guest has left
        lights out
    "#]],
    );
}

#[test]
fn phases() {
    check(
        env!("CARGO_BIN_EXE_02_phases"),
        expect![[r#"
        service-unbind over
        drain-queue over
        commit-offsets over
        service-requests-done over
        before-actor-system-terminate over
    "#]],
    );
}

#[test]
fn deadline() {
    check(
        env!("CARGO_BIN_EXE_03_deadline"),
        expect![[r#"
        does it fit? true
        does it fit? false
        export cancelled
        flushed, with time left: true
        in time: true
        exit code: 70
    "#]],
    );
}

#[test]
fn reasons() {
    check(
        env!("CARGO_BIN_EXE_04_reasons"),
        expect![[r#"
        requested by ops
        admin-endpoint, admin-endpoint, admin-endpoint
    "#]],
    );
}

#[test]
fn config() {
    check(
        env!("CARGO_BIN_EXE_05_config"),
        expect![[r#"
        worst case 15s (service-requests-done -> flush-metrics) + reserve 3s = 18s fits in 22.5s (kill-after 25s less its margin)
        unknown key kill-aftr; did you mean kill-after?
        phases.a.timeout: 5 has no unit: write 5s or 5ms
        phases.a.depends-on: phase a refers to unknown phase b
    "#]],
    );
}

#[test]
fn gate() {
    check(
        env!("CARGO_BIN_EXE_06_gate"),
        expect![[r#"
        stream closed
        nested work admitted: true
        order placed
        export cut
        too late: true
        outcome: unclean
    "#]],
    );
}

#[test]
fn serve() {
    check(
        env!("CARGO_BIN_EXE_08_serve"),
        expect![[r#"
        /readyz: ready
        /readyz: draining
        still served: hello
        slow page: worth waiting for
        refused now: true
        /livez: alive
        outcome: clean
    "#]],
    );
}

#[test]
fn consumer() {
    check(
        env!("CARGO_BIN_EXE_07_consumer"),
        expect![[r#"
        moon: failed: no moon in stock
        not started, returned: ink, soap
        tea: finished
        piano: interrupted, returned
        committed
        left
    "#]],
    );
}

#[test]
fn lifecycle() {
    check(
        env!("CARGO_BIN_EXE_09_lifecycle"),
        expect![[r#"
        in a fleet, steps that change shared state must be guarded, so that one replica at a time runs them; unguarded steps: indexes; guard each with Fleet::singleton, or with a lock of your own and Step::singleton_guarded
        connected
        closed
        failed to start up: step broker did not start: connection refused
        waves: [["postgres"], ["cache"]]
        connected
        warmed from the pool: true
        readiness: ready
        cache emptied
        closed
        outcome: clean
    "#]],
    );
}

#[test]
fn fleet_migration() {
    check(
        env!("CARGO_BIN_EXE_10_fleet_migration"),
        expect![[r#"
            attempt 1, fence 1
            work under lock schema failed: the disk is full
            attempt 2, fence 2
            an earlier attempt was started: check what it has done
            one of them ran it: true
            late: AlreadyDone
            ready: ready
        "#]],
    );
}

#[test]
fn leader() {
    check(
        env!("CARGO_BIN_EXE_11_leader"),
        expect![[r#"
        one leads with fence 1
        two: ready, leading: false
        one cleans up
        one: clean, leading: false
        two leads with fence 2
        two cleans up
        two: leading: false
        two: clean
        refused: true
    "#]],
    );
}

#[test]
fn actors_kameo() {
    check(
        env!("CARGO_BIN_EXE_12_actors_kameo"),
        expect![[r#"
        back has done tea
        back has done coffee
        back closes: actor stopped normally
        front closes: actor stopped normally
        stable closes: actor was killed
        till locked
        2 dead letters, for /user/stable
    "#]],
    );
}

#[test]
fn actors_ractor() {
    check(
        env!("CARGO_BIN_EXE_13_actors_ractor"),
        expect![[r#"
        shop
          /user
            kiosk  10 queued
            main
        a till closes with 65 coins
        swept
        a till closes with 1000 coins
        outcome: clean
        refused: true, dead letters: 1
    "#]],
    );
}

#[test]
fn worker_threads() {
    // The workers print concurrently.
    let output = Command::new(env!("CARGO_BIN_EXE_14_worker_threads")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines[..4].sort();
    expect![[r#"
        sums-0 has 1300
        sums-1 has 1225
        sums-2 has 1250
        sums-3 has 1275
        clean: true, actors: 4
        messages to workers that were not processed: 0"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn two_servers() {
    check(
        env!("CARGO_BIN_EXE_15_two_servers"),
        expect![[r#"
        gRPC health: Serving
        /readyz: draining
        slow page: worth waiting for
        refused now: true
        refused now: true
        outcome: clean
    "#]],
    );
}
