//! The frames of a link, as protobuf messages.
//!
//! The messages are derived here, so that a build needs no protoc. Fields are only ever added: a
//! node skips fields that its build does not define.

use std::sync::Arc;

use bytes::Bytes;

use super::limits::LONGEST_TEXT;
use crate::records::{NodeId, ShardId};
use crate::store::Revision;
use crate::time::{Duration, Instant, LONGEST};
use crate::transport::{Envelope, MessageId, Peer, Refusal, Reply, Ticket};

/// From the node that has dialled.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Forward {
    /// The first frame, and only that one, has it.
    #[prost(message, optional, tag = "1")]
    pub(crate) hello: Option<Hello>,
    /// The number of the first envelope of this frame. The first of a link is 1.
    #[prost(uint64, tag = "2")]
    pub(crate) first: u64,
    #[prost(message, repeated, tag = "3")]
    pub(crate) envelopes: Vec<Parcel>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) prepares: Vec<Prepare>,
}

/// From the node that was dialled.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Backward {
    /// The first frame, and only that one, has it.
    #[prost(message, optional, tag = "1")]
    pub(crate) welcome: Option<Welcome>,
    /// Each envelope up to this number was admitted, unless a frame has refused it.
    #[prost(uint64, tag = "2")]
    pub(crate) decided: u64,
    /// Envelopes after `decided` that were admitted.
    #[prost(uint64, repeated, tag = "3")]
    pub(crate) admitted: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) refused: Vec<Refused>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) replied: Vec<Replied>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) prepared: Vec<Prepared>,
    /// The last frame has it, if the link ends in order.
    #[prost(message, optional, tag = "7")]
    pub(crate) bye: Option<Bye>,
}

/// How a node announces itself.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Hello {
    #[prost(string, tag = "1")]
    pub(crate) cluster: String,
    #[prost(string, tag = "2")]
    pub(crate) node: String,
    #[prost(uint64, tag = "3")]
    pub(crate) incarnation: u64,
    /// The peer to which the link is addressed: another process may have taken over the address.
    #[prost(string, tag = "4")]
    pub(crate) to: String,
    #[prost(uint64, tag = "5")]
    pub(crate) to_incarnation: u64,
    #[prost(uint32, tag = "6")]
    pub(crate) oldest_protocol: u32,
    #[prost(uint32, tag = "7")]
    pub(crate) newest_protocol: u32,
    #[prost(string, tag = "8")]
    pub(crate) build: String,
    /// Rises with each link that this node dials.
    #[prost(uint64, tag = "9")]
    pub(crate) link: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Welcome {
    #[prost(uint32, tag = "1")]
    pub(crate) protocol: u32,
    #[prost(string, tag = "2")]
    pub(crate) build: String,
}

/// An envelope.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Parcel {
    #[prost(string, tag = "1")]
    pub(crate) region: String,
    #[prost(uint32, tag = "2")]
    pub(crate) shard: u32,
    #[prost(uint64, tag = "3")]
    pub(crate) epoch: u64,
    #[prost(string, tag = "4")]
    pub(crate) entity: String,
    #[prost(uint64, tag = "5")]
    pub(crate) incarnation: u64,
    #[prost(uint64, tag = "6")]
    pub(crate) sequence: u64,
    #[prost(bool, tag = "7")]
    pub(crate) is_ask: bool,
    #[prost(bool, tag = "8")]
    pub(crate) is_nested: bool,
    #[prost(uint64, tag = "9")]
    pub(crate) remaining_micros: u64,
    #[prost(bytes = "bytes", tag = "10")]
    pub(crate) payload: Bytes,
    /// A build without this field cannot decode the payload, and refuses the message.
    #[prost(bool, tag = "11")]
    pub(crate) is_request: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Prepare {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(string, tag = "2")]
    pub(crate) region: String,
    #[prost(uint32, tag = "3")]
    pub(crate) shard: u32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Prepared {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    /// Why the peer declines.
    #[prost(string, optional, tag = "2")]
    pub(crate) declined: Option<String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Refused {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    #[prost(message, optional, tag = "2")]
    pub(crate) why: Option<Why>,
}

/// A refusal.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Why {
    #[prost(uint32, tag = "1")]
    pub(crate) kind: u32,
    #[prost(string, tag = "2")]
    pub(crate) text: String,
    #[prost(string, tag = "3")]
    pub(crate) owner: String,
    #[prost(uint64, tag = "4")]
    pub(crate) owner_incarnation: u64,
    #[prost(uint64, tag = "5")]
    pub(crate) epoch: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Replied {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    #[prost(uint32, tag = "2")]
    pub(crate) kind: u32,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) payload: Bytes,
    #[prost(message, optional, tag = "4")]
    pub(crate) why: Option<Why>,
    #[prost(string, tag = "5")]
    pub(crate) text: String,
}

