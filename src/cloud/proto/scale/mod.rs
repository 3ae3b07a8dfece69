//! Pure code of the cloud service on several machines.
//!
//! - Places: [`database_url`], [`store_url`]; [`secret_files`]
//! - The object store: [`sigv4`] (requests and links), [`post`] (grants), [`store_time`],
//!   [`listing`], [`object_keys`]
//! - Runs: [`lease`]

pub mod database_url;
pub mod lease;
pub mod listing;
pub mod object_keys;
pub mod post;
pub mod secret_files;
pub mod sigv4;
pub mod store_time;
pub mod store_url;
