//! Black-box tests of `edge-runner cloud`: the service and the client.

mod api;
mod builder;
mod builds;
mod client;
mod full_disk;
mod grants;
mod hostile;
mod images;
mod keys;
mod logs;
mod metrics;
mod recovery;
mod regions;
mod scale;
mod serve;
mod sweep;
mod uploads;
