//! Names of containers that follow one another: `orders-blue` and `orders-green`, `orders-old` and `orders`.

/// Last parts of names by which the containers of one service differ.
const TURNS: &str = "\
    blue green red black old new prev previous next current last backup bak canary stable a b";

/// Returns whether a container of one name may have run the service before that of the other.
pub(super) fn is_one(name: &str, of: &str) -> bool {
    name != of && !of.is_empty() && stem(name) == stem(of)
}

/// Returns the name without the part by which containers of one service differ.
fn stem(name: &str) -> &str {
    let Some((stem, last)) = name.rsplit_once(['-', '_', '.']) else { return name };
    let number = last.strip_prefix('v').unwrap_or(last);
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_turn = is_number || TURNS.split_whitespace().any(|turn| turn == last);
    if is_turn && !stem.is_empty() { stem } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1352_containers_that_take_turns_are_recognised_by_their_names() {
        for (one, other) in [
            ("orders-blue", "orders-green"),
            ("orders-old", "orders"),
            ("orders", "orders_new"),
            ("shop-orders-1", "shop-orders-2"),
            ("orders-v1", "orders-v2"),
        ] {
            assert!(is_one(one, other), "{one} {other}");
        }
        for (one, other) in
            [("orders-db", "orders"), ("orders", "orders"), ("orders-test", "orders"), ("x", "")]
        {
            assert!(!is_one(one, other), "{one} {other}");
        }
    }
}
