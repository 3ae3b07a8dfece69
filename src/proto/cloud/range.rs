//! One range of bytes of an image, as `Range` asks for it.
