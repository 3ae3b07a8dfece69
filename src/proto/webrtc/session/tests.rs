//! Whole sessions with a str0m client in virtual time.

mod allocations;
mod audio;
mod call;
mod client_hello;
mod device;
mod diagnosis;
mod forged_sources;
mod g711;
mod hostile;
mod leaving;
mod lengths;
mod link;
mod messages;
mod moved;
mod network;
mod offers;
mod outages;
mod pair;
mod restart;
mod rig;
mod roles;
mod secure;
mod shared_nat;
mod wraps;