/// The node that was dialled ends the link, and reads no envelope after this one.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Bye {
    #[prost(uint64, tag = "1")]
    pub(crate) last_read: u64,
}

// The numbers of refusals and replies. A number has the same meaning in every build.
const MOVING: u32 = 1;
const BUSY: u32 = 2;
const OVERLOADED: u32 = 3;
const EXPIRED: u32 = 4;
const UNSUPPORTED: u32 = 5;
const DRAINING: u32 = 6;

const DONE: u32 = 1;
const NOT_RUN: u32 = 2;
const UNKNOWN: u32 = 3;

// === impl Parcel ===

impl Parcel {
    pub(crate) fn pack(envelope: Envelope, now: Instant) -> Self {
        let Envelope {
            shard,
            epoch,
            entity,
            id,
            is_ask,
            is_nested,
            is_request,
            deadline,
            payload,
            ticket: _,
        } = envelope;
        let remaining = deadline.saturating_duration_since(now);
        Self {
            region: shard.region.as_ref().to_owned(),
            shard: shard.number,
            epoch: epoch.get(),
            entity: entity.as_ref().to_owned(),
            incarnation: id.incarnation.get(),
            sequence: id.sequence,
            is_ask,
            is_nested,
            is_request,
            remaining_micros: u64::try_from(remaining.as_micros()).unwrap_or(u64::MAX),
            payload,
        }
    }

    pub(crate) fn unpack(self, now: Instant) -> Envelope {
        let remaining = Duration::from_micros(self.remaining_micros).min(LONGEST);
        Envelope {
            shard: ShardId { region: self.region.into(), number: self.shard },
            epoch: Revision::new(self.epoch),
            entity: Arc::from(self.entity),
            id: MessageId { incarnation: Revision::new(self.incarnation), sequence: self.sequence },
            is_ask: self.is_ask,
            is_nested: self.is_nested,
            is_request: self.is_request,
            deadline: now + remaining,
            payload: self.payload,
            ticket: Ticket::default(),
        }
    }
}

/// Returns the size of an envelope for the bounds of a link: its payload, its names, and the fields
/// of fixed size.
pub(crate) fn size_of(envelope: &Envelope) -> usize {
    envelope.payload.len() + envelope.entity.len() + envelope.shard.region.len() + 64
}

// === impl Why ===

impl From<Refusal> for Why {
    fn from(refusal: Refusal) -> Self {
        let why = |kind, text| Self { kind, text: short(text), ..Self::default() };
        match refusal {
            Refusal::Moving { newer: None } => why(MOVING, String::new()),
            Refusal::Moving { newer: Some((owner, epoch)) } => Self {
                owner: owner.id.as_str().to_owned(),
                owner_incarnation: owner.incarnation.get(),
                epoch: epoch.get(),
                ..why(MOVING, String::new())
            },
            Refusal::Busy => why(BUSY, String::new()),
            Refusal::Overloaded(text) => why(OVERLOADED, text),
            Refusal::Expired => why(EXPIRED, String::new()),
            Refusal::Unsupported(text) => why(UNSUPPORTED, text),
            Refusal::Draining => why(DRAINING, String::new()),
        }
    }
}

