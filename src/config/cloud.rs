//! What the options of `edge-runner cloud` mean once they are checked.
