//! Machines have no clock, no runtime, no log line and no `await`.

#[test]
fn machines_are_pure() {
    let sources = [
        ("allocate.rs", include_str!("allocate.rs")),
        ("commits.rs", include_str!("commits.rs")),
        ("grant.rs", include_str!("grant.rs")),
        ("handoff.rs", include_str!("handoff.rs")),
        ("link/failing.rs", include_str!("link/failing.rs")),
        ("link/frame.rs", include_str!("link/frame.rs")),
        ("link/hello.rs", include_str!("link/hello.rs")),
        ("link/inbox.rs", include_str!("link/inbox.rs")),
        ("link/machine.rs", include_str!("link/machine.rs")),
        ("link/rejections.rs", include_str!("link/rejections.rs")),
        ("leader/machine.rs", include_str!("leader/machine.rs")),
        ("member/heartbeat.rs", include_str!("member/heartbeat.rs")),
        ("member/machine.rs", include_str!("member/machine.rs")),
        ("moving.rs", include_str!("moving.rs")),
        ("node/machine.rs", include_str!("node/machine.rs")),
        ("observed.rs", include_str!("observed.rs")),
        ("region/admission.rs", include_str!("region/admission.rs")),
        ("region/machine.rs", include_str!("region/machine.rs")),
        ("route/machine.rs", include_str!("route/machine.rs")),
        ("route/message.rs", include_str!("route/message.rs")),
        ("route/repeats.rs", include_str!("route/repeats.rs")),
        ("rules.rs", include_str!("rules.rs")),
        ("view.rs", include_str!("view.rs")),
    ];
    let forbidden = [
        ".await",
        "async ",
        "tokio::",
        "now()",
        ".elapsed()",
        "SystemTime",
        "fastrand",
        "tracing::",
        "std::thread",
        "Mutex",
        "println!",
    ];
    for (name, source) in sources {
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for word in forbidden {
                assert!(!code.contains(word), "{name}:{}: {word} in a machine: {line}", number + 1);
            }
        }
    }
}
