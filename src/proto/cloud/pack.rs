//! What of a folder belongs to a build context, and in which order.
