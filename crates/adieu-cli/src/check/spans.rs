//! Durations, as each platform writes them.

use std::time::Duration;

/// `1m30s`, `500ms`. A number alone is refused, as compose refuses it.
pub(crate) fn compose(text: &str) -> Result<Duration, String> {
    if text.parse::<f64>().is_ok() {
        return Err(format!("{text} has no unit: write {text}s"));
    }
    humantime::parse_duration(text).map_err(|_| not_one(text))
}

/// `90`, `1min 30s`, `infinity`: `None` for those that never end. Nought means that, too.
pub(crate) fn systemd(text: &str) -> Result<Option<Duration>, String> {
    if text == "infinity" {
        return Ok(None);
    }
    let span = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| not_one(text))?,
        Err(_) => humantime::parse_duration(text).map_err(|_| not_one(text))?,
    };
    Ok(Some(span).filter(|span| !span.is_zero()))
}

/// What the program `sleep` takes: `10`, `2.5`, `1m`.
pub(crate) fn sleep(text: &str) -> Option<Duration> {
    match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => humantime::parse_duration(text).ok(),
    }
}

/// What is said on the command line: with a unit, and no longer than a configuration takes.
pub(crate) fn argument(text: &str) -> Result<Duration, String> {
    let longest = Duration::from_secs(365 * 24 * 60 * 60);
    let span = compose(text)?;
    if span > longest { Err("a year is the most".into()) } else { Ok(span) }
}

fn not_one(text: &str) -> String {
    format!("{text} is no duration: write one such as 45s or 1m30s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_platform_has_its_own_way() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(compose("1m30s").ok(), seconds(90));
        assert!(compose("90").unwrap_err().contains("90s"));
        for (text, span) in [
            ("90", seconds(90)),
            ("1min 30s", seconds(90)),
            ("5min 20sec", seconds(320)),
            ("1500ms", Some(Duration::from_millis(1_500))),
            ("infinity", None),
            ("0", None),
        ] {
            assert_eq!(systemd(text), Ok(span), "{text}");
        }
        for text in ["", "soon", "-3", "1e400", "9999999999999999999999s"] {
            assert!(systemd(text).is_err() && compose(text).is_err(), "{text}");
        }
    }
}
