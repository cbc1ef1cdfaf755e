//! Base64, in which manifests write secrets and files.

/// Decodes a text. Returns `None` if it is invalid, or if the result is not text.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for c in text.bytes().filter(|c| !c.is_ascii_whitespace() && *c != b'=') {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded() {
        assert_eq!(decoded("NjBz").as_deref(), Some("60s"));
        assert_eq!(decoded("b3JkZXJz\nCg==").as_deref(), Some("orders\n"));
        assert_eq!((decoded("/w=="), decoded("not base64!")), (None, None));
    }
}
