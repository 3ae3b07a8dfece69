//! Macros that forward unchanged DTLS methods to the layer below.
//!
//! In: a type with a field `dtls`. Out: those methods of str0m's `DtlsInstance` that report or end
//! the association, and a `Debug` that shows the type's name alone.

/// Implements the forwarded methods inside an `impl DtlsInstance`.
macro_rules! forward_state {
    () => {
        fn is_active(&self) -> bool {
            self.dtls.is_active()
        }

        fn protocol_version(&self) -> Option<str0m::crypto::dtls::ProtocolVersion> {
            self.dtls.protocol_version()
        }

        fn is_closing(&self) -> bool {
            self.dtls.is_closing()
        }

        fn is_closed(&self) -> bool {
            self.dtls.is_closed()
        }

        fn close(&mut self) -> Result<(), str0m::crypto::dtls::DtlsImplError> {
            self.dtls.close()
        }
    };
}

/// Implements `Debug` without showing keys.
macro_rules! opaque_debug {
    ($layer:ident) => {
        impl std::fmt::Debug for $layer {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($layer))
            }
        }
    };
}

pub(super) use {forward_state, opaque_debug};
