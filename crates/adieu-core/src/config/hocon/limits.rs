//! Limits that keep the parser from overflowing the stack, which cannot be caught: it recurses into
//! paths, blocks and substitutions. Real configurations are far below these limits.

const MOST_BYTES: usize = 1 << 20;
const MOST_NESTED: usize = 64;
const MOST_PARTS: usize = 64;
const MOST_SUBSTITUTIONS: usize = 256;

pub(super) fn check(text: &str) -> Result<(), String> {
    if text.len() > MOST_BYTES {
        return Err(format!("the text is longer than {MOST_BYTES} bytes"));
    }
    if text.matches("${").count() > MOST_SUBSTITUTIONS {
        return Err(format!("the text has more than {MOST_SUBSTITUTIONS} substitutions"));
    }
    let (mut nested, mut parts) = (0_usize, 0_usize);
    for character in text.chars() {
        match character {
            '{' | '[' => nested += 1,
            '}' | ']' => nested = nested.saturating_sub(1),
            '.' => parts += 1,
            // These end a key, and with it its path.
            '=' | ':' | '\n' | ',' => parts = 0,
            _ => {}
        }
        if nested > MOST_NESTED || parts > MOST_PARTS {
            return Err(format!("the text is nested more than {MOST_NESTED} deep"));
        }
    }
    Ok(())
}
