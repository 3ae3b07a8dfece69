//! Ends builder commands that outlive the service.
