//! The runner's endpoints: what a request asks for, who may ask, and what is answered.
//!
//! - [`route`]; who may ask: [`access`], [`host`], [`origin`], [`visit`], [`token`]
//! - [`start`], and [`table`]: sessions that `/start` made

pub mod access;
pub mod host;
pub mod origin;
pub mod route;
pub mod start;
pub mod table;
pub mod token;
pub mod visit;