impl From<Option<Why>> for Refusal {
    fn from(why: Option<Why>) -> Self {
        let Why { kind, text, owner, owner_incarnation, epoch } = why.unwrap_or_default();
        let owner = NodeId::new(owner).ok().map(|id| {
            let incarnation = Revision::new(owner_incarnation);
            Peer { id, incarnation }
        });
        match kind {
            MOVING => Self::Moving { newer: owner.map(|owner| (owner, Revision::new(epoch))) },
            BUSY => Self::Busy,
            OVERLOADED => Self::Overloaded(text),
            EXPIRED => Self::Expired,
            UNSUPPORTED => Self::Unsupported(text),
            DRAINING => Self::Draining,
            // Of a newer build.
            other => Self::Unsupported(format!("refused for a reason of number {other}: {text}")),
        }
    }
}

// === impl Replied ===

impl Replied {
    pub(crate) fn new(number: u64, reply: Reply) -> Self {
        let replied = |kind| Self { number, kind, ..Self::default() };
        match reply {
            Reply::Done(payload) => Self { payload, ..replied(DONE) },
            Reply::NotRun(refusal) => Self { why: Some(refusal.into()), ..replied(NOT_RUN) },
            Reply::Unknown(text) => Self { text: short(text), ..replied(UNKNOWN) },
        }
    }

    pub(crate) fn reply(self) -> Reply {
        match self.kind {
            DONE => Reply::Done(self.payload),
            NOT_RUN => Reply::NotRun(self.why.into()),
            UNKNOWN => Reply::Unknown(self.text),
            // Of a newer build. Only "unknown" claims nothing.
            other => Reply::Unknown(format!("the reply has the number {other}: {}", self.text)),
        }
    }
}

