//! Follows the frames of an HTTP/2 connection, to find out which bytes belong to responses, and which
//! responses have not ended.
//!
//! That is needed because a client can acknowledge pings without reading its response.

use super::requests::Requests;

/// The first bytes of every HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;

/// The version of HTTP on a connection, as far as its first bytes have shown.
#[derive(Debug)]
pub(super) enum Protocol {
    /// This many bytes of the preface have been seen.
    Unknown(usize),
    Http1,
    Http2(Box<Http2>),
}

/// The frames of a connection, in both directions.
#[derive(Debug, Default)]
pub(super) struct Http2 {
    read: Http2Frames,
    written: Http2Frames,
    /// The streams of responses whose head has been written and whose end has not.
    open: Vec<u32>,
    /// The last stream that the client has opened.
    last_opened: u32,
}

/// The position in the frames of one direction.
#[derive(Debug, Default)]
struct Http2Frames {
    head: [u8; 9],
    filled: usize,
    /// How many bytes of the payload are missing.
    rest: usize,
}

/// A frame, or a part of one.
struct FrameSpan {
    kind: u8,
    flags: u8,
    stream: u32,
    /// How many of the given bytes belong to it or to frames before it.
    until: usize,
    is_whole: bool,
}

// === impl Protocol ===

impl Protocol {
    pub(super) fn new() -> Self {
        Self::Unknown(0)
    }

    /// Follows bytes that have been read.
    #[inline]
    pub(super) fn read(&mut self, bytes: &[u8], requests: &Requests) {
        match self {
            Self::Http1 => {}
            Self::Http2(http2) => http2.read(bytes, requests),
            Self::Unknown(seen) => {
                let rest = &PREFACE[*seen..];
                let here = rest.len().min(bytes.len());
                if bytes[..here] != rest[..here] {
                    *self = Self::Http1;
                } else if here == rest.len() {
                    let mut http2 = Box::<Http2>::default();
                    http2.read(&bytes[here..], requests);
                    *self = Self::Http2(http2);
                } else {
                    *seen += here;
                }
            }
        }
    }
}

// === impl Http2 ===

impl Http2 {
    fn read(&mut self, bytes: &[u8], requests: &Requests) {
        let (open, last_opened) = (&mut self.open, &mut self.last_opened);
        self.read.follow(bytes, |seen| {
            if seen.kind == RST_STREAM && seen.is_whole {
                open.retain(|stream| *stream != seen.stream);
                requests.mark_ended(seen.stream, 0);
            } else if seen.kind == HEADERS && seen.stream > *last_opened {
                // Later headers on the same stream are trailers.
                *last_opened = seen.stream;
                requests.mark_arrived(seen.stream);
            }
        });
    }

    /// Follows bytes that have been written, from byte `at` of the connection. Returns the end of the
    /// last of them that belongs to a response.
    pub(super) fn wrote(&mut self, bytes: &[u8], at: u64, requests: &Requests) -> Option<u64> {
        let (open, mut until) = (&mut self.open, None);
        self.written.follow(bytes, |seen| {
            if !matches!(seen.kind, DATA | HEADERS | CONTINUATION | RST_STREAM) {
                return;
            }
            let end = at + seen.until as u64;
            until = Some(end);
            let is_last = seen.is_whole
                && (seen.kind == RST_STREAM
                    || seen.kind != CONTINUATION && seen.flags & END_STREAM != 0);
            if is_last {
                open.retain(|stream| *stream != seen.stream);
                requests.mark_ended(seen.stream, end);
            } else if seen.kind == HEADERS && !open.contains(&seen.stream) {
                open.push(seen.stream);
            }
        });
        until
    }

    pub(super) fn open_answers(&self) -> usize {
        self.open.len()
    }
}

// === impl Http2Frames ===

impl Http2Frames {
    fn follow(&mut self, bytes: &[u8], mut see: impl FnMut(FrameSpan)) {
        let mut at = 0;
        while at < bytes.len() {
            if self.filled < self.head.len() {
                let here = (self.head.len() - self.filled).min(bytes.len() - at);
                self.head[self.filled..self.filled + here].copy_from_slice(&bytes[at..at + here]);
                self.filled += here;
                at += here;
                if self.filled < self.head.len() {
                    return;
                }
                let [a, b, c, ..] = self.head;
                self.rest = u32::from_be_bytes([0, a, b, c]) as usize;
            }
            let here = self.rest.min(bytes.len() - at);
            self.rest -= here;
            at += here;
            let [_, _, _, kind, flags, stream @ ..] = self.head;
            let stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
            let is_whole = self.rest == 0;
            if is_whole {
                self.filled = 0;
            }
            see(FrameSpan { kind, flags, stream, until: at, is_whole });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: usize) -> Vec<u8> {
        let mut frame = vec![0, (payload >> 8) as u8, payload as u8, kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.resize(frame.len() + payload, b'x');
        frame
    }

    proptest! {
        /// The result does not depend on how the bytes are split.
        #[test]
        fn frames_are_followed_in_any_split(cuts in prop::collection::vec(1usize..40, 0..60)) {
            let ping = frame(6, 0, 0, 8);
            let out = [
                frame(HEADERS, 4, 1, 20), ping.clone(), frame(DATA, 0, 1, 100),
                frame(HEADERS, 4, 3, 20), frame(HEADERS, 4 | END_STREAM, 5, 20),
                frame(DATA, END_STREAM, 3, 0), ping,
            ].concat();
            let requests = Requests::default();
            let Protocol::Http2(mut http2) = ({
                let mut protocol = Protocol::new();
                let mut rest = PREFACE;
                for cut in &cuts {
                    let (piece, more) = rest.split_at((*cut).min(rest.len()));
                    protocol.read(piece, &requests);
                    rest = more;
                }
                protocol.read(rest, &requests);
                protocol
            }) else { panic!("the preface has been read") };
            let (mut rest, mut at, mut last) = (&out[..], 0, 0);
            for cut in cuts.into_iter().chain([out.len()]) {
                let (piece, more) = rest.split_at(cut.min(rest.len()));
                if let Some(until) = http2.wrote(piece, at as u64, &requests) {
                    last = until as usize;
                }
                at += piece.len();
                rest = more;
            }
            prop_assert_eq!(last, out.len() - 17, "the ping belongs to no answer");
            prop_assert_eq!(&http2.open, &[1]);
            http2.read(&frame(RST_STREAM, 0, 1, 4), &requests);
            prop_assert_eq!(http2.open_answers(), 0);
            let asked = [frame(HEADERS, 4, 7, 9), frame(DATA, 0, 7, 5), frame(HEADERS, 5, 7, 9)];
            http2.read(&[asked.concat(), frame(HEADERS, 5, 9, 9)].concat(), &requests);
            prop_assert_eq!((requests.next_stream(), requests.next_stream()), (7, 9));
            prop_assert_eq!(requests.next_stream(), 0);
        }
    }

    #[test]
    fn http1_and_http2_are_distinguished_by_their_first_bytes() {
        for first in ["GET / HTTP/1.1", "PRI * HTTP/1.1", "POST"] {
            let mut protocol = Protocol::new();
            protocol.read(first.as_bytes(), &Requests::default());
            assert!(matches!(protocol, Protocol::Http1), "{first}");
        }
    }
}
