//! Follows the frames of a WebSocket in the bytes that the application writes.
//!
//! That allows the server to write a close frame between two frames, with every WebSocket library
//! that the application may use.

/// A close frame with code 1001, "going away". Servers send frames unmasked.
pub(super) const GOING_AWAY: [u8; 4] = [0x88, 0x02, 0x03, 0xE9];

/// The position in the bytes that are written after a connection has been upgraded: the rest of the
/// response's head, then frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WebSocketFrames {
    at: FramePosition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FramePosition {
    /// In the response's head. This many bytes of the blank line that ends it have been seen.
    Head(usize),
    /// In the header of a frame, or before it if `len` is 0.
    Header { bytes: [u8; 14], len: usize },
    /// In a frame's payload.
    Payload { left: u64 },
}

const BLANK_LINE: &[u8; 4] = b"\r\n\r\n";
const BETWEEN: FramePosition = FramePosition::Header { bytes: [0; 14], len: 0 };

// === impl WebSocketFrames ===

impl WebSocketFrames {
    /// Begins before the head of the response.
    pub(super) fn new() -> Self {
        Self { at: FramePosition::Head(0) }
    }

    /// Returns whether another frame can be inserted here.
    pub(super) fn is_between(&self) -> bool {
        self.at == BETWEEN
    }

    /// Returns how many of these bytes belong to the head or frame that is being written. At least
    /// one, if `bytes` is not empty.
    pub(super) fn until_between(&self, bytes: &[u8]) -> usize {
        let mut ahead = self.clone();
        for (count, byte) in bytes.iter().enumerate() {
            if let FramePosition::Payload { left } = ahead.at {
                // Skips the rest of a payload in one step.
                let rest = usize::try_from(left).unwrap_or(usize::MAX);
                return count.saturating_add(rest).min(bytes.len());
            }
            ahead.advance(std::slice::from_ref(byte));
            if ahead.is_between() {
                return count + 1;
            }
        }
        bytes.len()
    }

    /// Advances over bytes that have been written.
    pub(super) fn advance(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            self.at = match &mut self.at {
                FramePosition::Head(seen) => {
                    bytes = rest;
                    let seen = match *seen {
                        seen if *first == BLANK_LINE[seen] => seen + 1,
                        _ => usize::from(*first == BLANK_LINE[0]),
                    };
                    if seen == BLANK_LINE.len() { BETWEEN } else { FramePosition::Head(seen) }
                }
                FramePosition::Header { bytes: header, len } => {
                    bytes = rest;
                    header[*len] = *first;
                    *len += 1;
                    match payload_of(&header[..*len]) {
                        Some(0) => BETWEEN,
                        Some(left) => FramePosition::Payload { left },
                        None => continue,
                    }
                }
                FramePosition::Payload { left } => {
                    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = &bytes[here..];
                    match *left - here as u64 {
                        0 => BETWEEN,
                        left => FramePosition::Payload { left },
                    }
                }
            };
        }
    }
}

/// Returns the length of the payload, or `None` while the header is incomplete.
fn payload_of(header: &[u8]) -> Option<u64> {
    let second = *header.get(1)?;
    let mask = if second & 0x80 > 0 { 4 } else { 0 };
    let (extended, short) = match second & 0x7F {
        126 => (2, None),
        127 => (8, None),
        len => (0, Some(u64::from(len))),
    };
    if header.len() < 2 + extended + mask {
        return None;
    }
    let long = || header[2..2 + extended].iter().fold(0, |len, byte| len << 8 | u64::from(*byte));
    Some(short.unwrap_or_else(long))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(payload: usize, masked: bool) -> Vec<u8> {
        let mask = if masked { 0x80 } else { 0 };
        let mut bytes = vec![0x82];
        match u16::try_from(payload) {
            Ok(len) if len < 126 => bytes.push(mask | u8::try_from(len).unwrap_or(0)),
            Ok(len) => {
                bytes.push(mask | 126);
                bytes.extend(len.to_be_bytes());
            }
            Err(_) => {
                bytes.push(mask | 127);
                bytes.extend((payload as u64).to_be_bytes());
            }
        }
        bytes.extend(std::iter::repeat_n(7, if masked { 4 } else { 0 }));
        bytes.extend(std::iter::repeat_n(0x88, payload));
        bytes
    }

    proptest! {
        /// The ends of frames are found regardless of how the bytes are split.
        #[test]
        fn frame_ends_are_found_in_any_split(
            frames in prop::collection::vec((0usize..70_000, any::<bool>()), 1..6),
            cuts in prop::collection::vec(1usize..5_000, 1..40),
        ) {
            let mut written = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n".to_vec();
            let mut ends = vec![written.len()];
            for (payload, masked) in frames {
                written.extend(frame(payload, masked));
                ends.push(written.len());
            }
            let mut frames = WebSocketFrames::new();
            let mut at = 0;
            let mut cuts = cuts.iter().cycle();
            while at < written.len() {
                let most = cuts.next().map_or(1, |cut| (at + cut).min(written.len()));
                let next_end = ends.iter().copied().find(|end| *end > at).unwrap_or(at);
                let here = frames.until_between(&written[at..most]);
                prop_assert_eq!(at + here, next_end.min(most));
                frames.advance(&written[at..at + here]);
                at += here;
                prop_assert_eq!(frames.is_between(), ends.contains(&at), "at {}", at);
            }
        }
    }
}