/// Cuts a text, because the length of frames is bounded.
fn short(mut text: String) -> String {
    if text.len() > LONGEST_TEXT {
        let end = (0..=LONGEST_TEXT).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;

    /// A frame of a later build, with fields that this one does not define.
    #[derive(Clone, PartialEq, prost::Message)]
    struct LaterBackward {
        #[prost(uint64, tag = "2")]
        decided: u64,
        #[prost(string, tag = "900")]
        later: String,
        #[prost(message, repeated, tag = "901")]
        more: Vec<Bye>,
    }

    #[test]
    fn s1200_fields_of_a_later_build_are_skipped() {
        let later = LaterBackward {
            decided: 7,
            later: "what this build does not know".into(),
            more: vec![Bye { last_read: 9 }],
        };
        let read = Backward::decode(later.encode_to_vec().as_slice()).unwrap();
        assert_eq!(read, Backward { decided: 7, ..Backward::default() });
    }

    #[test]
    fn texts_that_explain_an_answer_are_cut() {
        let Reply::Unknown(text) = Replied::new(1, Reply::Unknown("ü".repeat(9_000))).reply()
        else {
            panic!("another reply")
        };
        assert_eq!(text, "ü".repeat(LONGEST_TEXT / 2));
    }

    #[test]
    fn garbage_is_an_error() {
        let parcel = Parcel { region: "cart".into(), ..Parcel::default() }.encode_to_vec();
        let garbage: [&[u8]; 5] = [
            &parcel[..parcel.len() - 1], // The text is longer than the frame.
            b"\x0a\x02\xff\xfe",         // A region that is not UTF-8.
            b"\x0b\x01",                 // A group: no type that a frame has.
            b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", // A number of 11 bytes.
            b"\x00",                     // A field of number 0.
        ];
        for bytes in garbage {
            assert!(Parcel::decode(bytes).is_err(), "{bytes:?}");
            let mut frame = vec![0x1a, u8::try_from(bytes.len()).unwrap()];
            frame.extend(bytes);
            assert!(Forward::decode(frame.as_slice()).is_err(), "{bytes:?}");
        }
    }

    fn refusals() -> impl Strategy<Value = Refusal> {
        prop_oneof![
            Just(Refusal::Moving { newer: None }),
            ("[a-z]{1,9}", 0..u64::MAX, 0..u64::MAX).prop_map(|(id, incarnation, epoch)| {
                let incarnation = Revision::new(incarnation);
                let peer = Peer { id: NodeId::new(id).unwrap(), incarnation };
                Refusal::Moving { newer: Some((peer, Revision::new(epoch))) }
            }),
            Just(Refusal::Busy),
            ".*".prop_map(Refusal::Overloaded),
            Just(Refusal::Expired),
            Just(Refusal::Draining),
            ".*".prop_map(Refusal::Unsupported),
        ]
    }

    fn replies() -> impl Strategy<Value = Reply> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..99).prop_map(|it| Reply::Done(it.into())),
            refusals().prop_map(Reply::NotRun),
            ".*".prop_map(Reply::Unknown),
        ]
    }

    proptest! {
        #[test]
        fn answers_are_read_as_they_are_written(reply in replies(), refusal in refusals()) {
            let number = 3;
            let frame = Backward {
                refused: vec![Refused { number, why: Some(refusal.clone().into()) }],
                replied: vec![Replied::new(number, reply.clone())],
                ..Backward::default()
            };
            let read = Backward::decode(frame.encode_to_vec().as_slice()).unwrap();
            prop_assert_eq!(Refusal::from(read.refused[0].why.clone()), refusal);
            prop_assert_eq!(read.replied[0].clone().reply(), reply);
        }

        #[test]
        fn a_damaged_frame_is_an_error_or_another_frame(
            reply in replies(), payload in proptest::collection::vec(any::<u8>(), 0..99),
            at: prop::sample::Index, byte: u8,
        ) {
            let damage = |mut bytes: Vec<u8>| {
                let at = at.index(bytes.len());
                bytes[at] = byte;
                bytes
            };
            let parcel = Parcel { region: "cart".into(), payload: payload.into(), ..Parcel::default() };
            let forward = Forward { first: 7, envelopes: vec![parcel], ..Forward::default() };
            if let Ok(read) = Forward::decode(damage(forward.encode_to_vec()).as_slice()) {
                prop_assert_eq!(Forward::decode(read.encode_to_vec().as_slice()).unwrap(), read);
            }
            let backward = Backward { replied: vec![Replied::new(3, reply)], ..Backward::default() };
            if let Ok(read) = Backward::decode(damage(backward.encode_to_vec()).as_slice()) {
                prop_assert_eq!(Backward::decode(read.encode_to_vec().as_slice()).unwrap(), read.clone());
                // What an unknown kind of reply says about the message is "unknown".
                for replied in read.replied {
                    let is_known = (DONE..=UNKNOWN).contains(&replied.kind);
                    prop_assert!(is_known || matches!(replied.reply(), Reply::Unknown(_)));
                }
            }
        }

        #[test]
        fn envelopes_are_read_as_they_are_written(
            entity in ".*", payload in proptest::collection::vec(any::<u8>(), 0..99),
            micros in 0..u64::MAX, is_ask: bool, is_nested: bool, is_request: bool,
        ) {
            let parcel = Parcel {
                region: "cart".into(), shard: 7, epoch: 12, entity, incarnation: 3, sequence: 99,
                is_ask, is_nested, remaining_micros: micros.min(1 << 40), payload: payload.into(),
                is_request,
            };
            let now = crate::time::now();
            let again = Parcel::pack(parcel.clone().unpack(now), now);
            prop_assert_eq!(&again, &parcel);
            let read = Parcel::decode(parcel.encode_to_vec().as_slice()).unwrap();
            prop_assert_eq!(read, parcel);
            // A remaining time beyond the clock's range does not overflow.
            let envelope = Parcel { remaining_micros: micros, ..again }.unpack(now);
            prop_assert!((now..=now + LONGEST).contains(&envelope.deadline));
        }
    }
}
