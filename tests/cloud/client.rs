//! The client, against the service and against the real one's shape.
