pub mod bot;
pub mod config;
pub mod limits;
