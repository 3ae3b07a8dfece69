//! The client of the cloud agent service.

mod pack;
mod show;
mod upload;
