//! Functions for the other crates of adieu. Applications do not need them.

#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
pub use crate::backend::{announced_session, is_permanent};
pub use crate::names::{NameRules, checked_name};
