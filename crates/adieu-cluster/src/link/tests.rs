//! Links over real sockets.

mod contract;
mod delivery;
mod ends;
mod hostile;
mod stage;
mod strangers;
