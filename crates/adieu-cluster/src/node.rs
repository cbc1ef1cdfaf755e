//! One node of a cluster, whole: the machine that the driver and the simulated world drive.

mod machine;

pub(crate) use machine::Node;
