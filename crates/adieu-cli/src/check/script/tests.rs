//! How scripts are parsed.

use super::*;

/// Commands as `word word`, an unseen word as `?`, joined by the operator after each.
fn shown(text: &str) -> String {
    let variables = Variables::from([("DELAY".into(), "12".into())]);
    let arguments = [Word::known("sh"), Word::known("orders"), Word::known("-v")];
    let Script::Commands(commands) = read(text, &variables, &arguments) else {
        return "complex".into();
    };
    let mut shown = String::new();
    for Simple { sets, words, then, line: _ } in commands {
        let word = |word: Word| if word.is_known { word.text } else { "?".into() };
        for (name, value) in sets {
            shown += &format!("{name}:{} ", value.unwrap_or("?".into()));
        }
        shown += &words.into_iter().map(word).collect::<Vec<_>>().join(" ");
        shown += match then {
            Then::Next => ";",
            Then::And => "&&",
            Then::Or => "||",
            Then::Pipe => "|",
            Then::Background => "&",
        };
    }
    shown
}

#[test]
fn commands_in_a_row_are_read_and_nothing_else_is() {
    for (text, expected) in [
        ("sleep 5", "sleep 5;"),
        ("sleep $DELAY && echo 'a;b' \"c d\"", "sleep 12&&echo a;b c d;"),
        ("A='1 2'; sleep $A \"$A\"", "A:1 2 ;sleep ? 1 2;"),
        ("sleep ${DELAY}; sleep ${OTHER:-3}", "sleep 12;sleep ?;"),
        ("A=4; sleep $A # then\nexec orders 2>&1 >/dev/null", "A:4 ;sleep 4;exec orders;"),
        ("export A=4; sleep $A; A=$X B=2 orders", "export A=4;sleep 4;A:? B:2 orders;"),
        ("true && A=4; sleep $A", "true&&A:4 ;sleep ?;"),
        ("A=4; . ./env; sleep $A", "A:4 ;. ./env;sleep ?;"),
        ("orders & wait $!", "orders&wait ?;"),
        ("a | b || c", "a|b||c;"),
        ("sleep \\\n 7", "sleep 7;"),
        ("exec \"$@\" $1 $0 $7", "exec orders -v orders sh ?;"),
        ("orders |& tee log", "orders|tee log;"),
        ("A=4; A+=5; sleep $A", "A:4 ;A:? ;sleep ?;"),
        ("sleep ${A:=5}", "complex"),
        ("time sleep 5", "complex"),
        ("while true; do sleep 1; done", "complex"),
        ("sleep $(cat /delay)", "complex"),
        ("(sleep 5)", "complex"),
        ("sleep `cat x`", "complex"),
        ("cat <<EOF\nEOF", "complex"),
        ("echo 'open", "complex"),
        ("", ""),
    ] {
        assert_eq!(shown(text), expected, "{text}");
    }
}

#[test]
fn lines_are_split_at_white_space_that_is_not_quoted() {
    let words = split(r#"/bin/sh -c "exec orders --name 'a b'" x\ y"#);
    assert_eq!(words, ["/bin/sh", "-c", "exec orders --name 'a b'", "x y"]);
    assert_eq!(split("A=1 \"B=2 3\" ''"), ["A=1", "B=2 3", ""]);
}
