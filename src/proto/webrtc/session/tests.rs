//! Whole lives of a session against a str0m client, in virtual time.

mod allocations;
mod audio;
mod call;
mod device;
mod forger;
mod g711;
mod hello;
mod hostile;
mod leaving;
mod lengths;
mod messages;
mod neighbours;
mod network;
mod offers;
mod outages;
mod pair;
mod restart;
mod secure;
mod way;
mod why;
mod world;
mod wraps;
