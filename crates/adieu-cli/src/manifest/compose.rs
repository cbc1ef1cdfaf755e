//! A compose file with one service.

use super::Numbers;
use super::yaml::{block, scalar};
use crate::check::GRACE_VAR;

pub(super) fn write(numbers: &Numbers<'_>) -> String {
    let Numbers { name, image, port, grace, config, .. } = numbers;
    // A dollar sign is written twice, so that compose does not replace anything.
    let literal = |text: &str| text.replace('$', "$$");
    let mut environment = String::new();
    let (mut mount, mut configs) = (String::new(), String::new());
    if let (Some(target), Some((_, text))) = (config.target(name), &config.file) {
        environment += &format!("      ADIEU_CONFIG: {}\n", scalar(&target));
        mount = format!(
            "    configs:\n      - source: {name}-shutdown\n        target: {}\n",
            scalar(&target)
        );
        configs = format!(
            "configs:\n  # The configuration that these numbers follow from.\n  {name}-shutdown:\n    \
             content: {}",
            block(&literal(text), 4)
        );
    }
    for (variable, value) in &config.variables {
        environment += &format!("      {variable}: {}\n", scalar(&literal(value)));
    }
    let (name, image) = (scalar(name), scalar(image));
    format!(
        "\
services:
  {name}:
    image: {image}
    ports:
      - \"{port}:{port}\"
    # The worst case of the plan, with the lame duck, the exit and a margin.
    stop_grace_period: {grace}s
    environment:
      {GRACE_VAR}: \"{grace}\"
{environment}{mount}    restart: unless-stopped
{configs}"
    )
}
