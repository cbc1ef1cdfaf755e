//! Serialises durations as milliseconds, with a resolution of a microsecond.

use serde::{Deserialize, Deserializer, Serializer};
use std::time::Duration;

pub(crate) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(millis(*duration))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    duration(f64::deserialize(from)?)
}

pub(crate) mod option {
    use super::{Deserialize, Deserializer, Duration, Serializer, duration, millis};

    #[expect(clippy::ref_option, reason = "serde's `with` requires this signature")]
    pub(crate) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => to.serialize_some(&millis(*duration)),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        Option::<f64>::deserialize(from)?.map(duration).transpose()
    }
}

fn millis(duration: Duration) -> f64 {
    // A double is exact for microseconds up to three centuries, and the quotient prints exactly.
    duration.as_micros() as f64 / 1e3
}

fn duration<E: serde::de::Error>(millis: f64) -> Result<Duration, E> {
    let exact = Duration::try_from_secs_f64(millis / 1e3).map_err(E::custom)?;
    Ok(Duration::from_micros(u64::try_from((exact.as_nanos() + 500) / 1_000).map_err(E::custom)?))
}
