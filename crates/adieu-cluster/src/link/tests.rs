//! Links over real sockets.

mod contract;
mod delivery;
mod ends;
mod hostile;
mod logged;
mod stage;
mod strangers;
