//! The class and the label of a pass, in one word.

use std::num::NonZeroU64;

use super::class::DrainClass;
use super::labels::LabelId;

/// The lowest two bits are the class, the others the number of the label. Zero for most passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PassTag(u64);

const CLASS_BITS: u32 = 2;
const CLASS: u64 = 0b11;

impl PassTag {
    #[inline]
    pub(super) const fn of(class: DrainClass) -> Self {
        Self(match class {
            DrainClass::Finish => 0,
            DrainClass::CloseNow => 1,
            DrainClass::Resumable => 2,
        })
    }

    #[inline]
    pub(super) fn is_set(self) -> bool {
        self.0 != 0
    }

    pub(super) fn class(self) -> DrainClass {
        match self.0 & CLASS {
            0 => DrainClass::Finish,
            1 => DrainClass::CloseNow,
            _ => DrainClass::Resumable,
        }
    }

    pub(super) fn label(self) -> Option<LabelId> {
        NonZeroU64::new(self.0 >> CLASS_BITS).map(LabelId)
    }

    pub(super) fn with_class(self, class: DrainClass) -> Self {
        Self(self.0 & !CLASS | Self::of(class).0)
    }

    pub(super) fn with_label(self, LabelId(id): LabelId) -> Self {
        Self(self.0 & CLASS | id.get() << CLASS_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_and_label_do_not_disturb_each_other() {
        for class in [DrainClass::Finish, DrainClass::CloseNow, DrainClass::Resumable] {
            let plain = PassTag::of(class);
            assert_eq!((plain.class(), plain.label().is_some()), (class, false));
            for id in [1, 77, u64::MAX >> CLASS_BITS] {
                let marked = plain.with_label(LabelId(NonZeroU64::new(id).unwrap()));
                assert_eq!((marked.class(), marked.label().unwrap().0.get()), (class, id));
                let other = marked.with_class(DrainClass::CloseNow);
                assert_eq!(other.class(), DrainClass::CloseNow);
                assert_eq!(other.label().unwrap().0.get(), id);
            }
        }
    }
}
