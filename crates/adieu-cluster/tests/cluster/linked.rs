//! Regions over real links: processes that host entities, an etcd, and a database to which entities
//! append under their fences. Every ask and every append is judged.

mod appends;
mod child;
mod faults;
mod load;
mod moves;
mod rolling;
mod stage;
