//! Requests to the cloud service and their answers.
