//! The service starts, says where it listens, and ends in order.
