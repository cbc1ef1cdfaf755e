//! Links over real sockets.

mod delivery;
mod ends;
mod hostile;
mod stage;
mod strangers;
