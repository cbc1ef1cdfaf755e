//! Texts and values that must not make a parser panic.

use adieu_core::{Config, Format, Shutdown};
use proptest::prelude::*;

fn formats() -> Vec<Format> {
    let mut formats = vec![Format::Toml, Format::Json];
    if cfg!(feature = "hocon") {
        formats.push(Format::Hocon);
    }
    formats
}

// Fragments of real configurations, so that the fuzzer gets past the first character.
fn fragment() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "coordinated-shutdown",
        "akka",
        "phases",
        "x",
        "depends-on",
        "timeout",
        "recover",
        "5s",
        "10 s",
        "on",
        "off",
        "infinite",
        "-1",
        "1e999",
        "99999999999999999999",
        "true",
        "null",
        "[",
        "]",
        "{",
        "}",
        "=",
        ":",
        ",",
        ".",
        "\"",
        "'",
        "\n",
        " ",
        "${x}",
        "${?x}",
        "+=",
        "#",
        "//",
        "service-stop",
        "after",
        "before",
        "kill-after",
        "reserve",
        "exit-code",
        "order",
        "reason-overrides",
        "include",
        "\"\"\"",
        "actor-system-terminate",
        "\\u0000",
        "é",
    ]);
    prop_oneof![4 => words.prop_map(str::to_owned), 1 => ".{0,4}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn s20_no_text_makes_the_parsers_panic(
        pieces in prop::collection::vec(fragment(), 0..40),
        var in "[A-Z_]{0,20}",
        value in ".{0,12}",
    ) {
        let text: String = pieces.concat();
        for format in formats() {
            let vars = [(format!("ADIEU__{var}"), value.clone())];
            // A configuration that is accepted must form a plan and a shutdown.
            let parsed = [Config::parse(&text, format), Config::parse_with_vars(&text, format, vars)];
            for config in parsed.into_iter().flatten() {
                prop_assert!(config.plan().is_ok());
                prop_assert!(Shutdown::configured(config).is_ok());
            }
        }
    }

    #[test]
    fn s20_no_value_of_any_key_makes_the_reader_panic(
        key in prop::sample::select(vec![
            "kill-after", "reserve", "strict", "order", "default-phase-timeout", "exit-code",
            "exit-jvm", "terminate-actor-system", "run-by-actor-system-terminate", "phases",
            "phases.x.timeout", "phases.x.depends-on", "phases.x.after", "phases.x.before",
            "phases.x.recover", "phases.service-stop.enabled", "reason-overrides.x.exit-code",
        ]),
        value in prop_oneof![
            "[0-9]{1,22}(ns|us|ms|s|m|h|d|y| s)?",
            "(on|off|dag|sequential|auto|none|x|x,x|service-stop|actor-system-terminate)",
            ".{0,10}",
        ],
    ) {
        let name = key.split('.').map(|part| part.to_uppercase().replace('-', "_"));
        let name = format!("ADIEU__{}", name.collect::<Vec<_>>().join("__"));
        if let Ok(config) = Config::parse_with_vars("", Format::Toml, [(name, value)]) {
            prop_assert!(Shutdown::configured(config).is_ok());
        }
    }
}

#[test]
fn s20_text_that_would_overflow_the_stack_is_an_error() {
    let many = [("ADIEU__".to_owned() + &"A__".repeat(30_000), "x".to_owned())];
    assert!(Config::parse_with_vars("", Format::Toml, many).is_err());
    if cfg!(feature = "hocon") {
        let chain: String = (0..20_000).map(|n| format!("k{} = ${{k{n}}}\n", n + 1)).collect();
        let deep = [
            "a.".repeat(20_000) + "b = 1",
            "{".repeat(20_000),
            "a = [".repeat(20_000),
            "a { ".repeat(20_000),
            format!("k0 = 1\n{chain}"),
            "a = 1\n".repeat(200_000),
        ];
        for text in deep {
            assert!(Config::parse(&text, Format::Hocon).is_err());
        }
    }
    assert!(Config::parse(&"[".repeat(100_000), Format::Json).is_err());
    assert!(Config::parse(&("a = ".to_owned() + &"[".repeat(100_000)), Format::Toml).is_err());
}
