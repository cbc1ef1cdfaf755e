//! Configuration from text: TOML here. JSON and, with the feature `hocon`, Akka's HOCON work as well.

use adieu::{Config, Format, Phase, Shutdown};

const CONFIG: &str = r#"
    [coordinated-shutdown]
    kill-after = "25s"
    drain-timeout = "12s"

    [coordinated-shutdown.phases.flush-metrics]
    after = ["before-actor-system-terminate"]
    timeout = "3s"
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = Shutdown::configured(Config::parse(CONFIG, Format::Toml)?)?;
    shutdown.add_task(Phase::SERVICE_REQUESTS_DONE, "drain", async |_| ())?;
    shutdown.add_task("flush-metrics", "push", async |_| ())?;
    println!("{}", shutdown.check_budget());

    for mistake in ["kill-aftr = '25s'", "phases.a.timeout = 5", "phases.a.depends-on = ['b']"] {
        if let Err(error) = Config::parse(mistake, Format::Toml) {
            let text = error.to_string();
            println!("{}", text.split("; known").next().unwrap_or(&text));
        }
    }
    Ok(())
}
