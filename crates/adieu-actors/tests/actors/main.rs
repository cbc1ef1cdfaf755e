//! What adieu-actors promises; one suite for every framework.

#![expect(clippy::disallowed_methods, reason = "tests spawn what they please")]
#![expect(clippy::unwrap_used, reason = "most are in functions that tests share")]

mod conformance;
mod conservation;
mod frameworks;
mod letters;
mod resources;
mod strange;
mod threads;
mod together;
