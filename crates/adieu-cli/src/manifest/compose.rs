//! A compose file with one service.

use super::{Numbers, scalar};
use crate::check::GRACE_VAR;

pub(super) fn write(numbers: &Numbers<'_>) -> String {
    let Numbers { name, image, port, grace, .. } = numbers;
    let (name, image) = (scalar(name), scalar(image));
    format!(
        "\
services:
  {name}:
    image: {image}
    ports:
      - \"{port}:{port}\"
    # What the plan takes at worst, with the lame duck, the exit and a margin.
    stop_grace_period: {grace}s
    environment:
      {GRACE_VAR}: \"{grace}\"
    restart: unless-stopped
"
    )
}
